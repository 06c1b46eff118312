"""One node with a listener SSL beside the tests' PLAINTEXT: ours, or Apache's to compare with."""

from __future__ import annotations

import random
import socket
import ssl
from pathlib import Path

from kraftrio.broker.node.local.cluster_layout import free_ports
from tests.conformance.broker_process import KIND, ApacheBroker, Broker, free_port_pair
from tests.security.certificates import Authority, key_store, trust_store

HOST = "127.0.0.1"


class TlsBroker(Broker):
    """One node of ours.

    Args:
        stores: the kind of the key stores, as in `certificates.key_store`.
        config: settings by Kafka's names with _ for the dots.
    """

    def __init__(
        self,
        directory: Path,
        authority: Authority,
        stores: str = "PEM",
        **config: object,
    ) -> None:
        super().__init__(directory, **config)
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = authority
        self.stores = stores
        self.port = free_port_pair()
        [tls_port] = free_ports(1, HOST, random.SystemRandom())
        self.tls_address = (HOST, tls_port)
        self.config |= {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self.port + 1}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},SSL://{HOST}:{tls_port},"
            f"CONTROLLER://{HOST}:{self.port + 1}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port},SSL://{HOST}:{tls_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            **key_store(directory, authority.server(), stores),
            **trust_store(directory, authority, kind=stores),
            **self.config,
        }

    def command(self) -> list[str]:
        """Without --listen, which would stand for all listeners."""
        command = [*self.python_command(), "--data", str(self.data_directory)]
        for name, value in self.config.items():
            command += ["--set", f"{name}={value}"]
        return command

    @property
    def bootstrap(self) -> str:
        """The address of the listener SSL, as clients take it."""
        return f"{self.tls_address[0]}:{self.tls_address[1]}"

    def connect(self) -> ssl.SSLSocket:
        """Connect as a client without a certificate does."""
        trusted = trust_store(self.directory, self.authority, name="ca")["ssl.truststore.location"]
        context = ssl.create_default_context(cafile=trusted)
        plain = socket.create_connection(self.tls_address, 20)
        return context.wrap_socket(plain, server_hostname=HOST)

    def client_file(self, properties: dict[str, str], name: str = "client") -> str:
        """Write what Java's clients get as --command-config."""
        path = self.directory / f"{name}.properties"
        settings = {"security.protocol": "SSL", **properties}
        path.write_text(
            "".join(
                f"{key}={value.replace(chr(10), chr(92) + 'n')}\n"
                for key, value in settings.items()
            )
        )
        return str(path)


class ApacheTlsBroker(TlsBroker, ApacheBroker):
    """One node of Apache Kafka with the same listeners and settings."""

    kind = "apache"
    crash_marks = ApacheBroker.crash_marks
    clean_exit_code = ApacheBroker.clean_exit_code
    data_directory = ApacheBroker.data_directory
    wait_ready = ApacheBroker.wait_ready
    command = ApacheBroker.command


def tls_broker(
    directory: Path, authority: Authority, stores: str = "PEM", **config: object
) -> TlsBroker:
    """The node that TEST_BROKER names, not started yet."""
    kind = {"kraftrio": TlsBroker, "apache": ApacheTlsBroker}[KIND]
    return kind(directory, authority, stores, **config)
