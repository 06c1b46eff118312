"""The layout of a cluster on one machine: directories, properties files, ports, one cluster id.

Node i has its data in `DIR/node-i` and `DIR/node-i/server.properties`, with which
`kraftrio start --config` runs that node alone; all share one cluster id, written to each
`meta.properties` before the first start as `kafka-storage format` does. An existing file is never
changed: it decides the ports of later starts, and may be edited. A node's directory that was lost
is laid out again from the files of the others. A secure cluster has its keys and certificates in
`DIR/security` (`secure_setup`), and a third port for each node.

Called by the command line and by `local_cluster`.
"""

from __future__ import annotations

import posixpath
import random
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kraftrio.base.properties import parse_properties
from kraftrio.broker.config.attributes import address_text
from kraftrio.broker.config.types import PropertyError
from kraftrio.broker.log.checkpoints import (
    CheckpointError,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kraftrio.broker.log.files import FileSystem, write_atomically
from kraftrio.broker.node.local.secure_setup import property_files
from kraftrio.broker.node.local.secure_setup.property_files import NodeAddress
from kraftrio.broker.node.local.secure_setup.secure_setup import SecureSetup
from kraftrio.wire.primitives import uuid_to_text

DEFAULT_NODES = 3
DEFAULT_BASE_PORT = 9092
MAX_REPLICATION_FACTOR = 3

_PROPERTIES = "server.properties"
_MAX_PORT = 65_535
_PORTS_PER_NODE = 2
_PORTS_PER_SECURE_NODE = property_files.PORTS_PER_NODE
# Below the ports that Linux and others give to outgoing connections: one of these may not take a
# node's port while the node is down.
_FREE_PORTS = range(20_000, 32_764, 4)


class ClusterError(Exception):
    """The cluster cannot be laid out; the text is one plain sentence for the user."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node that is ready to be started.

    Attributes:
        port: of the listener for clients; the controller's is one above unless edited.
    """

    node_id: int
    directory: str
    port: int

    @property
    def config_file(self) -> str:
        """The node's own server.properties."""
        return posixpath.join(self.directory, _PROPERTIES)

    def command(self, *options: str) -> list[str]:
        """Return the command line that runs this node alone."""
        # -P: no module is imported from the current directory.
        start = [sys.executable, "-P", "-m", "kraftrio", "start", "--config", self.config_file]
        return [*start, *options]


def plan_cluster(
    fs: FileSystem,
    directory: str,
    rng: random.Random,
    *,
    nodes: int | None = None,
    base_port: int | None = None,
    host: str = "localhost",
    settings: Mapping[str, str] | None = None,
    secure: Callable[[SecureSetup], object] | None = None,
) -> list[PlannedNode]:
    """Lay a cluster out, or find the one that is there.

    Args:
        nodes: how many; None for as many as there are, `DEFAULT_NODES` for a new cluster.
        base_port: node i listens on base_port + 2(i - 1), 0 picks free ports; None for the ports of
            the cluster that is there, `DEFAULT_BASE_PORT` for a new one.
        settings: further properties of nodes that are laid out now.
        secure: the cluster is to be secure; called for a new one, to make its files, of which node
            i has the ports from base_port + 3(i - 1) on.

    Raises:
        ClusterError: what is asked for is impossible or contradicts what is there.
        SecureSetupError: of `secure`.
    """
    directory = posixpath.abspath(directory)
    try:
        found = _existing_nodes(fs, directory)
        known = _known_ports(found)
        if known:
            is_secure = SecureSetup(directory, {}).is_there(fs)
            if secure is not None and not is_secure:
                raise ClusterError(
                    f"{directory} holds a cluster without security: choose another directory for a"
                    " secure one"
                )
            _check_same(directory, known, nodes, base_port, _stride(is_secure))
        else:
            is_secure = secure is not None
            count = DEFAULT_NODES if nodes is None else nodes
            first = DEFAULT_BASE_PORT if base_port is None else base_port
            known = _new_ports(count, first, host, rng, _stride(is_secure))
        setup = _secure_setup(directory, known) if is_secure else None
        if setup is not None and secure is not None and not found:
            secure(setup)
        cluster_id = _cluster_id(fs, directory, known) or uuid_to_text(rng.randbytes(16))
        planned = []
        for node_id in sorted(known):
            node = PlannedNode(node_id, _node_directory(directory, node_id), known[node_id][1])
            if node_id not in found:
                fs.make_directory(node.directory)
                properties = node_properties(node_id, known, node.directory)
                if setup is not None:
                    properties |= setup.node_properties(node_id)
                properties |= settings or {}
                write_atomically(fs, node.config_file, _text_of(properties))
            _format_storage(fs, node, cluster_id, rng)
            planned.append(node)
    except OSError as error:
        raise ClusterError(f"cannot use {directory}: {error.strerror or error}") from error
    except (CheckpointError, PropertyError, ValueError) as error:
        raise ClusterError(f"cannot understand {directory}: {error}") from error
    return planned


def node_properties(
    node_id: int, ports: Mapping[int, tuple[str, int]], data: str
) -> dict[str, str]:
    """Return the properties of one node of a cluster.

    Args:
        ports: host and client port of every node; the controller's port is one above.
    """
    count = len(ports)
    replicas = min(MAX_REPLICATION_FACTOR, count)
    host, port = ports[node_id]
    client, controller = address_text(host, port), address_text(host, port + 1)
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{voter}@{address_text(ports[voter][0], ports[voter][1] + 1)}"
            for voter in sorted(ports)
        ),
        "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
    }
    if replicas == MAX_REPLICATION_FACTOR:
        # What acks=all acknowledges is on two nodes, so that it outlives any one of them.
        properties["min.insync.replicas"] = "2"
    return properties


