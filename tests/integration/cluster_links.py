"""The links among the nodes of a cluster, each of which a test can cut, freeze and mend.

Brokers advertise a listener of their own to each other, and controllers are voters of each other,
both through proxies here; clients connect directly. For every ordered pair (from, to) there is a
`Link`: a cut one resets what is open and what comes, a frozen one keeps connections open and
carries nothing, as a network does that loses every packet. Which node has connected to a broker's
one address is found by the process that has the other end of the connection.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.cluster_process import HOST, Cluster

_RESET = struct.pack("ii", 1, 0)  # closing sends RST
_CHUNK = 1 << 18
_TICK_S = 0.05


@dataclass
class Link:
    """What happens to bytes from one node to another, and to the answers on the same connection."""

    is_cut: bool = False
    is_frozen: bool = False
    pipes: list[Pipe] = field(default_factory=list)


@dataclass(eq=False)
class Pipe:
    """One direction of a connection."""

    link: Link
    source: socket.socket
    target: socket.socket
    pending: bytearray = field(default_factory=bytearray)
    is_over: bool = False


class Links:
    """All links of a cluster, whose bytes one thread carries.

    `overrides` gives a node's properties, for `Cluster(node_overrides=links.overrides)`; after that
    `attach` says which processes are the nodes'.
    """

    def __init__(self) -> None:
        self._links: dict[tuple[int, int], Link] = {}
        self._listeners: dict[int, list[socket.socket]] = {}
        self._accepts: dict[socket.socket, tuple[int | None, int, int]] = {}
        self._controllers: dict[tuple[int, int], int] = {}
        self._brokers: dict[int, tuple[int, int]] = {}
        self._cluster: Cluster | None = None
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)

    # Set-up

    def overrides(self, node_id: int, ports: Mapping[int, int]) -> dict[str, str]:
        """Return the listeners and voters of one node, with proxies between them."""
        if not self._brokers:
            self._lay(ports)
        advertised, inner = self._brokers[node_id]
        port = ports[node_id]
        voters = [
            f"{other}@{HOST}:{self._controllers.get((node_id, other), ports[other] + 1)}"
            for other in ports
        ]
        return {
            "listeners": f"PLAINTEXT://{HOST}:{port},INTERNAL://{HOST}:{inner},"
            f"CONTROLLER://{HOST}:{port + 1}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},INTERNAL://{HOST}:{advertised}",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": ",".join(voters),
        }

    def _lay(self, ports: Mapping[int, int]) -> None:
        """Open all proxies; the nodes' own internal listeners get the ports above them."""
        for node_id, port in ports.items():
            inner = _free_port()
            self._listeners[node_id] = []
            self._brokers[node_id] = (self._listen(None, node_id, inner), inner)
            for other in ports:
                if other != node_id:
                    self._links[other, node_id] = Link()
                    at = self._listen(other, node_id, port + 1)
                    self._controllers[other, node_id] = at

    def _listen(self, source: int | None, target: int, port: int, at: int = 0) -> int:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, at))
        listener.listen(64)
        listener.setblocking(False)
        self._accepts[listener] = (source, target, port)
        self._listeners[target].append(listener)
        return int(listener.getsockname()[1])

    def attach(self, cluster: Cluster) -> None:
        """Begin to carry bytes between the processes of this cluster."""
        self._cluster = cluster
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            for link in self._links.values():
                self._drop(link)
            for listener in self._accepts:
                listener.close()

    # Faults

    def cut(self, source: int, target: int) -> None:
        """Reset the connections of a node to another, and all that it makes from now on."""
        with self._lock:
            link = self._links[source, target]
            link.is_cut = True
            self._drop(link)

    def freeze(self, source: int, target: int) -> None:
        """Carry nothing on connections from a node to another, but leave them open."""
        with self._lock:
            self._links[source, target].is_frozen = True

    def mend(self) -> None:
        """Let all links work again, and carry what was held."""
        with self._lock:
            for link in self._links.values():
                link.is_cut = link.is_frozen = False

    def hang_up(self, node_id: int) -> None:
        """Refuse connections to a node, as the system does where nothing listens."""
        with self._lock:
            for listener in self._listeners[node_id]:
                listener.close()

    def pick_up(self, node_id: int) -> None:
        """Listen again for a node that is about to run."""
        with self._lock:
            closed = [one for one in self._listeners[node_id] if one.fileno() < 0]
            self._listeners[node_id] = [
                one for one in self._listeners[node_id] if one not in closed
            ]
            for listener in closed:
                source, target, port = self._accepts.pop(listener)
                at = (
                    self._brokers[target][0]
                    if source is None
                    else self._controllers[source, target]
                )
                self._listen(source, target, port, at)

    # Carrying

    def _carry(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                waiting = selectors.DefaultSelector()
                for listener in self._accepts:
                    if listener.fileno() >= 0:
                        waiting.register(listener, selectors.EVENT_READ, self._accept)
                for pipe in self._open_pipes():
                    _register(waiting, pipe)
            for key, events in waiting.select(_TICK_S):
                with self._lock:
                    if key.data == self._accept:
                        self._accept(key.fileobj)  # type: ignore[arg-type]
                    else:
                        for pipe, event in key.data:
                            if events & event:
                                self._move(pipe)
            waiting.close()

    def _open_pipes(self) -> Iterator[Pipe]:
        for link in self._links.values():
            if not link.is_frozen:
                yield from list(link.pipes)

    def _accept(self, listener: socket.socket) -> None:
        source, target, port = self._accepts[listener]
        try:
            near, peer = listener.accept()
        except OSError:
            return
        if source is None:
            source = self._who(peer[1])
        link = None if source is None else self._links.get((source, target))
        far = socket.socket()
        try:
            if link is None or link.is_cut:  # of a process that has just died, or not to be
                raise ConnectionRefusedError
            far.connect((HOST, port))
        except OSError:
            far.close()
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            near.close()
            return
        for one in (near, far):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.pipes += [Pipe(link, near, far), Pipe(link, far, near)]

    def _move(self, pipe: Pipe) -> None:
        """Carry what is there in one direction; when one direction ends, both do."""
        if pipe not in pipe.link.pipes or pipe.link.is_frozen:
            return
        try:
            if not pipe.pending:
                data = pipe.source.recv(_CHUNK)
                if not data:
                    raise ConnectionResetError
                pipe.pending += data
            sent = pipe.target.send(pipe.pending)
            del pipe.pending[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._end(pipe)

    def _end(self, pipe: Pipe) -> None:
        ends = {pipe.source, pipe.target}
        pipe.link.pipes = [one for one in pipe.link.pipes if one.source not in ends]
        for one in ends:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            one.close()

    def _drop(self, link: Link) -> None:
        while link.pipes:
            self._end(link.pipes[0])

    def _who(self, port: int) -> int | None:
        """Return the node that has a connection from this local port; None for anybody else."""
        assert self._cluster is not None
        inode = _inode_of(port)
        for node_id, node in self._cluster.nodes.items():
            process = node.process
            if process is not None and inode and _has_open(process.pid, inode):
                return node_id
        return None


def _register(waiting: selectors.BaseSelector, pipe: Pipe) -> None:
    """Wait for what this direction can do next: write what it holds, or read more."""
    where, event = (
        (pipe.target, selectors.EVENT_WRITE)
        if pipe.pending
        else (pipe.source, selectors.EVENT_READ)
    )
    try:
        key = waiting.get_key(where)
    except KeyError:
        waiting.register(where, event, [(pipe, event)])
    else:
        waiting.modify(where, key.events | event, [*key.data, (pipe, event)])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _inode_of(port: int) -> str:
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[9] != "0":
                return fields[9]
    return ""


def _has_open(pid: int, inode: str) -> bool:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}") == f"socket:[{inode}]":
                    return True
    return False
