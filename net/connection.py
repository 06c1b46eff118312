"""One connection to a broker or controller: pipelined requests, answers in their order.

Owns: the socket, what waits to be sent, and what waits for an answer. Rules:
1. `send` encodes at once and queues; nothing waits. A writer task sends whatever was queued
   meanwhile with one call. So a request may be changed or reused after `send`; large records in it
   may not, until the answer is there: they are sent from where they lie.
2. Answers come in the order of the requests, with the right correlation ids; a peer that breaks
   the protocol in any way loses the connection.
3. A caller that stops waiting (a cancelled `call` or `wait`) leaves the connection as it is: the
   answer is dropped when it comes. A request whose time is up closes the connection, since nobody
   knows what the peer still sends, and whether it did what was asked.
4. A connection ends once, for one reason; then every unanswered request fails, in order.
   Answers that have arrived by then count: they are delivered first, unless this side closes.
   Callbacks of replies run synchronously, also within `close`, and must not raise.
5. Bounded: the size of a response, the bytes not sent yet and the requests not answered yet. Above
   the last two `send` refuses with `ConnectionBusy` and the connection is as it was.
6. Where the login has an end (KIP-368) it is renewed before. Requests wait meanwhile: the peer
   takes none between the first step of a login and the last.

Versions are the caller's: nothing is negotiated. Protocol guide, "Network" and "Request Header".

Called by: the shells that talk to other nodes; Trio programs.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import trio

from kraftrio.base.background import open_background, run_aside
from kraftrio.net.secured_network import LoginSession, SecuredNetwork
from kraftrio.net.security_errors import LoginRefused, SecurityError
from kraftrio.net.send_queue import Push, SendQueue
from kraftrio.net.transport import Network
from kraftrio.wire.codec.message import decode, encode_parts, spec_of
from kraftrio.wire.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from kraftrio.wire.protocol.api import (
    APIS,
    Api,
    ApiKey,
    request_header_version,
    response_header_version,
)
from kraftrio.wire.protocol.framing import ClientConnection

DEFAULT_MAX_RESPONSE_BYTES: Final = 128 << 20
DEFAULT_MAX_UNSENT_BYTES: Final = 64 << 20
DEFAULT_MAX_REQUESTS_IN_FLIGHT: Final = 10_000

_SCRATCH_BYTES = 64 << 10
_LOGIN_TIMEOUT_S = 30.0
# A name may have an address of a family that this machine does not have: it says nothing.
_NO_SUCH_ADDRESS_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class ConnectionLost(Exception):
    """The connection is closed, was reset or refused, or the peer broke the protocol.

    Attributes:
        reason: what happened, in words.
        refused: nothing listens there: connecting was refused or reset.
    """

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused


class RequestTimedOut(ConnectionLost):
    """The request was not answered in time; the connection is closed."""


class AuthenticationFailed(ConnectionLost):
    """The peer did not let this side in; trying again changes nothing by itself.

    The counterpart of Java's AuthenticationException; after a login, of its
    SaslAuthenticationException.
    """


class HandshakeFailed(AuthenticationFailed):
    """TLS failed: one side did not accept the other (Java's SslAuthenticationException)."""


class ConnectionBusy(ConnectionLost):
    """Too much waits already; this request was not sent, the connection goes on."""


class _RequestKind(NamedTuple):
    """What a request's class and version say about it."""

    api: Api
    flexible_request: bool  # its header has tagged fields
    flexible_response: bool


class _Queued(NamedTuple):
    """A request that is encoded, and not framed yet."""

    kind: _RequestKind
    api_version: int
    parts: list[Any]
    reply: Reply | None
    when_sent: Callable[[ConnectionLost | None], object] | None


_kinds: dict[tuple[type[Any], int], _RequestKind] = {}


class Reply:
    """The answer to one request, which comes later, or the loss of its connection."""

    __slots__ = ("_api", "_api_version", "_callbacks", "_deadline", "_done", "_lost", "_response")

    def __init__(self, api: Api, api_version: int, deadline: float) -> None:
        self._api = api
        self._api_version = api_version
        self._deadline = deadline
        self._done = False
        self._response: Any = None
        self._lost: ConnectionLost | None = None
        self._callbacks: list[Callable[[Reply], object]] = []

    @property
    def done(self) -> bool:
        """True when `value` may be asked."""
        return self._done

    @property
    def failed(self) -> bool:
        """True when the response will not come."""
        return self._lost is not None

    def value(self) -> Any:
        """Return the response; asking before it is there is our bug.

        Raises:
            ConnectionLost: it will not come.
        """
        assert self._done, "the reply is not there yet"
        lost = self._lost
        if lost is not None:
            raise type(lost)(lost.reason)  # a new one: each raise adds to an exception's traceback
        return self._response

    def then(self, callback: Callable[[Reply], object]) -> None:
        """Run `callback(reply)` when the reply is done; at once if it already is."""
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    async def wait(self) -> Any:
        """Wait for the response.

        Raises:
            ConnectionLost: it will not come.
        """
        if self._done:
            await trio.lowlevel.checkpoint()
        else:
            event = trio.Event()
            self.then(lambda _reply: event.set())
            await event.wait()
        return self.value()

    def _decode(self, frame: memoryview, position: int) -> Any:
        version = self._api_version
        if self._api.key == ApiKey.API_VERSIONS and _refuses_version(frame, position):
            version = 0  # KIP-511: so that a client that asked in too new a version can read it
        response, _ = decode(self._api.response, version, frame, position)
        return response

    def _finish(self, response: Any, lost: ConnectionLost | None) -> None:
        self._done = True
        self._response = response
        self._lost = lost
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


class Connection:
    """One connected socket; made by `open_connection`."""

    def __init__(
        self,
        network: Network,
        sock: Any,
        host: str,
        port: int,
        client_id: str,
        max_response_bytes: int,
        max_unsent_bytes: int,
        max_requests_in_flight: int,
        spare_frames: int,
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self._network = network
        self._sock = sock
        self._max_unsent_bytes = max_unsent_bytes
        self._max_requests_in_flight = max_requests_in_flight
        self._protocol: ClientConnection[Reply] = ClientConnection(
            max_response_bytes, bytearray(_SCRATCH_BYTES), client_id, spare_frames=spare_frames
        )
        self._unsent = SendQueue(sock)
        self._lost: ConnectionLost | None = None
        self._closed = trio.Event()
        self._wake_writer = trio.Event()
        self._send_failure: OSError | None = None  # nothing goes out any more
        self._is_receiving = False  # callbacks of replies may send
        self._queued_bytes = 0  # ever
        # Tasks that wait for the socket to take so many bytes of them, in order.
        self._waiting_to_go: deque[tuple[int, Callable[[ConnectionLost | None], object]]] = deque()
        self._held: list[_Queued] | None = None  # what waits for the end of a login
        self._next_deadline = math.inf  # what the watcher sleeps until
        self._wake_watcher = trio.Event()

    @property
    def is_closed(self) -> bool:
        return self._lost is not None

    @property
    def loss(self) -> str | None:
        """Why the connection has ended; None while it has not."""
        return None if self._lost is None else self._lost.reason

    @property
    def loss_kind(self) -> type[ConnectionLost]:
        """The class of error that the connection's end is raised as, once it has ended."""
        return type(self._lost) if self._lost is not None else ConnectionLost

    @property
    def requests_in_flight(self) -> int:
        """How many requests wait for their answer."""
        return self._protocol.requests_in_flight + len(self._held or ())

    @property
    def unsent_bytes(self) -> int:
        """How much the peer has not taken yet."""
        return self._unsent.size_bytes

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, on either side."""
        await self._closed.wait()

    # -- requests -------------------------------------------------------------------------------

    def send(
        self,
        request: Any,
        api_version: int,
        timeout_s: float = math.inf,
        *,
        at_once: bool = False,
    ) -> Reply:
        """Queue a request.

        Args:
            timeout_s: without an answer by then the connection closes.
            at_once: give it to the socket now, as far as that takes it; worth while for large
                requests, of which the writer task would not send several with one call.

        Raises:
            ConnectionLost: the connection is closed.
            ConnectionBusy: too much waits already.
            LocalProtocolError: the request cannot be encoded in this version.
        """
        deadline = trio.current_time() + timeout_s
        kind = _kind_of(type(request), api_version)
        reply = Reply(kind.api, api_version, deadline)
        self._queue(request, kind, api_version, reply, at_once)
        if deadline < self._next_deadline:
            self._wake_watcher.set()
        return reply

    def send_oneway(
        self,
        request: Any,
        api_version: int,
        when_sent: Callable[[ConnectionLost | None], object] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Queue a request that is not answered: a Produce with acks=0.

        Args:
            when_sent: called with None once the socket has taken all of it, or with the loss of
                the connection before that; no more is ever known of such a request.

        Raises:
            ConnectionLost, ConnectionBusy, LocalProtocolError: as `send`.
        """
        kind = _kind_of(type(request), api_version)
        self._queue(request, kind, api_version, None, at_once, when_sent)

    async def call(self, request: Any, api_version: int, timeout_s: float) -> Any:
        """Send a request and wait for its response.

        Raises:
            RequestTimedOut: it did not come in time; the connection is closed.
            ConnectionLost, ConnectionBusy, LocalProtocolError: as `send`.
        """
        return await self.send(request, api_version, timeout_s).wait()

    def _report_sent(self) -> None:
        """Call back for requests of which the socket has taken the last byte."""
        waiting = self._waiting_to_go
        taken_bytes = self._queued_bytes - self._unsent.size_bytes
        while waiting and waiting[0][0] <= taken_bytes:
            waiting.popleft()[1](None)

    def _queue(
        self,
        request: Any,
        kind: _RequestKind,
        api_version: int,
        reply: Reply | None,
        at_once: bool,
        when_sent: Callable[[ConnectionLost | None], object] | None = None,
    ) -> None:
        if self._lost is not None:
            raise type(self._lost)(self._lost.reason)
        if self._unsent.size_bytes > self._max_unsent_bytes:
            raise ConnectionBusy(f"{self._unsent.size_bytes} bytes wait to be sent")
        if self.requests_in_flight >= self._max_requests_in_flight:
            raise ConnectionBusy(f"{self._max_requests_in_flight} requests wait for answers")
        queued = _Queued(kind, api_version, encode_parts(request, api_version), reply, when_sent)
        if self._held is None:
            self._frame(queued, at_once=at_once)
        else:
            self._held.append(queued)

    def _frame(self, queued: _Queued, *, at_once: bool = False) -> None:
        """Put a request among what is sent, and its reply among those that are expected."""
        kind, api_version, encoded, reply, when_sent = queued
        correlation_id, parts = self._protocol.frame_request(
            kind.api.key, api_version, encoded, flexible=kind.flexible_request
        )
        if reply is not None:
            self._protocol.expect_response(correlation_id, reply, flexible=kind.flexible_response)
        before_bytes = self._unsent.size_bytes
        self._unsent.append(parts)
        self._queued_bytes += self._unsent.size_bytes - before_bytes
        if when_sent is not None:
            self._waiting_to_go.append((self._queued_bytes, when_sent))
        if not (at_once and self._push()):
            self._wake_writer.set()

    def _push(self) -> bool:
        """Give the socket what it takes; True when nothing is left, or the connection is lost."""
        try:
            is_out = self._unsent.push() is Push.DONE
        except OSError as error:
            self._end_sending(error)
            return True
        if self._waiting_to_go:
            self._report_sent()
        return is_out

    # -- the end --------------------------------------------------------------------------------

    def _end_sending(self, failure: OSError) -> None:
        """End the connection after what was answered before: that is here, or never will be."""
        self._send_failure = failure
        if not self._is_receiving:
            while self._receive():
                pass

    def close(self) -> None:
        """Close now; what was not sent is dropped, what was not answered fails."""
        self._lose("the connection was closed on this side")

    def _lose(
        self,
        reason: str,
        *,
        kind: type[ConnectionLost] = ConnectionLost,
        overdue: float = -math.inf,
        undecodable: Reply | None = None,
    ) -> None:
        """End the connection.

        Args:
            kind: which loss it is.
            overdue: requests that were due by then have timed out.
            undecodable: the reply to the request whose response cannot be understood.
        """
        if self._lost is not None:
            return
        lost = self._lost = kind(reason)
        self._network.notify_closing(self._sock)
        self._sock.close()
        self._report_sent()
        self._unsent.clear()
        self._closed.set()
        self._wake_writer.set()
        self._wake_watcher.set()
        while self._waiting_to_go:
            self._waiting_to_go.popleft()[1](lost)
        for queued in self._held or ():
            if queued.when_sent is not None:
                queued.when_sent(lost)
        if undecodable is not None:
            undecodable._finish(None, lost)
        for reply in self._unanswered():
            reply._finish(None, RequestTimedOut(reason) if reply._deadline <= overdue else lost)

    def _unanswered(self) -> list[Reply]:
        """The replies that have not come, in the order of their requests."""
        held = [queued.reply for queued in self._held or () if queued.reply is not None]
        return [*self._protocol.waiting(), *held]

    # -- tasks ----------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Receive and deliver responses until the connection ends."""
        while self._lost is None:
            if self._receive():
                await trio.lowlevel.checkpoint()
            elif self._lost is None:
                await self._wait(self._network.wait_readable)

    def _receive(self) -> bool:
        """Deliver what is there; False when nothing was, or the connection has ended."""
        self._is_receiving = True
        try:
            return self._receive_some()
        finally:
            self._is_receiving = False

    def _receive_some(self) -> bool:
        buffers = self._protocol.receive_buffers()
        try:
            count = self._sock.recvmsg_into(buffers)[0]
        except BlockingIOError:
            if self._send_failure is not None:
                failure = self._send_failure
                self._lose(f"sending failed: {failure}", kind=_loss_by(failure))
            return False
        except OSError as error:
            self._lose(f"receiving failed: {error}", kind=_loss_by(error))
            return False
        if count == 0:
            within = " within a response" if self._protocol.is_within_frame else ""
            self._lose(f"the peer closed the connection{within}")
            return False
        try:
            frames = self._protocol.bytes_received(count, buffers)
        except RemoteProtocolError as error:
            self._lose(f"the peer broke the protocol: {error}")
            return False
        for frame in frames:
            self._deliver(frame)
            if self._lost is not None:
                return False
        return True

    def _deliver(self, frame: memoryview) -> None:
        try:
            reply, position = self._protocol.match_response(frame)
        except RemoteProtocolError as error:
            self._lose(f"the peer broke the protocol: {error}")
            return
        try:
            response = reply._decode(frame, position)
        except RemoteProtocolError as error:
            self._lose(f"the peer broke the protocol: {error}", undecodable=reply)
            return
        reply._finish(response, None)

    async def _write(self) -> None:
        """Send what was queued, as much as there is with each call."""
        while self._lost is None:
            await self._wake_writer.wait()
            self._wake_writer = trio.Event()
            while not self._push():
                await self._wait(self._network.wait_writable)
                if self._lost is not None:
                    return

    async def _wait(self, wait: Callable[[Any], Any]) -> None:
        try:
            await wait(self._sock)
        except trio.ClosedResourceError:
            assert self._lost is not None, "only the end of the connection closes its socket"
        except OSError as error:
            self._lose(f"the connection failed: {error}")

    def _earliest_deadline(self) -> float:
        return min((reply._deadline for reply in self._unanswered()), default=math.inf)

    async def _keep_logged_in(self, session: LoginSession | None) -> None:
        """Log in again whenever the login is about to end; other requests wait meanwhile."""
        while session is not None:
            await trio.sleep_until(session.renew_at)
            self._held = []
            try:
                session = await session.renew(self._call_for_login)
            except LoginRefused as error:
                self._lose(f"the login has ended: {error}", kind=AuthenticationFailed)
                return
            except ConnectionLost:
                return
            held, self._held = self._held, None
            for queued in held:
                self._frame(queued)

    async def _call_for_login(self, request: Any, api_version: int) -> Any:
        """Send a request past those that are held, and return its response."""
        if self._lost is not None:
            raise ConnectionLost(self._lost.reason)
        kind = _kind_of(type(request), api_version)
        reply = Reply(kind.api, api_version, trio.current_time() + _LOGIN_TIMEOUT_S)
        self._frame(_Queued(kind, api_version, encode_parts(request, api_version), reply, None))
        self._wake_watcher.set()
        return await reply.wait()

    async def _watch_deadlines(self) -> None:
        """Close the connection when a request is not answered in time."""
        while self._lost is None:
            now = trio.current_time()
            earliest = self._earliest_deadline()
            if earliest <= now:
                # This process may have stood still: what came meanwhile came in time.
                while self._earliest_deadline() <= now and self._receive():
                    pass
                if self._earliest_deadline() <= now:
                    self._lose("a request was not answered in time", overdue=now)
                continue
            self._next_deadline = earliest
            self._wake_watcher = trio.Event()
            with trio.move_on_at(earliest):
                await self._wake_watcher.wait()


@asynccontextmanager
async def open_connection(
    network: Network,
    host: str,
    port: int,
    *,
    client_id: str,
    connect_timeout_s: float,
    max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    max_unsent_bytes: int = DEFAULT_MAX_UNSENT_BYTES,
    max_requests_in_flight: int = DEFAULT_MAX_REQUESTS_IN_FLIGHT,
    spare_frames: int = 0,
) -> AsyncIterator[Connection]:
    """Connect, and run the connection's tasks while the body runs; leaving closes it.

    A connection that is lost does not cancel the body: whatever the body sends or waits for fails.
    Exceptions of the body come out as they are, not in a group.

    Args:
        spare_frames: how many large responses' memory to keep for those to come.

    Raises:
        AuthenticationFailed: the two sides do not accept each other (`HandshakeFailed`: by TLS).
        ConnectionLost: it cannot connect.
    """
    sock, session = await _connect(network, host, port, connect_timeout_s)
    connection = Connection(
        network,
        sock,
        host,
        port,
        client_id,
        max_response_bytes,
        max_unsent_bytes,
        max_requests_in_flight,
        spare_frames,
    )
    async with open_background() as nursery:
        nursery.start_soon(run_aside, connection._read)
        nursery.start_soon(run_aside, connection._write)
        nursery.start_soon(run_aside, connection._watch_deadlines)
        if session is not None:
            nursery.start_soon(run_aside, connection._keep_logged_in, session)
        try:
            yield connection
        finally:
            connection.close()


async def _connect(
    network: Network, host: str, port: int, timeout_s: float
) -> tuple[Any, LoginSession | None]:
    with trio.move_on_after(timeout_s):
        try:
            if isinstance(network, SecuredNetwork):
                return await network.open(host, port)
            return await network.connect(host, port), None
        except SecurityError as error:
            raise _loss_by(error)(f"cannot use {host}:{port}: {error}") from error
        except OSError as error:
            raise ConnectionLost(
                f"cannot connect to {host}:{port}: {_innermost(error)}", refused=_is_refusal(error)
            ) from error
        except UnicodeError as error:  # of the resolver
            raise ConnectionLost(f"{host!r} is not a name of a host: {error}") from error
    raise ConnectionLost(f"cannot connect to {host}:{port} within {timeout_s:g} s")


def _loss_by(error: OSError) -> type[ConnectionLost]:
    """Which loss of a connection an error comes to."""
    if not isinstance(error, SecurityError):
        return ConnectionLost
    return AuthenticationFailed if isinstance(error, LoginRefused) else HandshakeFailed


def _causes(error: BaseException) -> list[BaseException]:
    """The plain exceptions behind one that may stand for several attempts."""
    if isinstance(error.__cause__, BaseExceptionGroup):
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return [cause for part in error.exceptions for cause in _causes(part)]
    return [error]


def _innermost(error: BaseException) -> BaseException:
    return _causes(error)[0]


def _is_refusal(error: OSError) -> bool:
    """Whether nothing listens at any of the addresses."""
    reported = [
        cause
        for cause in _causes(error)
        if not (isinstance(cause, OSError) and cause.errno in _NO_SUCH_ADDRESS_HERE)
    ]
    return bool(reported) and all(
        isinstance(cause, ConnectionRefusedError | ConnectionResetError) for cause in reported
    )


def _refuses_version(frame: memoryview, position: int) -> bool:
    """Whether a response begins with the error code UNSUPPORTED_VERSION."""
    code = int.from_bytes(frame[position : position + 2], "big", signed=True)
    return code == ErrorCode.UNSUPPORTED_VERSION


def _kind_of(request: type[Any], api_version: int) -> _RequestKind:
    known = _kinds.get((request, api_version))
    if known is not None:
        return known
    key = spec_of(request).api_key
    api = None if key is None else APIS.get(key)
    if api is None or api.request is not request:
        raise LocalProtocolError(f"{request.__name__} is not a request")
    kind = _RequestKind(
        api,
        request_header_version(api.key, api_version) >= 2,
        response_header_version(api.key, api_version) >= 1,
    )
    _kinds[request, api_version] = kind  # as many as there are classes and versions
    return kind