def _stride(is_secure: bool) -> int:
    return _PORTS_PER_SECURE_NODE if is_secure else _PORTS_PER_NODE


def _secure_setup(directory: str, ports: Mapping[int, tuple[str, int]]) -> SecureSetup:
    return SecureSetup(
        directory,
        {node_id: NodeAddress(host, port, host) for node_id, (host, port) in ports.items()},
    )


def free_ports(
    count: int, host: str, rng: random.Random, ports_per_node: int = _PORTS_PER_NODE
) -> list[int]:
    """Return the first of several neighbouring free ports for each of several nodes."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ClusterError(f"cannot listen on {host}: {error.strerror or error}") from error
    found: list[int] = []
    for port in rng.sample(_FREE_PORTS, len(_FREE_PORTS)):
        if all(_is_free(address, port + offset) for offset in range(ports_per_node)):
            found.append(port)
            if len(found) == count:
                return found
    raise ClusterError(f"no {count} times {ports_per_node} free ports from {_FREE_PORTS[0]} on")


def _is_free(address: tuple[int, int, int, str, tuple[object, ...]], port: int) -> bool:
    family, kind, protocol, _, place = address
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((place[0], port))
        except OSError:
            return False
    return True


def _node_directory(directory: str, node_id: int) -> str:
    return posixpath.join(directory, f"node-{node_id}")


def _existing_nodes(fs: FileSystem, directory: str) -> dict[int, dict[str, str]]:
    """The properties of the nodes whose file is there, by node id."""
    if not fs.exists(directory):
        return {}
    found = {}
    for name in fs.list_directory(directory):
        prefix, dash, number = name.partition("-")
        file = posixpath.join(directory, name, _PROPERTIES)
        if prefix == "node" and dash and number.isdecimal() and fs.exists(file):
            found[int(number)] = parse_properties(fs.read_file(file).decode())
    return found


def _known_ports(found: Mapping[int, Mapping[str, str]]) -> dict[int, tuple[str, int]]:
    """Host and client port of every node: from its own file, or from its address as a voter."""
    ports: dict[int, tuple[str, int]] = {}
    for properties in found.values():
        for voter in filter(None, properties.get("controller.quorum.voters", "").split(",")):
            voter_id, _, address = voter.strip().partition("@")
            host, port = _host_port(address)
            ports[int(voter_id)] = (host, port - 1)
    for node_id, properties in found.items():
        listener = properties.get("listeners", "").split(",")[0].strip()
        ports[node_id] = _host_port(listener.partition("://")[2])
    return ports


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise PropertyError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def _check_same(
    directory: str,
    known: Mapping[int, tuple[str, int]],
    nodes: int | None,
    base_port: int | None,
    stride: int,
) -> None:
    if nodes not in (None, len(known)):
        raise ClusterError(f"{directory} holds a cluster of {len(known)} nodes, not {nodes}")
    ports = [known[node_id][1] for node_id in sorted(known)]
    if base_port and ports != _ports_from(base_port, len(known), stride):
        shown = ", ".join(map(str, ports))
        raise ClusterError(
            f"the cluster in {directory} has the ports {shown}: start it without --base-port"
        )


def _ports_from(base_port: int, count: int, stride: int) -> list[int]:
    return [base_port + stride * index for index in range(count)]


def _new_ports(
    count: int, base_port: int, host: str, rng: random.Random, stride: int
) -> dict[int, tuple[str, int]]:
    if not host:
        raise ClusterError("the nodes need a name or an address to listen on, not an empty host")
    if count < 1:
        raise ClusterError(f"a cluster of {count} nodes: it must have at least 1")
    if base_port:
        ports = _ports_from(base_port, count, stride)
    else:
        ports = free_ports(count, host, rng, stride)
    last = max(ports) + stride - 1
    if not 0 < min(ports) <= last <= _MAX_PORT:
        raise ClusterError(
            f"the ports {min(ports)} to {last} are not all between 1 and {_MAX_PORT}"
        )
    return {index + 1: (host, port) for index, port in enumerate(ports)}


def _cluster_id(fs: FileSystem, directory: str, known: Mapping[int, tuple[str, int]]) -> str | None:
    for node_id in sorted(known):
        owner = read_meta_properties(fs, _node_directory(directory, node_id))
        if owner is not None:
            return owner.cluster_id
    return None


def _format_storage(fs: FileSystem, node: PlannedNode, cluster_id: str, rng: random.Random) -> None:
    """Write the cluster's id to a fresh log directory; the other facts are the node's own."""
    if read_meta_properties(fs, node.directory) is None:
        owner = MetaProperties(cluster_id, node.node_id, rng.randbytes(16))
        write_meta_properties(fs, node.directory, owner)


def _text_of(properties: Mapping[str, str]) -> bytes:
    escaped = {name: value.replace("\\", "\\\\") for name, value in properties.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items()).encode()
