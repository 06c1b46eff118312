"""Logs in over a new socket, and again before the session ends (KIP-43, KIP-152, KIP-368).

Owns: `SaslLogin`, what `SecuredNetwork` logs in with. The exchange: ApiVersions and SaslHandshake
with one send, then SaslAuthenticate in a version that the server has, until the mechanism is done.
Where the server says how long the session lasts, this side logs in again when most of it is over:
the `SaslLoginSession` does so over the connection that has been made.

Refusals are `LoginRefused`, in the server's words; so is a server that cannot prove itself.

Made by: the wiring of brokers and of clients.
"""

from __future__ import annotations

import random
from struct import Struct
from typing import Any, Final

import trio

from kraftrio.base.threads import RunInThread
from kraftrio.net.sasl.client_exchanges import ClientExchange
from kraftrio.net.sasl.credentials import Credentials
from kraftrio.net.secured_network import Call
from kraftrio.net.security_errors import LoginRefused
from kraftrio.net.transport import Network, Socket
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from kraftrio.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kraftrio.wire.protocol.api import APIS, ApiKey, request_header_version, response_header_version
from kraftrio.wire.protocol.framing import no_frame

_HANDSHAKE_VERSION: Final = 1
_MAX_AUTHENTICATE_VERSION: Final = APIS[ApiKey.SASL_AUTHENTICATE].max_version
_MAX_ANSWER_BYTES = 1 << 20
_MOST_STEPS = 10
# When to log in again, as a part of the session's time: not all connections at once.
_EARLIEST, _LATEST = 0.85, 0.95

_SIZE = Struct(">i")
_HEADER = Struct(">hhih")


class SaslLogin:
    """See the module; a `Login`."""

    def __init__(
        self,
        credentials: Credentials,
        run_in_thread: RunInThread,
        rng: random.Random,
        client_id: str,
    ) -> None:
        self._credentials = credentials
        self._run_in_thread = run_in_thread
        self._rng = rng
        self._client_id = client_id

    async def log_in(self, network: Network, sock: Socket, host: str) -> SaslLoginSession | None:
        """Log in (see `Login.log_in`)."""
        try:
            channel = _Channel(network, sock, self._client_id)
            exchange = await self._credentials.new_exchange(self._run_in_thread)
            version = await self._shake_hands(channel)
            return await self._authenticate(exchange, channel.call, version)
        except BaseException:
            sock.close()
            raise

    async def log_in_again(self, call: Call, version: int) -> SaslLoginSession | None:
        """Log in over a connection that is in use.

        Raises:
            LoginRefused: the peer does not accept it.
            ConnectionLost: of `call`.
        """
        exchange = await self._credentials.new_exchange(self._run_in_thread)
        request = SaslHandshakeRequest(mechanism=self._credentials.mechanism)
        self._check_handshake(await call(request, _HANDSHAKE_VERSION))
        return await self._authenticate(exchange, call, version)

    async def _shake_hands(self, channel: _Channel) -> int:
        """Agree on the mechanism; return the version of SaslAuthenticate to use."""
        handshake = SaslHandshakeRequest(mechanism=self._credentials.mechanism)
        await channel.send((ApiVersionsRequest(), 0), (handshake, _HANDSHAKE_VERSION))
        versions: ApiVersionsResponse = await channel.receive(ApiKey.API_VERSIONS, 0)
        self._check_handshake(await channel.receive(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION))
        for api in versions.api_keys:
            if api.api_key == ApiKey.SASL_AUTHENTICATE:
                return min(api.max_version, _MAX_AUTHENTICATE_VERSION)
        raise LoginRefused("the server does not serve SaslAuthenticate")

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise LoginRefused(
                f"the server does not offer {self._credentials.mechanism}: it offers"
                f" {', '.join(response.mechanisms) or 'no mechanism'}"
            )
        if response.error_code != ErrorCode.NONE:
            raise LoginRefused(
                f"the server refuses SASL with {response.error_code.name}: is this a listener with"
                " SASL?"
            )

    async def _authenticate(
        self, exchange: ClientExchange, call: Call, version: int
    ) -> SaslLoginSession | None:
        message: bytes | None = exchange.begin()
        lifetime_ms = 0
        for _ in range(_MOST_STEPS):
            request = SaslAuthenticateRequest(auth_bytes=message or b"")
            response: SaslAuthenticateResponse = await call(request, version)
            if response.error_code != ErrorCode.NONE:
                raise LoginRefused(response.error_message or response.error_code.text)
            lifetime_ms = response.session_lifetime_ms
            message = await self._respond(exchange, bytes(response.auth_bytes))
            if exchange.is_done:
                break
        else:
            raise LoginRefused("the server does not end the login")
        return self._session(lifetime_ms, version) if lifetime_ms > 0 else None

    async def _respond(self, exchange: ClientExchange, challenge: bytes) -> bytes | None:
        try:
            if not exchange.takes_long(challenge):
                return exchange.respond(challenge)
            answers: list[bytes | None] = []
            await self._run_in_thread(lambda: answers.append(exchange.respond(challenge)))
            return answers[0]
        except RemoteProtocolError as error:
            raise LoginRefused(f"the login was broken off: {error}") from error

    def _session(self, lifetime_ms: int, version: int) -> SaslLoginSession:
        part = self._rng.uniform(_EARLIEST, _LATEST)
        return SaslLoginSession(self, trio.current_time() + lifetime_ms / 1000 * part, version)


