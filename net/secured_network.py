"""A network whose connections are encrypted and logged in before anybody sends a request.

Owns: `SecuredNetwork`, and the ports of its two steps, `TlsClient` and `Login`. Rules:
1. `connect` returns when TCP, then TLS, then the login are done: whoever dials knows nothing of
   them, and limits their time together with that of connecting.
2. A step owns the socket that it is given: it returns one to go on with, or has closed it.
3. Listening sockets are the inner network's: a server secures what it accepts by its admission.

Called by: the wiring of brokers (a network for each listener that they dial) and of clients.
"""

from __future__ import annotations

from typing import Any, Protocol

from kraftrio.net.transport import ACCEPT_BACKLOG, FileSender, Network, Socket


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


class Login(Protocol):
    """Tells the peer who this side is."""

    async def log_in(self, network: Network, sock: Socket, host: str) -> Socket:
        """Log in over a connected socket.

        Raises:
            LoginRefused: the peer does not accept it; the socket is closed.
            OSError: the connection was lost; the socket is closed.
        """


class SecuredNetwork:
    """See the module.

    Args:
        inner: makes the connections, and waits for sockets.
        tls: None: bytes go out as they are.
        login: None: nobody logs in.
    """

    def __init__(
        self, inner: Network, tls: TlsClient | None = None, login: Login | None = None
    ) -> None:
        self._inner = inner
        self._tls = tls
        self._login = login

    async def connect(self, host: str, port: int) -> Any:
        sock = await self._inner.connect(host, port)
        if self._tls is not None:
            sock = await self._tls.secure(self._inner, sock, host)
        if self._login is not None:
            sock = await self._login.log_in(self._inner, sock, host)
        return sock

    def bind(
        self, host: str, port: int, *, backlog: int = ACCEPT_BACKLOG, ipv6_only: bool = False
    ) -> Any:
        return self._inner.bind(host, port, backlog=backlog, ipv6_only=ipv6_only)

    def tune(self, sock: Any, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        self._inner.tune(sock, send_buffer_bytes, receive_buffer_bytes)

    def file_sender(self, sock: Any) -> FileSender | None:
        return self._inner.file_sender(sock)

    async def wait_readable(self, sock: Any) -> None:
        await self._inner.wait_readable(sock)

    async def wait_writable(self, sock: Any) -> None:
        await self._inner.wait_writable(sock)

    def notify_closing(self, sock: Any) -> None:
        self._inner.notify_closing(sock)
