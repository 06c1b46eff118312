"""A cluster whose nodes show each other certificates: clients, replication and quorum over TLS.

Each node has a listener SSL, for clients and brokers, and a controller listener with TLS; both
require a certificate of clients. The listener PLAINTEXT beside them is only for the tests' own
questions about the cluster's state.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509

from kraftrio.broker.node.local.cluster_layout import free_ports
from tests.conformance.cluster_process import HOST, Cluster, ClusterNode, Properties
from tests.security.certificates import Authority, Identity, key_store, pem_files, trust_store

TLS_LISTENERS = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL"


class TlsCluster(Cluster):
    """See the module; nodes as in `Cluster`."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority()
        self._tls_ports = dict(enumerate(free_ports(count, HOST, random.SystemRandom()), start=1))
        self.client_files = pem_files(
            directory, self.authority, self.authority.client("alice"), "client"
        )
        self._directory = directory
        super().__init__(directory, count, self._tls_properties)

    def _tls_properties(self, node_id: int, ports: Mapping[int, int]) -> Properties:
        plain, controller = ports[node_id], ports[node_id] + 1
        tls = f"SSL://{HOST}:{self._tls_ports[node_id]}"
        listeners = f"PLAINTEXT://{HOST}:{plain},{tls}"
        return {
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": TLS_LISTENERS,
            "inter.broker.listener.name": "SSL",
            "ssl.client.auth": "required",
            **trust_store(self._directory, self.authority),
            **self.renew(node_id),
        }

    def renew(self, node_id: int, identity: Identity | None = None) -> Properties:
        """Replace a node's key store by another one."""
        identity = identity or self.authority.server(f"node-{node_id}")
        return key_store(self._directory, identity, name=f"node-{node_id}-keys")

    @property
    def tls_bootstrap(self) -> str:
        """All brokers, as clients with TLS take them."""
        return ",".join(f"{HOST}:{port}" for port in self._tls_ports.values())

    @property
    def librdkafka(self) -> dict[str, Any]:
        """What librdkafka needs to get in, with _ for the dots."""
        files = self.client_files
        return {
            "security_protocol": "SSL",
            "ssl_ca_location": str(files.ca),
            "ssl_certificate_location": str(files.certificate),
            "ssl_key_location": str(files.key),
        }

    def certificate_of(self, node: ClusterNode) -> int:
        """Connect as a client, ask for the API versions, and return the certificate's number.

        Raises:
            OSError: the connection was not made, or is lost.
        """
        context = ssl.create_default_context(cafile=str(self.client_files.ca))
        context.load_cert_chain(self.client_files.certificate, self.client_files.key)
        address = (HOST, self._tls_ports[node.node_id])
        with (
            socket.create_connection(address, 5) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as sock,
        ):
            sock.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            size, correlation_id = struct.unpack(">ii", _exactly(sock, 8))
            assert correlation_id == 7
            _exactly(sock, size - 4)
            shown = sock.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        data += more
    return data
