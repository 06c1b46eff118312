"""An encrypted socket: TLS over any `Socket`, itself one.

Owns: `TlsSocket`, and its handshake. Python's `ssl` works on two buffers in memory here: what comes
is received with large calls, whatever the size of TLS records, and several records go out with one.
That moves twice as much as its own sockets do, which receive record by record, and it needs no
descriptor, so that a network in memory carries TLS as well. Rules
1. As every `Socket`, it does what can be done now, or raises BlockingIOError; waiting is for the
   socket below.
2. Bytes count as sent when the socket below has taken all that they were encrypted to; the sender
   is to go on with the same bytes, as with any socket. At most `_ENCRYPTED_BYTES` are encrypted
   ahead of it.
3. A refusal by the peer after this side's handshake was done (TLS 1.3: it judges a client's
   certificate last) is a `TlsHandshakeFailed`, too, until the first bytes have come.

Called by: `client`, for connections that this side opens, and the broker's admission.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import trio

from kraftrio.net.security_errors import TlsHandshakeFailed
from kraftrio.net.transport import Network, Socket
from kraftrio.wire.primitives import Buffer

_RECEIVED_BYTES: Final = 256 * 1024  # with one call
_ENCRYPTED_BYTES: Final = 64 * 1024
_FAREWELL_S: Final = 1.0
_ALERT: Final = "_ALERT_"  # in the reasons that come from the peer


class TlsBuffer:
    """What is received and not decrypted yet, for all sockets of one thread: none keeps it beyond
    a call.
    """

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_RECEIVED_BYTES))


class TlsSocket:
    """See the module; usable after `shake_hands`.

    Args:
        host: whom a client wants to reach; None: this is the side that accepted.

    Attributes:
        below: the socket that carries it, and that is waited for.
    """

    __slots__ = (
        "_ahead_bytes",
        "_incoming",
        "_is_confirmed",
        "_outgoing",
        "_scratch",
        "_tls",
        "_unsent",
        "below",
    )

    def __init__(
        self, below: Socket, context: ssl.SSLContext, scratch: TlsBuffer, host: str | None = None
    ) -> None:
        self.below = below
        self._scratch = scratch.view
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=host is None, server_hostname=host
        )
        self._unsent = memoryview(b"")  # encrypted
        self._ahead_bytes = 0  # encrypted, and not counted as sent
        self._is_confirmed = host is None  # the peer has accepted this side

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate as DER; None: it showed none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """The version of TLS, as in `ssl.enabled.protocols`."""
        return self._tls.version() or "none"

    # -- handshake ------------------------------------------------------------------------------

    async def shake_hands(self, network: Network, pace: trio.Semaphore | None = None) -> None:
        """Agree with the peer.

        Args:
            network: waits for the socket below.
            pace: so many may compute in one turn of the event loop.

        Raises:
            TlsHandshakeFailed: one side does not accept the other, or the peer speaks no TLS.
            OSError: the connection was lost.
        """
        turn: AbstractAsyncContextManager[object] = pace or contextlib.nullcontext()
        while True:
            try:
                async with turn:
                    is_done = self._compute()
            except ssl.SSLError as error:
                await self._send_alert(network, error)
                raise TlsHandshakeFailed(describe(error)) from error
            await self._flush_all(network)
            if is_done:
                return
            await self._receive_more(network)

    def _compute(self) -> bool:
        """Take the handshake as far as it goes with what has come; True: to its end."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def _receive_more(self, network: Network) -> None:
        while not (count := self._receive()):
            if count == 0:
                raise ConnectionResetError("the peer closed the connection within the handshake")
            await network.wait_readable(self.below)
        await trio.lowlevel.checkpoint()

    async def _flush_all(self, network: Network) -> None:
        while not self._flush():
            await network.wait_writable(self.below)

    async def _send_alert(self, network: Network, error: ssl.SSLError) -> None:
        """Let the peer know why; a peer that speaks no TLS would take an alert for an answer.

        Closing with bytes unread would take the alert from it again, so its own end is waited for;
        one that has refused this side knows, and waits itself.
        """
        if is_no_tls(error) or _ALERT in (error.reason or ""):
            return
        with trio.move_on_after(_FAREWELL_S):
            try:
                await self._flush_all(network)
                while self._receive() != 0:
                    self._incoming.read()
                    await network.wait_readable(self.below)
            except OSError:
                return

    # -- receiving ------------------------------------------------------------------------------

    def recv_into(self, buffer: Any, /) -> int:
        return self.recvmsg_into((buffer,))[0]

    def recvmsg_into(self, buffers: Iterable[Any], /) -> tuple[int, Any, int, Any]:
        total = 0
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                count = self._read(view, may_receive=not total)
                if count is None:
                    if total:
                        return total, (), 0, None
                    raise BlockingIOError
                if not count:
                    return total, (), 0, None
                total += count
                view = view[count:]
        return total, (), 0, None

    def _read(self, view: memoryview, *, may_receive: bool) -> int | None:
        """Decrypt into a buffer; None: nothing is there now, 0: nothing comes any more."""
        while True:
            if self._incoming.pending or self._tls.pending():
                try:
                    count: int = self._tls.read(len(view), view)  # type: ignore[assignment]
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return 0
                except ssl.SSLError as error:
                    self._flush()
                    raise self._failure(error) from error
                else:
                    self._is_confirmed = True
                    return count
                self._flush()  # TLS may have to answer
            if not may_receive:
                return None
            received = self._receive()
            if not received:
                return received

    def _receive(self) -> int | None:
        """Receive what is there; None: nothing now, 0: the peer has closed."""
        try:
            count = self.below.recv_into(self._scratch)
        except BlockingIOError:
            return None
        self._incoming.write(self._scratch[:count])
        return count

    def _failure(self, error: ssl.SSLError) -> OSError:
        if self._is_confirmed:
            return ConnectionResetError(f"TLS failed: {describe(error)}")
        return TlsHandshakeFailed(describe(error))

    # -- sending --------------------------------------------------------------------------------

    def send(self, data: Buffer, /) -> int:
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        if not self._flush():
            raise BlockingIOError
        sent = 0
        for buffer in buffers:
            view = memoryview(buffer)
            start = min(self._ahead_bytes, len(view))
            self._ahead_bytes -= start
            sent += start
            while start < len(view):
                room = _ENCRYPTED_BYTES - self._outgoing.pending
                if room <= 0:
                    if not self._flush():
                        return self._hold_back(sent)
                    room = _ENCRYPTED_BYTES
                try:
                    count = self._tls.write(view[start : start + room])
                except ssl.SSLError as error:
                    raise ConnectionResetError(f"TLS failed: {describe(error)}") from error
                start += count
                sent += count
        return sent if self._flush() else self._hold_back(sent)

    def _hold_back(self, sent: int) -> int:
        """Leave the last byte uncounted, so that the sender comes again while something waits."""
        if not sent:
            raise BlockingIOError
        self._ahead_bytes = 1
        if sent == 1:
            raise BlockingIOError
        return sent - 1

    def _flush(self) -> bool:
        """Send what is encrypted; False: some of it is left."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                count = self.below.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[count:]

    def close(self) -> None:
        """Say that nothing follows, as far as that goes out now, and close."""
        # It waits for the peer's own farewell: nothing else does.
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._flush()
        self.below.close()


# -- what went wrong -----------------------------------------------------------------------------

_NO_TLS: Final = frozenset(
    {
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "PACKET_LENGTH_TOO_LONG",
        "BAD_RECORD_TYPE",
    }
)


def is_no_tls(error: ssl.SSLError) -> bool:
    """Whether the peer's first bytes were none of TLS."""
    return error.reason in _NO_TLS


def describe(error: ssl.SSLError) -> str:
    """Say in words what TLS failed with."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the peer is not accepted: {error.verify_message}"
    if is_no_tls(error):
        return "the peer does not speak TLS"
    reason = error.reason or str(error)
    _, is_alert, alert = reason.partition(_ALERT)
    words = (alert or reason).replace("_", " ").lower()
    return f"the peer refused: {words}" if is_alert else words
