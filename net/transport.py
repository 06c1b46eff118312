"""Sockets as a port: how everything here connects, listens and waits, and what a test may replace.

Owns: the protocols `Socket`, `FileSender`, `ListeningSocket` and `Network`, and `SystemNetwork`,
which is the operating system's. Rules:
1. Sockets are non-blocking: a call does what can be done now or raises BlockingIOError; waiting is
   the network's (`wait_readable`, `wait_writable`), so that the hot path awaits nothing needlessly.
2. Nothing else opens sockets. A simulation gives every node a network in memory instead.

Called by: the broker's server and the connections to brokers and controllers.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterable
from typing import Any, Protocol

import trio

from kraftrio.wire.primitives import Buffer
from kraftrio.wire.stored_bytes import StoredBytesGone

ACCEPT_BACKLOG = 512
_ANY_IPV4 = "0.0.0.0"
_ANY_IPV6 = "::"
_WITHOUT_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_MAPPED_IPV4 = "::ffff:"

# After how many silent seconds a peer is asked whether it is still there, how many later it is
# asked again, and after how many questions it counts as gone. The system's own default is hours.
KEEPALIVE_IDLE_S = 30
KEEPALIVE_INTERVAL_S = 10
KEEPALIVE_COUNT = 3

# What sendfile fails with on account of the file; all else is the socket's.
_FILE_ERRORS = frozenset({errno.EIO, errno.EINVAL, errno.ENXIO})


class Socket(Protocol):
    """A connected stream socket, non-blocking; `socket.socket` is one."""

    def recv_into(self, buffer: Any, /) -> int:
        """Receive what is there; 0: the peer has closed. BlockingIOError: nothing now."""

    def recvmsg_into(self, buffers: Iterable[Any], /) -> tuple[int, Any, int, Any]:
        """As `recv_into`, over several buffers; the count comes first."""

    def send(self, data: Buffer, /) -> int:
        """Send as much as fits now; return how much. BlockingIOError: nothing fits now."""

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        """As `send`, over several buffers."""

    def close(self) -> None: ...


class FileSender(Protocol):
    """Sends what lies in files through one socket, unread (see `Network.file_sender`)."""

    def send_before_file(self, data: Buffer, /) -> int:
        """As `Socket.send`, of bytes that part of a file follows at once: one packet may do."""

    def send_file(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        """Send from an open file as much as fits now; return how much.

        Raises:
            BlockingIOError: nothing fits now.
            StoredBytesGone: the file does not have so many bytes, or the disk does not give them.
        """


class ListeningSocket(Protocol):
    """A bound, listening socket, non-blocking; `socket.socket` is one."""

    def accept(self) -> tuple[Any, Any]:
        """Return the next connection and its peer's (host, port). BlockingIOError: none now."""

    def getsockname(self) -> Any:
        """Return (host, port, ...) as bound."""

    def close(self) -> None: ...


class Network(Protocol):
    """Where sockets come from, and how to wait for them."""

    def bind(
        self, host: str, port: int, *, backlog: int = ACCEPT_BACKLOG, ipv6_only: bool = False
    ) -> Any:
        """Open a `ListeningSocket`.

        Args:
            host: empty: every address of the machine, of IPv4 and IPv6.
            port: 0: any free one.
            backlog: how many connections may wait to be accepted.
            ipv6_only: leave the IPv4 addresses of this port to another listener.

        Raises:
            OSError: the address cannot be resolved or is taken.
        """

    async def connect(self, host: str, port: int) -> Any:
        """Open a `Socket` to a listener; cancellable.

        Raises:
            OSError: refused, unreachable, or the name cannot be resolved.
        """

    def tune(self, sock: Any, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        """Set up an accepted socket: non-blocking, no delay, buffer sizes (0 or less: default)."""

    def file_sender(self, sock: Any) -> FileSender | None:
        """How to send from files through a socket; None: they have to be read for it."""

    async def wait_readable(self, sock: Any) -> None: ...

    async def wait_writable(self, sock: Any) -> None: ...

    def notify_closing(self, sock: Any) -> None:
        """Raise trio.ClosedResourceError in the tasks that wait for this socket."""


class SystemFileSender:
    """sendfile(2) of a plain socket."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send_before_file(self, data: Buffer, /) -> int:
        return self._sock.send(data, socket.MSG_MORE)

    def send_file(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        try:
            sent = os.sendfile(self._sock.fileno(), descriptor, position, size_bytes)
        except OSError as error:
            if error.errno in _FILE_ERRORS:
                raise StoredBytesGone(f"cannot send from the file: {error}") from error
            raise
        if not sent:
            raise StoredBytesGone("the file is shorter than it was")
        return sent


class SystemNetwork:
    """The operating system's TCP."""

    def bind(
        self, host: str, port: int, *, backlog: int = ACCEPT_BACKLOG, ipv6_only: bool = False
    ) -> socket.socket:
        if host:
            return self._listen(host, port, backlog, ipv6_only)
        try:
            return self._listen(_ANY_IPV6, port, backlog, ipv6_only)
        except OSError as error:
            if error.errno not in _WITHOUT_IPV6:
                raise
            return self._listen(_ANY_IPV4, port, backlog, ipv6_only)

    def _listen(self, host: str, port: int, backlog: int, ipv6_only: bool) -> socket.socket:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # An IPv4 address first: clients that are given "localhost" try 127.0.0.1 everywhere.
        family, kind, protocol, _, address = min(infos, key=lambda info: info[0] != socket.AF_INET)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # Whatever the system's default is: "::" stands for the IPv4 addresses as well.
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, ipv6_only)
            sock.setblocking(False)
            sock.bind(address)
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        return sock

    async def connect(self, host: str, port: int) -> socket.socket:
        # Several addresses are tried side by side (RFC 8305), as trio does.
        stream = await trio.open_tcp_stream(host, port)
        # Taken over from the stream, which would close it: calls go to the bare socket.
        sock = socket.socket(fileno=stream.socket.detach())
        _set_up(sock)
        return sock

    def tune(self, sock: socket.socket, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        _set_up(sock)
        if send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)

    def file_sender(self, sock: socket.socket) -> FileSender | None:
        return SystemFileSender(sock) if sys.platform == "linux" else None

    # As they are, without a coroutine around them: connections wait for each request.
    wait_readable = staticmethod(trio.lowlevel.wait_readable)
    wait_writable = staticmethod(trio.lowlevel.wait_writable)

    def notify_closing(self, sock: socket.socket) -> None:
        trio.lowlevel.notify_closing(sock)


def _set_up(sock: socket.socket) -> None:
    """Let a connection neither block, nor delay what is sent, nor outlive its peer's machine.

    A machine that loses its power tells nobody. Whoever waits for its answer, as a member does who
    joins its group, would wait for as long as the request may take.
    """
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # not everywhere
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)


def peer_host(address: str) -> str:
    """Give a peer's address as its own machine writes it.

    A socket that takes both families shows an IPv4 peer as ::ffff:a.b.c.d.
    """
    plain = address.removeprefix(_MAPPED_IPV4)
    return plain if "." in plain else address
