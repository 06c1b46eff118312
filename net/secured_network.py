"""A network whose connections are encrypted and logged in before anybody sends a request.

Owns: `SecuredNetwork`, and the ports of its two steps, `TlsClient` and `Login`, with what keeps a
login alive. Rules:
1. `connect` returns when TCP, then TLS, then the login are done: what dials knows nothing of
   them, and limits their time together with that of connecting.
2. A step owns the socket that it is given: there is one to go on with, or it has closed it.
3. Listening sockets are the inner network's: a server secures what it accepts by its admission.
4. A socket that is carried by another has it as `below`; the lowest one is waited for.

Called by: the wiring of brokers (a network for each listener that they dial) and of clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from kraftrio.net.transport import ACCEPT_BACKLOG, FileSender, Network, Socket

Call: TypeAlias = Callable[[Any, int], Awaitable[Any]]
"""Sends a request in a version, and returns the response."""


class TlsClient(Protocol):
    """Makes an encrypted socket of a connected one."""

    async def secure(self, network: Network, sock: Socket, host: str) -> Socket:
        """Do the handshake as the client.

        Args:
            network: waits for the socket.
            host: whom the peer's certificate has to name, unless that is not checked.

        Raises:
            TlsHandshakeFailed: one side does not accept the other; the socket is closed.
            OSError: the connection was lost; the socket is closed.
        """


class LoginSession(Protocol):
    """A login that ends some time (KIP-368).

    Attributes:
        renew_at: when to log in again, by Trio's clock.
    """

    renew_at: float

    async def renew(self, call: Call) -> LoginSession | None:
        """Log in again over the connection that has been made, which sends nothing else meanwhile.

        Args:
            call: sends a request in a version, and returns the response.

        Returns:
            The session that there is now; None: it has no end.

        Raises:
            LoginRefused: the peer does not accept it any more.
        """


class Login(Protocol):
    """Proves to the peer who this side is."""

    async def log_in(self, network: Network, sock: Socket, host: str) -> LoginSession | None:
        """Log in over a connected socket.

        Returns:
            What keeps the login alive; None: it has no end.

        Raises:
            LoginRefused: the peer does not accept it; the socket is closed.
            OSError: the connection was lost; the socket is closed.
        """


class SecuredNetwork:
    """See the module.

    Args:
        inner: makes the connections, and waits for sockets.
        tls: None: bytes go out as they are.
        login: None: without a login.
    """

    def __init__(
        self, inner: Network, tls: TlsClient | None = None, login: Login | None = None
    ) -> None:
        self._inner = inner
        self._tls = tls
        self._login = login

    async def connect(self, host: str, port: int) -> Any:
        return (await self.open(host, port))[0]

    async def open(self, host: str, port: int) -> tuple[Any, LoginSession | None]:
        """Connect, and return the socket with what keeps its login alive, if that has an end."""
        sock = await self._inner.connect(host, port)
        if self._tls is not None:
            sock = await self._tls.secure(self._inner, sock, host)
        if self._login is None:
            return sock, None
        return sock, await self._login.log_in(self, sock, host)

    def bind(
        self, host: str, port: int, *, backlog: int = ACCEPT_BACKLOG, ipv6_only: bool = False
    ) -> Any:
        return self._inner.bind(host, port, backlog=backlog, ipv6_only=ipv6_only)

    def tune(self, sock: Any, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        self._inner.tune(sock, send_buffer_bytes, receive_buffer_bytes)

    def file_sender(self, sock: Any) -> FileSender | None:
        return self._inner.file_sender(sock) if _lowest(sock) is sock else None

    async def wait_readable(self, sock: Any) -> None:
        await self._inner.wait_readable(_lowest(sock))

    async def wait_writable(self, sock: Any) -> None:
        await self._inner.wait_writable(_lowest(sock))

    def notify_closing(self, sock: Any) -> None:
        self._inner.notify_closing(_lowest(sock))


def _lowest(sock: Any) -> Any:
    while (below := getattr(sock, "below", None)) is not None:
        sock = below
    return sock
