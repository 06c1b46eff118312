"""Lets clients in that log in by SASL: what a connection may say before anybody serves it.

Owns: `SaslAdmission`, an `Admission`. Rules (Kafka's SaslServerAuthenticator)
1. Before the login there are three requests: ApiVersions, then one SaslHandshake, then
   SaslAuthenticate until the exchange is done. After SaslHandshake version 0 tokens come bare, with
   their length before them, and are answered so (KIP-43); nothing else changes.
2. Not a byte beyond the login is read: what follows is the served connection's.
3. A refused client waits `connection.failed.authentication.delay.ms` for its answer, then the
   connection ends. One that breaks these rules is not answered.
4. Answers to messages that came together go out together, like those of a served connection.
5. Bounded: by `sasl.server.max.receive.size`, by the time of a whole login, and by how many large
   messages are held at a time; memory is taken as bytes come, not as they are announced.

Called by: `ServerListener`, for SASL_PLAINTEXT, and after TLS for SASL_SSL. The decisions are
`security/sasl/authenticator`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.security.sasl.authenticator import AuthenticationRefused, Authenticator
from kraftrio.broker.security.sasl.settings import ListenerSasl
from kraftrio.broker.server.admission.admission import AdmissionRefused
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.net.transport import Network, Socket
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kraftrio.wire.protocol.api import APIS, ApiKey, response_header_version
from kraftrio.wire.protocol.framing import RequestStart, no_frame, parse_request_start
from kraftrio.wire.stored_bytes import StoredBytes

LOGIN_TIMEOUT_S: Final = 30.0

_SIZE = Struct(">i")
_CHUNK_BYTES = 8 * 1024
_SMALL_BYTES = 16 * 1024
_MOST_LARGE_MESSAGES = 16
_MOST_VERSION_REQUESTS = 4
_MOST_VERSIONS_BYTES = 4096

# SaslHandshake has no flexible version; nothing else is served here.
_FLEXIBLE_FROM: Final = {
    int(key): APIS[key].flexible_from for key in (ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
}


class SaslAdmission:
    """See the module.

    Args:
        dispatcher: answers ApiVersions, as it does later.
    """

    def __init__(
        self, network: Network, sasl: ListenerSasl, dispatcher: Dispatcher, clock: Clock
    ) -> None:
        self._network = network
        self._sasl = sasl
        self._dispatcher = dispatcher
        self._clock = clock
        self._large_messages = trio.CapacityLimiter(_MOST_LARGE_MESSAGES)

    async def admit(self, sock: Socket, client: ClientInfo) -> Socket:
        """Serve the login (see `Admission.admit`)."""
        authenticator = Authenticator(self._sasl, self._clock.wall_ms, self._clock.monotonic_ms)
        channel = _MessageChannel(
            self._network, sock, self._sasl.max_receive_bytes, self._large_messages
        )
        refusal = f"it did not log in within {LOGIN_TIMEOUT_S:g} s"
        try:
            with trio.move_on_after(LOGIN_TIMEOUT_S):
                await self._log_in(channel, authenticator, client)
                client.principal = authenticator.principal or client.principal
                client.login = authenticator
                return sock
        except AuthenticationRefused as error:
            refusal = error.described
            await self._answer_refused(channel, error.answer)
        except RemoteProtocolError as error:
            refusal = str(error)
        finally:
            if client.login is None:
                sock.close()
        raise AdmissionRefused(refusal, authenticator.mechanism)

    async def _log_in(
        self, channel: _MessageChannel, authenticator: Authenticator, client: ClientInfo
    ) -> None:
        try:
            version = await self._shake_hands(channel, authenticator, client)
            while authenticator.is_exchanging:
                if version == 0:
                    await channel.answer(
                        lambda message: _sized(authenticator.token(bytes(message)))
                    )
                else:
                    await channel.answer(lambda message: _authenticate(authenticator, message))
        finally:
            await channel.flush()

    async def _shake_hands(
        self, channel: _MessageChannel, authenticator: Authenticator, client: ClientInfo
    ) -> int:
        """Serve requests up to SaslHandshake; return the version of this."""
        version: int | None = None

        def answer(message: memoryview) -> bytes:
            nonlocal version
            start = _start(message)
            if start.api_key == ApiKey.API_VERSIONS:
                return self._versions(message, start, client)
            request = _decoded(message, start, ApiKey.SASL_HANDSHAKE)
            assert isinstance(request, SaslHandshakeRequest), "it was decoded as this"
            response = _answered(lambda: authenticator.handshake(request.mechanism), start)
            version = start.api_version
            return response

        for _ in range(_MOST_VERSION_REQUESTS + 1):
            await channel.answer(answer)
            if version is not None:
                return version
        raise RemoteProtocolError("it asks for versions more than once")

    def _versions(self, message: memoryview, start: RequestStart, client: ClientInfo) -> bytes:
        if len(message) > _MOST_VERSIONS_BYTES:  # the dispatcher would answer it in time
            raise RemoteProtocolError(f"its ApiVersions request has {len(message)} bytes")
        answer = self._dispatcher.handle(message, start, client)
        assert answer is not None and not isinstance(answer, Deferred), "it is answered at once"
        pieces = answer()
        return b"".join(piece for piece in pieces if not isinstance(piece, StoredBytes))

    async def _answer_refused(self, channel: _MessageChannel, answer: Any) -> None:
        """Let a refused client wait, then answer it; bare tokens have no form for that."""
        await trio.sleep(self._sasl.failure_delay_ms / 1000)
        if isinstance(answer, bytes):
            with trio.move_on_after(LOGIN_TIMEOUT_S), contextlib.suppress(OSError):
                channel.send(answer)
                await channel.flush()


class _MessageChannel:
    """A socket by messages with their length before them, with nothing read ahead."""

    def __init__(
        self,
        network: Network,
        sock: Socket,
        max_message_bytes: int,
        large_messages: trio.CapacityLimiter,
    ) -> None:
        self._network = network
        self._sock = sock
        self._max_message_bytes = max_message_bytes
        self._large_messages = large_messages
        self._unsent = b""

    async def answer(self, answer: Callable[[memoryview], bytes]) -> None:
        """Receive a message, and send what `answer` makes of it, once there are none left.

        Raises:
            RemoteProtocolError: it is too large.
            OSError: the connection ends.
        """
        size: int = _SIZE.unpack(await self._receive(_SIZE.size))[0]
        if not 0 <= size <= self._max_message_bytes:
            raise no_frame(size, self._max_message_bytes)
        if size <= _SMALL_BYTES:
            self.send(answer(memoryview(await self._receive(size))))
        else:
            async with self._large_messages:
                self.send(answer(memoryview(await self._receive(size))))

    def send(self, message: bytes) -> None:
        """Send a message, with its length before it, by the next `flush`."""
        self._unsent += message

    async def flush(self) -> None:
        """Send what was not sent yet."""
        while self._unsent:
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except BlockingIOError:
                await self._network.wait_writable(self._sock)

    async def _receive(self, size: int) -> bytearray:
        data = bytearray()
        scratch = memoryview(bytearray(min(size, _CHUNK_BYTES)))
        while len(data) < size:
            try:
                count = self._sock.recv_into(scratch[: size - len(data)])
            except BlockingIOError:
                await self.flush()
                await self._network.wait_readable(self._sock)
                continue
            if not count:
                raise ConnectionResetError("it closed the connection before it had logged in")
            data += scratch[:count]
        return data


def _start(message: memoryview) -> RequestStart:
    return parse_request_start(message, _FLEXIBLE_FROM.get)


def _authenticate(authenticator: Authenticator, message: memoryview) -> bytes:
    start = _start(message)
    request = _decoded(message, start, ApiKey.SASL_AUTHENTICATE)
    assert isinstance(request, SaslAuthenticateRequest), "it was decoded as this"
    return _answered(lambda: authenticator.authenticate(bytes(request.auth_bytes)), start)


def _answered(answer: Callable[[], Any], start: RequestStart) -> bytes:
    """Return a response with its header, also where it is a refusal's."""
    try:
        return _encoded(answer(), start)
    except AuthenticationRefused as error:
        error.answer = error.answer and _encoded(error.answer, start)
        raise


def _decoded(message: memoryview, start: RequestStart, wanted: ApiKey) -> Any:
    api = APIS[wanted]
    if start.api_key != wanted:
        raise RemoteProtocolError(
            f"it sends a request of api key {start.api_key} where {wanted.name} has to come"
        )
    if not api.min_version <= start.api_version <= api.max_version:
        raise RemoteProtocolError(f"{wanted.name} version {start.api_version} is not served")
    request, _ = decode(api.request, start.api_version, message, start.body_position)
    return request


def _encoded(response: Any, start: RequestStart) -> bytes:
    """Return a response with its header and its length."""
    flexible = response_header_version(ApiKey(start.api_key), start.api_version) >= 1
    header = _SIZE.pack(start.correlation_id) + (b"\0" if flexible else b"")
    return _sized(header + encode(response, start.api_version))


def _sized(message: bytes) -> bytes:
    return _SIZE.pack(len(message)) + message
