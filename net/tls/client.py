"""The TLS of connections that this side opens: the step of a `SecuredNetwork`."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import trio

from kraftrio.net.security_errors import TlsHandshakeFailed
from kraftrio.net.tls.socket import TlsBuffer, TlsSocket
from kraftrio.net.transport import Network, Socket


class TlsConnector:
    """Does the client's side of handshakes; used in one thread.

    Args:
        context: gives the context in force, which may be another one each time.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self._context = context
        self._scratch = TlsBuffer()

    async def secure(self, network: Network, sock: Socket, host: str) -> TlsSocket:
        """See `TlsClient.secure`."""
        try:
            tls = TlsSocket(sock, self._context(), self._scratch, host)
        except ValueError as error:  # also of a name that cannot be one of a host
            sock.close()
            raise TlsHandshakeFailed(f"{host!r} is not a name that a certificate has") from error
        try:
            await tls.shake_hands(network)
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            sock.close()
            raise
        return tls
