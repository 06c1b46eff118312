"""The traffic of nodes with real sockets, and what can be done to it.

Owns: `SocketTraffic`, which all nodes of a cluster share, and `NodeNetwork`, the network of one of
them. Rules:
1. A connection is tapped where a node accepts it, so clients may be any, in any process. Their
   machines are their client ids: a request that comes to the node counts as sent just then.
2. What is held up stays in the system's buffers, or, as far as it has been read, in the tap.
3. Who connects is known with the first bytes: a node by the port it has connected from, which it
   makes known before it sends; all others are clients.
4. What is not Kafka's protocol in plain text passes through unobserved.

Called by: `local_nodes`.
"""

from __future__ import annotations

import errno
import itertools
import math
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import trio

from kraftrio.broker.server.context import RequestContext
from kraftrio.net.transport import ACCEPT_BACKLOG, FileSender, ListeningSocket, SystemNetwork
from kraftrio.testing.traffic.frames import FRAME_SIZE, FrameCutter
from kraftrio.testing.traffic.traffic import (
    PROGRAM,
    TEST_CLIENT_ID,
    TEST_MACHINE,
    OnFrame,
    Traffic,
    WatchedConnection,
)
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.protocol.api import APIS
from kraftrio.wire.protocol.framing import parse_request_start

_CHUNK_BYTES: Final = 64 << 10
_LARGEST_FRAME_BYTES: Final = 256 << 20
_DUPLICATE_DEADLINE_S: Final = 30.0
_LONGEST_WAIT_S: Final = 5.0  # for an answer that is to be lost
_ID: Final = struct.Struct(">i")
_ID_POSITION: Final = 4  # of the correlation id, in the header of a request
_SHORTEST_FRAME_BYTES: Final = 8
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


class _Way:
    """One direction of a tapped connection, and the task that waits for it."""

    __slots__ = ("cutter", "held_until_s", "scope")

    def __init__(self) -> None:
        self.cutter = FrameCutter()
        self.held_until_s = -math.inf
        self.scope = trio.CancelScope()


