"""A network in memory: hosts, links with latency, and connections that lose, hang and are cut.

Owns: `Internet` (the hosts and links), `HostNetwork` (one host's `net.transport.Network`),
`SimSocket` and `SimListener`. Rules:
1. Bytes of one direction of a connection arrive in order and once, or never: what TCP promises.
   Across connections any order is possible. A send may be accepted in part, and may arrive in
   pieces.
2. A link that hangs delivers nothing until it is mended, then everything (TCP sends it again).
   Neither end gets an error: only deadlines end such a wait.
3. A dead process refuses connections, and its own are reset or closed. A machine without power
   answers nothing; the other ends of its connections time out in the end, by keep-alive probes.
4. Buffers are bounded: a sender whose peer does not read must wait.

Faults: only those that a cluster must survive. Latency, slow links, links that hang in one or both
directions, connections that are cut and lose what was under way in one direction or both.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import outcome
import trio

from kraftrio.net.transport import KEEPALIVE_COUNT, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S
from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.work import BYTE_S, RECEIVE_S
from kraftrio.testing.simulation.world import World
from kraftrio.wire.primitives import Buffer

_BUFFER_BYTES = 128 * 1024
_BACKLOG = 128
_FIRST_EPHEMERAL_PORT = 40_000
_KEEPALIVE_S = KEEPALIVE_IDLE_S + KEEPALIVE_COUNT * KEEPALIVE_INTERVAL_S


@dataclass(slots=True)
class LinkQuality:
    """How fast and how regularly a link carries bytes."""

    latency_s: float = 0.0005
    jitter_s: float = 0.001
    bytes_per_s: float = 1e9
    split_chance: float = 0.05


@dataclass(slots=True)
class SimLink:
    """One direction between two hosts."""

    name: str
    quality: LinkQuality
    hangs: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)


class SimSocket:
    """One end of a connection; looks like a non-blocking `socket.socket`."""

    __slots__ = (
        "_internet",
        "_reader",
        "_writer",
        "closed",
        "connection_id",
        "eof",
        "error",
        "hangs",
        "held",
        "host",
        "inbox",
        "last_arrival_s",
        "link",
        "peer",
        "peer_port",
        "port",
        "serial",
        "under_way",
        "under_way_bytes",
        "void",
    )

    def __init__(
        self, internet: Internet, connection_id: int, link: SimLink, host: Host, port: int
    ) -> None:
        self._internet = internet
        self.connection_id = connection_id
        self.link = link  # to the peer
        self.host = host
        self.port = port
        self.peer: SimSocket = self
        self.peer_port = 0
        self.serial = 0
        self.inbox = bytearray()
        self.eof = False
        self.error: int | None = None
        self.closed = False
        self.hangs = False  # what this end sends does not arrive, for now
        self.void = False  # what this end sends is lost
        self.held = 0  # how many pieces wait for an end of `hangs`
        self.under_way: deque[bytes | None] = deque()  # to the peer; None ends the stream
        self.under_way_bytes = 0
        self.last_arrival_s = 0.0
        self._reader: trio.lowlevel.Task | None = None
        self._writer: trio.lowlevel.Task | None = None

    def __repr__(self) -> str:
        return f"c{self.connection_id} {self.host.name}:{self.port}>{self.peer.host.name}"

    # -- what socket.socket offers --------------------------------------------------------------

    def recv_into(self, buffer: Any, /) -> int:
        inbox = self.inbox
        self._check_open()
        if inbox:
            view = memoryview(buffer).cast("B")
            count = min(len(view), len(inbox))
            view[:count] = memoryview(inbox)[:count]
            self._taken(count)
            return count
        return self._nothing_to_read()

    def recvmsg_into(self, buffers: Iterable[Any], /) -> tuple[int, Any, int, Any]:
        self._check_open()
        if not self.inbox:
            return self._nothing_to_read(), [], 0, None
        total = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            count = min(len(view), len(self.inbox) - total)
            view[:count] = self.inbox[total : total + count]
            total += count
            if total == len(self.inbox):
                break
        self._taken(total)
        return total, [], 0, None

    def send(self, data: Buffer, /) -> int:
        self._check_open()
        if self.error is not None:
            code, self.error = self.error, errno.EPIPE
            raise _connection_error(code)
        room = _BUFFER_BYTES - self.under_way_bytes - len(self.peer.inbox)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "send buffer full")
        view = memoryview(data).cast("B")
        chunk = bytes(view[:room])
        if chunk:
            self._internet.world.work.charge(current.get(), RECEIVE_S + len(chunk) * BYTE_S)
            self._internet.send(self, chunk)
        return len(chunk)

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        return self.send(b"".join(bytes(buffer) for buffer in buffers))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._internet.closed(self)

    def setblocking(self, flag: bool, /) -> None:
        assert not flag, "sockets here are non-blocking"

    def setsockopt(self, *arguments: object) -> None:
        """Accept any option: there is nothing to tune."""

    def getsockname(self) -> tuple[str, int]:
        return self.host.address, self.port

    def getpeername(self) -> tuple[str, int]:
        return self.peer.host.address, self.peer_port

    # -- the inside -----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "closed socket")

    def _nothing_to_read(self) -> int:
        if self.error is not None:
            code, self.error = self.error, errno.EPIPE
            self.eof = True
            raise _connection_error(code)
        if self.eof:
            return 0
        raise BlockingIOError(errno.EAGAIN, "nothing to read")

    def _taken(self, count: int) -> None:
        self._internet.world.work.charge(current.get(), RECEIVE_S + count * BYTE_S)
        del self.inbox[:count]
        self.peer.wake_writer()

    @property
    def is_readable(self) -> bool:
        return bool(self.inbox) or self.eof or self.error is not None

    @property
    def is_writable(self) -> bool:
        in_use = self.under_way_bytes + len(self.peer.inbox)
        return self.error is not None or in_use < _BUFFER_BYTES

    def wake_reader(self) -> None:
        task, self._reader = self._reader, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def wake_writer(self) -> None:
        task, self._writer = self._writer, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def wait_readable(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError("another task closed this socket")
        if self.is_readable:
            await trio.lowlevel.checkpoint()
            return
        if self._reader is not None:
            raise trio.BusyResourceError("another task is waiting for this socket")
        self._reader = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def wait_writable(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError("another task closed this socket")
        if self.is_writable:
            await trio.lowlevel.checkpoint()
            return
        if self._writer is not None:
            raise trio.BusyResourceError("another task is waiting for this socket")
        self._writer = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._writer = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def notify_closing(self) -> None:
        for task in (self._reader, self._writer):
            if task is not None:
                error = trio.ClosedResourceError("another task closed this socket")
                trio.lowlevel.reschedule(task, outcome.Error(error))
        self._reader = self._writer = None

    def reset(self, code: int = errno.ECONNRESET) -> None:
        """Let the next call at this end fail: the connection is broken."""
        if not self.closed and self.error is None:
            self.error = code
            self.wake_reader()
            self.wake_writer()


def _connection_error(code: int) -> OSError:
    if code == errno.EPIPE:
        return BrokenPipeError(code, "broken pipe")
    if code == errno.ETIMEDOUT:
        return TimeoutError(code, "connection timed out")
    return ConnectionResetError(code, "connection reset by peer")


class SimListener:
    """A listening socket."""

    def __init__(self, host: Host, port: int) -> None:
        self.host = host
        self.port = port
        self.queue: deque[SimSocket] = deque()
        self.closed = False
        self._acceptor: trio.lowlevel.Task | None = None

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if self.closed:
            raise OSError(errno.EBADF, "closed socket")
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, "nobody to accept")
        sock = self.queue.popleft()
        return sock, (sock.peer.host.address, sock.peer_port)

    def getsockname(self) -> tuple[str, int]:
        return self.host.name, self.port

    def setblocking(self, flag: bool, /) -> None:
        assert not flag, "sockets here are non-blocking"

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.host.listeners.pop(self.port, None)
            while self.queue:
                self.queue.popleft().close()

    def admit(self, sock: SimSocket) -> None:
        self.queue.append(sock)
        task, self._acceptor = self._acceptor, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def wait_readable(self) -> None:
        if self.queue:
            await trio.lowlevel.checkpoint()
            return
        self._acceptor = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._acceptor = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def notify_closing(self) -> None:
        task, self._acceptor = self._acceptor, None
        if task is not None:
            error = trio.ClosedResourceError("another task closed this socket")
            trio.lowlevel.reschedule(task, outcome.Error(error))


@dataclass(eq=False, slots=True)
class Host:
    """A machine: what listens there, and its connections."""

    name: str
    address: str
    is_node: bool = False  # of a cluster: no client lives there
    has_power: bool = True
    listeners: dict[int, SimListener] = field(default_factory=dict)
    sockets: dict[int, SimSocket] = field(default_factory=dict)  # by order of creation
    next_port: int = _FIRST_EPHEMERAL_PORT


class Internet:
    """All hosts and the links between them."""

    def __init__(self, world: World, quality: LinkQuality | None = None) -> None:
        self.world = world
        self.rng: random.Random = world.rng("network")
        self.quality = quality if quality is not None else LinkQuality()
        self.hosts: dict[str, Host] = {}
        self.links: dict[tuple[str, str], SimLink] = {}
        self.observers: list[Callable[[SimSocket, bytes], None]] = []  # of all that is sent
        self.arrival_observers: list[Callable[[SimSocket, bytes], None]] = []  # (sender, piece)
        self._ids = itertools.count(1)
        self._serial = itertools.count(1)

    def host(self, name: str) -> Host:
        """Find or make a host."""
        found = self.hosts.get(name)
        if found is None:
            number = len(self.hosts) + 1
            found = self.hosts[name] = Host(name, f"10.0.{number // 250}.{number % 250}")
        return found

    def link(self, source: str, target: str) -> SimLink:
        """Find or make the direction from one host to another."""
        found = self.links.get((source, target))
        if found is None:
            quality = self.quality
            if source == target:
                quality = LinkQuality(0.00002, 0.00002, 1e10, 0.0)
            found = self.links[source, target] = SimLink(f"{source}>{target}", quality)
        return found

    # -- carrying -------------------------------------------------------------------------------

    def send(self, sock: SimSocket, chunk: bytes) -> None:
        """Accept bytes from a socket; they arrive later, or never."""
        for observe in self.observers:
            observe(sock, chunk)
        self.carry(sock, chunk)

    def carry(self, sock: SimSocket, chunk: bytes) -> None:
        """As `send`, but without observers."""
        quality = sock.link.quality
        if len(chunk) > 1 and self.rng.random() < quality.split_chance:
            cut = self.rng.randrange(1, len(chunk))
            pieces = [chunk[:cut], chunk[cut:]]
        else:
            pieces = [chunk]
        for piece in pieces:
            sock.under_way.append(piece)
            sock.under_way_bytes += len(piece)
            self._schedule_arrival(sock, len(piece))

    def _schedule_arrival(self, sock: SimSocket, size: int) -> None:
        quality = sock.link.quality
        delay = (
            quality.latency_s + self.rng.random() * quality.jitter_s + size / quality.bytes_per_s
        )
        arrival = max(self.world.now_s + delay, sock.last_arrival_s)
        sock.last_arrival_s = arrival
        self.world.after(arrival - self.world.now_s, lambda: self._arrive(sock))

    def _arrive(self, sock: SimSocket) -> None:
        """Bring the next piece of what `sock` sent to its peer."""
        if not sock.under_way:
            return  # cut meanwhile
        if sock.link.hangs:
            sock.link.held.append(lambda: self._schedule_arrival(sock, 0))
            return
        if sock.hangs:
            sock.held += 1
            return
        peer = sock.peer
        piece = sock.under_way.popleft()
        if piece is not None:
            sock.under_way_bytes -= len(piece)
        if sock.void or not peer.host.has_power:
            return
        name = f"c{sock.connection_id} {sock.link.name}"
        if peer.closed:
            if piece is not None:
                self.world.note("net", "reset", f"{name} nobody reads {len(piece)} bytes")
                sock.under_way.clear()
                sock.under_way_bytes = 0
                self._reset_later(sock, peer.link)
            return
        if piece is None:
            self.world.note("net", "close", name)
            peer.eof = True
        else:
            self.world.note("net", "data", f"{name} {len(piece)} bytes")
            for observe in self.arrival_observers:
                observe(sock, piece)
            peer.inbox += piece
        peer.wake_reader()

    def _reset_later(self, sock: SimSocket, link: SimLink) -> None:
        delay = link.quality.latency_s

        def reset() -> None:
            if link.hangs:
                link.held.append(reset)
            else:
                sock.reset()

        self.world.after(delay, reset)

    def closed(self, sock: SimSocket) -> None:
        """Let the peer know that an end was closed: by a reset if that left bytes unread."""
        sock.host.sockets.pop(sock.serial, None)
        if sock.peer.closed:
            return
        if sock.inbox:
            sock.inbox.clear()
            sock.under_way.clear()
            sock.under_way_bytes = 0
            self._reset_later(sock.peer, sock.link)
        else:
            sock.under_way.append(None)
            self._schedule_arrival(sock, 0)
        sock.peer.wake_writer()

    # -- connecting -----------------------------------------------------------------------------

    async def connect(self, source: Host, name: str, port: int) -> SimSocket:
        """Connect from a host; this waits without end where nobody answers."""
        if name not in self.hosts:
            raise OSError(errno.EHOSTUNREACH, f"no such host {name}")
        target = self.hosts[name]
        answered = trio.Event()
        result: list[SimSocket | OSError] = []
        given_up = False

        def answer(found: SimSocket | OSError) -> None:
            if not given_up:
                result.append(found)
                answered.set()
            elif isinstance(found, SimSocket):
                found.close()

        ask = partial(self._on_connect, source, target, port, answer)
        self._carry(self.link(source.name, name), ask)
        try:
            await answered.wait()
        except trio.Cancelled:
            given_up = True
            for late in result:
                if isinstance(late, SimSocket):
                    late.close()
            raise
        found = result[0]
        if isinstance(found, OSError):
            raise found
        return found

    def _carry(self, link: SimLink, deliver: Callable[[], None]) -> None:
        """Carry one packet without a connection over a link."""

        def arrive() -> None:
            if link.hangs:
                link.held.append(lambda: self._carry(link, deliver))
            else:
                deliver()

        delay = link.quality.latency_s + self.rng.random() * link.quality.jitter_s
        self.world.after(delay, arrive)

    def _on_connect(
        self,
        source: Host,
        target: Host,
        port: int,
        answer: Callable[[SimSocket | OSError], None],
    ) -> None:
        """A request to connect (SYN) has arrived at its target."""
        back = self.link(target.name, source.name)
        if not target.has_power:
            return  # without an answer
        listener = target.listeners.get(port)
        if listener is None or len(listener.queue) >= _BACKLOG:
            self.world.note("net", "refuse", f"{source.name}>{target.name}:{port}")
            error = ConnectionRefusedError(errno.ECONNREFUSED, f"{target.name}:{port} refused")
            self._carry(back, lambda: answer(error))
            return
        connection_id = next(self._ids)
        source.next_port += 1
        client = SimSocket(
            self, connection_id, self.link(source.name, target.name), source, source.next_port
        )
        server = SimSocket(self, connection_id, back, target, port)
        client.peer, server.peer = server, client
        client.peer_port, server.peer_port = port, client.port
        self.world.note(
            "net", "open", f"c{connection_id} {source.name}:{client.port}>{target.name}:{port}"
        )
        for sock in (client, server):
            sock.serial = next(self._serial)
            sock.host.sockets[sock.serial] = sock
        listener.admit(server)

        self._carry(back, lambda: answer(client) if source.has_power else None)

    # -- faults ---------------------------------------------------------------------------------

    def hang(self, source: str, target: str) -> None:
        """Let nothing pass from one host to another until `mend`."""
        link = self.link(source, target)
        if not link.hangs:
            link.hangs = True
            self.world.note("net", "hang", link.name)

    def mend(self, source: str, target: str) -> None:
        link = self.link(source, target)
        if link.hangs:
            link.hangs = False
            self.world.note("net", "mend", link.name)
            held, link.held = link.held, []
            for release in held:
                release()

    def mend_all(self) -> None:
        """End every fault of links and connections."""
        for source, target in list(self.links):
            self.mend(source, target)
            self.links[source, target].quality = (
                self.quality if source != target else self.links[source, target].quality
            )
        for host in self.hosts.values():
            for sock in self.live_sockets(host):
                self.stall(sock, False)

    def live_sockets(self, host: Host) -> list[SimSocket]:
        """Every open socket of a host, oldest first."""
        return list(host.sockets.values())

    def stall(self, sock: SimSocket, stalls: bool) -> None:
        """Hold what one end sends, or let it arrive again."""
        sock.hangs = stalls
        if not stalls:
            held, sock.held = sock.held, 0
            for _ in range(held):
                self._schedule_arrival(sock, 0)

    def cut(self, sock: SimSocket, *, lose_answers_s: float = 0.0) -> None:
        """Break a connection.

        Args:
            lose_answers_s: for that long what `sock` sends still arrives, but no answer comes back.
        """
        self.world.note("net", "cut", f"c{sock.connection_id} {sock.link.name} {lose_answers_s:g}")

        def reset() -> None:
            for end in (sock, sock.peer):
                end.under_way.clear()
                end.under_way_bytes = 0
                end.reset()

        if lose_answers_s > 0:
            sock.peer.void = True
            sock.peer.under_way.clear()
            sock.peer.under_way_bytes = 0
            self.world.after(lose_answers_s, reset)
        else:
            reset()

    def kill_process(self, host: Host) -> None:
        """Close everything of a host as a kernel does for a dead process."""
        for listener in list(host.listeners.values()):
            listener.close()
        for sock in self.live_sockets(host):
            sock.close()

    def cut_power(self, host: Host) -> None:
        """Cut a machine's power: peers get no reset, and find out by keep-alive probes (TCP)."""
        host.has_power = False
        for listener in list(host.listeners.values()):
            listener.closed = True
            listener.queue.clear()
        host.listeners.clear()
        for sock in self.live_sockets(host):
            sock.closed = True
            sock.under_way.clear()
            sock.under_way_bytes = 0
            self.world.after(_KEEPALIVE_S, partial(self._on_keepalive_failed, sock.peer))
        host.sockets.clear()

    def _on_keepalive_failed(self, sock: SimSocket) -> None:
        """No probe was answered: the machine at the other end is gone, or knows nothing of it."""
        if not sock.closed and sock.host.has_power:
            sock.reset(errno.ETIMEDOUT)

    def restore_power(self, host: Host) -> None:
        host.has_power = True