class SaslLoginSession:
    """A login that ends some time.

    Attributes:
        renew_at: when to log in again, by Trio's clock.
    """

    def __init__(self, login: SaslLogin, renew_at: float, version: int) -> None:
        self.renew_at = renew_at
        self._login = login
        self._version = version

    async def renew(self, call: Call) -> SaslLoginSession | None:
        """Log in again (see `SaslLogin.log_in_again`)."""
        return await self._login.log_in_again(call, self._version)


class _Channel:
    """Requests over a socket, one after the other, with nothing read ahead."""

    def __init__(self, network: Network, sock: Socket, client_id: str) -> None:
        self._network = network
        self._sock = sock
        self._client_id = client_id.encode()
        self._sent = self._received = 0  # correlation ids

    async def call(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""
        await self.send((request, version))
        return await self.receive(ApiKey.SASL_AUTHENTICATE, version)

    async def send(self, *requests: tuple[Any, int]) -> None:
        """Send requests with as few packets as may be."""
        data = memoryview(b"".join(self._framed(*one) for one in requests))
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                await self._network.wait_writable(self._sock)

    def _framed(self, request: Any, version: int) -> bytes:
        key = _KEYS[type(request)]
        head = _HEADER.pack(key, version, self._sent, len(self._client_id)) + self._client_id
        self._sent += 1
        flexible = request_header_version(key, version) >= 2
        data = head + (b"\0" if flexible else b"") + encode(request, version)
        return _SIZE.pack(len(data)) + data

    async def receive(self, key: ApiKey, version: int) -> Any:
        """Receive the next response."""
        size: int = _SIZE.unpack(await self._receive(_SIZE.size))[0]
        if not _SIZE.size <= size <= _MAX_ANSWER_BYTES:
            raise ConnectionResetError(str(no_frame(size, _MAX_ANSWER_BYTES)))
        answer = memoryview(await self._receive(size))
        if _SIZE.unpack_from(answer)[0] != self._received:
            raise ConnectionResetError("the peer answers another request than it was asked")
        self._received += 1
        position = _SIZE.size + (response_header_version(key, version) >= 1)
        try:
            return decode(APIS[key].response, version, answer, position)[0]
        except RemoteProtocolError as error:
            raise ConnectionResetError(f"the peer broke the protocol: {error}") from error

    async def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        view, position = memoryview(data), 0
        while position < size:
            try:
                count = self._sock.recv_into(view[position:])
            except BlockingIOError:
                await self._network.wait_readable(self._sock)
                continue
            if not count:
                raise ConnectionResetError("the peer closed the connection during the login")
            position += count
        return data


_KEYS: Final = {
    ApiVersionsRequest: ApiKey.API_VERSIONS,
    SaslHandshakeRequest: ApiKey.SASL_HANDSHAKE,
    SaslAuthenticateRequest: ApiKey.SASL_AUTHENTICATE,
}