class TappedSocket(WatchedConnection):
    """A connection that a node has accepted; looks like a non-blocking `socket.socket`."""

    def __init__(self, traffic: SocketTraffic, sock: socket.socket, node: str, port: int) -> None:
        self.sock = sock
        self.number = next(traffic.numbers)
        self.machine = ""  # not known yet
        self.node = node
        self._traffic = traffic
        self._port = port  # that its peer has connected from
        self._inward, self._outward = _Way(), _Way()
        self._is_reported = True  # its frames are; until the peer turns out to be a node
        self._inbox = b""  # read, and not taken yet
        self._lost_id: int | None = None  # the request whose answer is lost, and all after it
        self._breaks_after_s = 0.0
        self._breaks_at_s = math.inf
        self._is_closing = False

    # -- what socket.socket offers --------------------------------------------------------------

    def recv_into(self, buffer: Any, /) -> int:
        return self.recvmsg_into([buffer])[0]

    def recvmsg_into(self, buffers: Iterable[Any], /) -> tuple[int, Any, int, Any]:
        self._check_whole()
        if not self._inbox:
            self._check_free(self._inward)
            self._inbox = self.sock.recv(_CHUNK_BYTES)
            if not self._inbox:
                return 0, [], 0, None
            self._look_inward(self._inbox)
        self._check_free(self._inward)
        inbox, total = memoryview(self._inbox), 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            count = min(len(view), len(inbox) - total)
            view[:count] = inbox[total : total + count]
            total += count
        self._inbox = self._inbox[total:]
        return total, [], 0, None

    def send(self, data: Buffer, /) -> int:
        self._check_whole()
        self._check_free(self._outward)
        view = memoryview(data).cast("B")
        is_lost = self._lost_id is not None
        count = len(view) if is_lost else self.sock.send(view)
        if self._is_reported:
            for frame in self._outward.cutter.cut(bytes(view[:count])):
                self._traffic.notify(self._traffic.on_answered, self, frame)
                if not is_lost:
                    self._traffic.notify(self._traffic.on_arrived, self, frame)
                elif _ID.unpack_from(frame)[0] == self._lost_id:
                    self._breaks_at_s = trio.current_time() + self._breaks_after_s
                    self.look_again()
        return count

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        return self.send(b"".join(bytes(buffer) for buffer in buffers))

    def close(self) -> None:
        self._traffic.taps.pop(self, None)
        self.sock.close()

    def getpeername(self) -> Any:
        return self.sock.getpeername()

    def getsockname(self) -> Any:
        return self.sock.getsockname()

    # -- waiting --------------------------------------------------------------------------------

    async def wait_readable(self) -> None:
        await self._wait(self._inward, trio.lowlevel.wait_readable)

    async def wait_writable(self) -> None:
        await self._wait(self._outward, trio.lowlevel.wait_writable)

    async def _wait(self, way: _Way, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Wait until something can be done: reading or writing, or finding the connection gone."""
        while not self._is_broken and not self._is_closing:
            is_held = self._is_held(way)
            if not is_held and way is self._inward and self._inbox:
                break
            until_s = way.held_until_s if way.held_until_s > trio.current_time() else math.inf
            with trio.CancelScope(deadline=min(until_s, self._breaks_at_s)) as way.scope:
                if is_held:
                    await trio.sleep_forever()
                await wait(self.sock)
                return
        if self._is_closing:
            raise trio.ClosedResourceError("another task closed this socket")
        await trio.lowlevel.checkpoint()

    def look_again(self) -> None:
        """Let the tasks that wait find out whether something has changed for them."""
        for way in (self._inward, self._outward):
            way.scope.cancel()

    def notify_closing(self) -> None:
        """Raise trio.ClosedResourceError in the tasks that wait."""
        self._is_closing = True
        self.look_again()

    # -- what is done to it ---------------------------------------------------------------------

    def lose_answers(self, frame: bytes, after_s: float) -> None:
        self._lost_id = _ID.unpack_from(frame, _ID_POSITION)[0]
        self._breaks_after_s = after_s
        self._breaks_at_s = trio.current_time() + max(after_s, _LONGEST_WAIT_S)
        self.look_again()

    def hold_up(self, seconds: float) -> None:
        self._inward.held_until_s = trio.current_time() + seconds

    def send_again(self, frame: bytes, after_s: float) -> None:
        self._traffic.send_again(self, self.sock.getsockname(), frame, after_s)

    # -- the inside -----------------------------------------------------------------------------

    @property
    def _is_broken(self) -> bool:
        return trio.current_time() >= self._breaks_at_s

    def _check_whole(self) -> None:
        if self._is_broken:
            # With what its buffers hold: the client finds its connection reset.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            raise ConnectionResetError(errno.ECONNRESET, "the answer is lost")

    def _check_free(self, way: _Way) -> None:
        if self._is_held(way):
            raise BlockingIOError(errno.EAGAIN, "held up")

    def _is_held(self, way: _Way) -> bool:
        if way.held_until_s > trio.current_time():
            return True
        cuts = self._traffic.cuts
        if not cuts:
            return False
        self._recognize_node()
        if not self.machine:
            return False  # who it is has to be read
        ends = (self.machine, self.node) if way is self._inward else (self.node, self.machine)
        is_one = self._traffic.is_one
        return any(all(map(is_one, ends, cut)) for cut in cuts)

    def _recognize_node(self) -> None:
        if not self.machine:
            self.machine = self._traffic.node_at(self._port) or ""

    def _look_inward(self, chunk: bytes) -> None:
        self._recognize_node()
        if self.machine in self._traffic.node_names:
            self._is_reported = False
        if not self._is_reported:
            return
        cutter = self._inward.cutter
        for frame in cutter.cut(chunk):
            if len(frame) < _SHORTEST_FRAME_BYTES:
                continue  # the node will complain
            self.machine = self.machine or self._traffic.machine_of(frame)
            self._traffic.notify(self._traffic.on_sent, self, frame)
            self._traffic.notify(self._traffic.on_reached, self, frame)
        if cutter.wanted_bytes > _LARGEST_FRAME_BYTES:  # TLS, or nothing of Kafka's
            self.machine = self.machine or PROGRAM
            self._is_reported = False
            self._inward, self._outward = _Way(), _Way()


class TappedListener:
    """A listening socket whose connections are tapped."""

    def __init__(self, traffic: SocketTraffic, sock: Any, node: str) -> None:
        self.sock = sock
        self._traffic = traffic
        self._node = node

    def accept(self) -> tuple[TappedSocket, Any]:
        sock, address = self.sock.accept()
        tapped = TappedSocket(self._traffic, sock, self._node, address[1])
        self._traffic.taps[tapped] = None
        return tapped, address

    def getsockname(self) -> Any:
        return self.sock.getsockname()

    def close(self) -> None:
        self.sock.close()


class SocketTraffic(Traffic):
    """See `Traffic`; what is not async is to be called in the loop's thread.

    Args:
        node_names: such as "n1".
        note: writes a line of the story.

    Attributes:
        cuts: the directions in which nothing passes, (source, target).
        machines: of clients that have asked for something.
        nursery: where requests are sent again.
    """

    def __init__(
        self,
        node_names: Iterable[str],
        now_s: Callable[[], float],
        note: Callable[[str, str, str], None],
    ) -> None:
        super().__init__()
        self.node_names = frozenset(node_names)
        self.taps: dict[TappedSocket, None] = {}
        self.numbers = itertools.count(1)
        self.cuts: set[tuple[str, str]] = set()
        self.machines: dict[str, None] = {PROGRAM: None}
        self.nursery: trio.Nursery | None = None
        self._now_s = now_s
        self._note = note
        self._nodes_by_port: dict[int, tuple[str, socket.socket]] = {}

    def now_s(self) -> float:
        return self._now_s()

    def note(self, kind: str, text: str) -> None:
        self._note("world", kind, text)

    def notify(self, listeners: list[OnFrame], connection: WatchedConnection, frame: bytes) -> None:
        self.machines[connection.machine] = None
        super().notify(listeners, connection, frame)

    def is_one(self, machine: str, name: str) -> bool:
        if machine == name:
            return True
        return name == PROGRAM and machine != TEST_MACHINE and machine not in self.node_names

    def check_client(self, name: str) -> None:
        if name == TEST_MACHINE or name in self.node_names:
            raise ValueError(
                f"machine={name!r} is no client of the program's: give its client id, or"
                f" {PROGRAM!r} for all"
            )

    def sender(self, context: RequestContext) -> str | None:
        if self.node_at(context.client.port) is not None:
            return None
        return self._machine_named(context.client_id)

    def machine_of(self, frame: bytes) -> str:
        """Which machine a client with such a request is taken to be."""
        try:
            start = parse_request_start(
                memoryview(frame), lambda key: APIS[key].flexible_from if key in APIS else None
            )
        except RemoteProtocolError:
            return PROGRAM  # the node will complain
        return self._machine_named(start.client_id)

    def _machine_named(self, client_id: str | None) -> str:
        if client_id == TEST_CLIENT_ID:
            return TEST_MACHINE
        name = client_id or PROGRAM
        return f"client-{name}" if name in self.node_names else name

    # -- nodes among those that connect -----------------------------------------------------------

    def make_known(self, sock: socket.socket, node: str) -> None:
        """Let a connection count as one that a node has made."""
        known = self._nodes_by_port
        for port in [port for port, (_, each) in known.items() if each.fileno() < 0]:
            del known[port]
        known[sock.getsockname()[1]] = node, sock

    def node_at(self, port: int) -> str | None:
        """Which node has connected from a port; None: none."""
        found = self._nodes_by_port.get(port)
        return None if found is None or found[1].fileno() < 0 else found[0]

    # -- faults -----------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one machine to another, until it is healed."""
        self.cuts.add((source, target))
        self._changed()

    def heal(self, source: str, target: str) -> None:
        """Let everything pass in a direction again."""
        self.cuts.discard((source, target))
        self._changed()

    def heal_all(self) -> None:
        """Let everything pass, also what is late on its connection."""
        self.cuts.clear()
        for tap in self.taps:
            tap.hold_up(0)
        self._changed()

    def _changed(self) -> None:
        for tap in self.taps:
            tap.look_again()

    def send_again(
        self, connection: TappedSocket, address: tuple[str, int], frame: bytes, after_s: float
    ) -> None:
        """Send a request once more to the node that has it."""
        assert self.nursery is not None
        self.nursery.start_soon(self._send_again, connection.node, address, frame, after_s)

    async def _send_again(
        self, node: str, address: tuple[str, int], frame: bytes, after_s: float
    ) -> None:
        await trio.sleep(after_s)
        with trio.move_on_after(_DUPLICATE_DEADLINE_S):
            try:
                stream = await trio.open_tcp_stream(*address)
            except OSError as error:
                self.note("fault", f"it came once: {error}")
                return
            async with stream:
                known: Any = stream.socket
                self.make_known(known, node)  # it is no request of the program's
                await stream.send_all(FRAME_SIZE.pack(len(frame)) + frame)
                await stream.receive_some()


class NodeNetwork(SystemNetwork):
    """The network of one node.

    Args:
        ports: opens its listening sockets.
    """

    def __init__(self, ports: SystemNetwork, traffic: SocketTraffic, node: str) -> None:
        self._ports = ports
        self._traffic = traffic
        self._node = node

    def bind(  # type: ignore[override]
        self, host: str, port: int, *, backlog: int = ACCEPT_BACKLOG, ipv6_only: bool = False
    ) -> ListeningSocket:
        sock = self._ports.bind(host, port, backlog=backlog, ipv6_only=ipv6_only)
        return TappedListener(self._traffic, sock, self._node)

    async def connect(self, host: str, port: int) -> socket.socket:
        sock = await super().connect(host, port)
        self._traffic.make_known(sock, self._node)
        return sock

    def tune(self, sock: Any, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        super().tune(sock.sock, send_buffer_bytes, receive_buffer_bytes)

    def file_sender(self, sock: Any) -> FileSender | None:
        return None if isinstance(sock, TappedSocket) else super().file_sender(sock)

    async def wait_readable(self, sock: Any) -> None:
        if isinstance(sock, TappedSocket):
            await sock.wait_readable()
        else:
            await super().wait_readable(sock.sock if isinstance(sock, TappedListener) else sock)

    async def wait_writable(self, sock: Any) -> None:
        if isinstance(sock, TappedSocket):
            await sock.wait_writable()
        else:
            await super().wait_writable(sock)

    def notify_closing(self, sock: Any) -> None:
        if isinstance(sock, TappedSocket):
            sock.notify_closing()
        else:
            super().notify_closing(sock.sock if isinstance(sock, TappedListener) else sock)