class HostNetwork:
    """The network as one process on a host sees it (`net.transport.Network`)."""

    def __init__(self, internet: Internet, name: str) -> None:
        self._internet = internet
        self.host = internet.host(name)
        self.is_dead = False

    def bind(
        self, host: str, port: int, *, backlog: int = _BACKLOG, ipv6_only: bool = False
    ) -> SimListener:
        if self.is_dead:
            raise OSError(errno.ENETDOWN, "process is dead")
        if port == 0:
            self.host.next_port += 1
            port = self.host.next_port
        if port in self.host.listeners:
            raise OSError(errno.EADDRINUSE, "address in use")
        listener = self.host.listeners[port] = SimListener(self.host, port)
        return listener

    async def connect(self, host: str, port: int) -> SimSocket:
        if self.is_dead:
            await trio.lowlevel.checkpoint()
            raise OSError(errno.ENETDOWN, "process is dead")
        sock = await self._internet.connect(self.host, host, port)
        if self.is_dead:
            sock.close()
            raise OSError(errno.ENETDOWN, "process is dead")
        return sock

    def tune(self, sock: Any, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        """Accept any setting: buffers are of one size here."""

    async def wait_readable(self, sock: Any) -> None:
        await sock.wait_readable()

    def file_sender(self, sock: Any) -> None:
        """None: bytes of files are read and sent, since there is no sendfile(2) here."""

    async def wait_writable(self, sock: Any) -> None:
        await sock.wait_writable()

    def notify_closing(self, sock: Any) -> None:
        sock.notify_closing()
