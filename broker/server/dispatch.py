"""From a request's bytes to its handler and back to the bytes of its response.

One `Dispatcher` per listener: it holds the table of what that listener serves, gates the version,
decodes, calls the handler (behind a `guard`, where `security/api_access` says so) and gives the
connection a way to encode the response.

Behaviour (Apache Kafka's)
- ApiVersions in a version we do not have is answered with error 35 in the layout of version 0, and
  the connection lives on (KIP-511).
- Any other request outside the served versions, an unknown key, or a body that cannot be decoded
  closes the connection.
- Bytes left over after a decoded request are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from types import GeneratorType
from typing import Any, TypeVar

from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import Statistics
from kraftrio.broker.security.api_access import API_ACCESS, Access
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.context import ClientInfo, Handler, RequestContext, Waits
from kraftrio.broker.server.guard import Refuse, close_connection
from kraftrio.broker.server.response_errors import error_codes
from kraftrio.broker.server.routes import Route, build_routes
from kraftrio.broker.server.slices.sliced_work import SlicedWork, Work, do_at_once
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.wire.codec.lazy_arrays import is_little
from kraftrio.wire.codec.message import decode, encode, encode_pieces
from kraftrio.wire.codec.slices import decode_slices, encode_slices
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.cluster import ApiVersion, ApiVersionsResponse
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.protocol.framing import RequestStart, parse_request_start
from kraftrio.wire.stored_bytes import Piece, StoredBytes

T = TypeVar("T")

Encoder = Callable[[], list[Piece]]
"""Gives the bytes of a response, or raises the error that closes the connection."""

Answer = Encoder | Deferred[Encoder] | None

# Served, but advertised only by a broker with a telemetry receiver (KIP-714).
_WITH_A_RECEIVER = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS})

_HEAD = Struct(">ii").pack
_FLEXIBLE_HEAD = Struct(">iix").pack

_FIRST_STEPS = 32  # of a handler's work that are done without checking the clock


class Dispatcher:
    """What one listener serves.

    Args:
        unserved: why APIs that the wire knows are not served.
        sliced_work: does what takes long; None: all is done at once.
        access: what each API needs; has a line for every handler.
        authorizer: asked for each request, as its line says, and by handlers for what it names.
        refuse: gives the response to a request that its sender may not send.
        throttle: holds clients to their quotas; None: there are none.

    Raises:
        ValueError: a handler's API has no line in `access`.
    """

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        unserved: Mapping[ApiKey, str] | None = None,
        sliced_work: SlicedWork | None = None,
        *,
        access: Mapping[ApiKey, Access] = API_ACCESS,
        authorizer: Authorizer = ALLOW_ALL,
        refuse: Refuse = close_connection,
        throttle: Throttle | None = None,
    ) -> None:
        self._throttle = throttle
        self._unserved = unserved or {}
        self._authorizer = authorizer
        self._sliced_work = sliced_work
        self._routes = build_routes(handlers, access, authorizer, refuse)
        self._flexible_from = {key: route.flexible_from for key, route in self._routes.items()}
        self._advertised = [
            ApiVersion(
                api_key=int(key),
                min_version=APIS[key].min_version,
                max_version=APIS[key].max_version,
            )
            for key in sorted(handlers)
            if key not in _WITH_A_RECEIVER or ApiKey.PUSH_TELEMETRY in handlers
        ]

    def advertised(self) -> list[ApiVersion]:
        """Return what ApiVersions says: every served API with its versions, in key order.

        Responses share the list: it must not be changed.
        """
        return self._advertised

    def statistics(self) -> Statistics:
        """How many requests have come, of each API and in all."""
        counts = {ApiKey(key): route.request_count for key, route in self._routes.items()}
        by_api = {f"{key.name.lower()}_requests_total": count for key, count in counts.items()}
        return {"requests_total": sum(counts.values()), **by_api}

    def _why_unserved(self, api_key: int) -> str:
        try:
            name = ApiKey(api_key).name
        except ValueError:
            return f"api key {api_key} is not served on this listener"
        reason = self._unserved.get(ApiKey(api_key))
        return f"{name} is not served on this listener" + (f": {reason}" if reason else "")

    def start(self, frame: memoryview) -> RequestStart:
        """Parse the header (RemoteProtocolError when it cannot be)."""
        return parse_request_start(frame, self._flexible_from.get)

    def handle(
        self,
        frame: memoryview,
        start: RequestStart,
        client: ClientInfo,
        times: Waits | None = None,
    ) -> Answer:
        """Serve one request.

        Args:
            times: notes what the request waits for, and what its response has.

        Returns:
            how to encode its response, or a Deferred of that, or None where there is none (acks=0).

        Raises:
            RemoteProtocolError: the connection has to be closed.
        """
        api_key, version, correlation_id, client_id, position = start
        route = self._routes.get(api_key)
        if route is None:
            raise RemoteProtocolError(self._why_unserved(api_key))
        if not route.min_version <= version <= route.max_version:
            if api_key == ApiKey.API_VERSIONS:
                return _unsupported_api_versions(correlation_id, route)
            raise RemoteProtocolError(
                f"{ApiKey(api_key).name} version {version} is not served"
                f" ({route.min_version}..{route.max_version} are)"
            )
        if client.login is not None:
            client.login.check(api_key)
        route.request_count += 1
        context = RequestContext(
            api_key, version, correlation_id, client_id, client, self._authorizer, times
        )
        if len(frame) > route.large_bytes or client.queued_work:
            return self._work(client, self._serve(route, frame, position, context), route)
        request: Any
        request, _ = decode(route.request, version, frame, position)
        response = self._call(route, request, context, len(frame))
        if type(response) is GeneratorType:
            response = _first_steps(response)
        if isinstance(response, Deferred):
            if route.is_data_path:
                return self._answer_when_sent(response, route, context)
            if not response.done:  # nothing to do yet: what waits takes no turn
                return self._respond_later(response, route, context)
            response = response.value
        if type(response) is not GeneratorType:
            if response is None:
                return None
            if route.is_data_path or is_little(response):
                return self._encoder(response, route, context)
        return self._work(client, self._respond(response, route, context), route)

    def _active_throttle(self) -> Throttle | None:
        """Return what counts and holds up requests; None while there are no quotas."""
        throttle = self._throttle
        return throttle if throttle is not None and throttle.quotas.is_on else None

    def _call(self, route: Route, request: Any, context: RequestContext, size_bytes: int) -> Any:
        """Call the handler; while there are quotas, through the throttle."""
        throttle = self._active_throttle()
        if throttle is None:
            return route.handler(request, context)
        return throttle.handle(route.handler, request, context, size_bytes)

    def _counted(self, work: Work[T], context: RequestContext) -> Work[T]:
        """Have the time of some work counted while there are quotas."""
        throttle = self._active_throttle()
        if throttle is None:
            return work
        return throttle.count_steps(work, context)

    def _work(self, client: ClientInfo, work: Work[Answer], route: Route) -> Answer:
        """Let work be done in slices, at once as far as there is time."""
        answer = self._start(client, work, is_urgent=route.is_data_path)
        if answer.done:
            return answer.value
        encoder: Deferred[Encoder] = Deferred()
        answer.when_done(lambda answer: _settle(answer, encoder))
        return encoder

    def _start(
        self, client: ClientInfo, work: Work[Answer], *, is_urgent: bool = False
    ) -> Deferred[Answer]:
        if self._sliced_work is None:
            return do_at_once(work)
        return self._sliced_work.start(client, work, is_urgent=is_urgent)

    def _serve(
        self, route: Route, frame: memoryview, position: int, context: RequestContext
    ) -> Work[Answer]:
        """Decode, handle and encode in slices."""
        request: Any
        if len(frame) > route.large_bytes:
            decoding: Work[Any] = decode_slices(route.request, context.api_version, frame, position)
            request = yield from self._counted(decoding, context)
        else:
            request, _ = decode(route.request, context.api_version, frame, position)
        response = self._call(route, request, context, len(frame))
        del request, frame
        return (yield from self._respond(response, route, context))

    def _respond(self, response: Any, route: Route, context: RequestContext) -> Work[Answer]:
        """Encode in slices what a handler gave."""
        if type(response) is GeneratorType:
            response = yield from response
        elif route.is_data_path:
            return self._answer_when_sent(response, route, context)
        if isinstance(response, Deferred):
            if not response.done:
                return self._respond_later(response, route, context)
            response = response.value
        if response is None:
            return None
        if context.times is not None:
            context.times.codes = error_codes(response, nested=is_little(response))
        encoding = encode_slices(response, context.api_version)
        parts = yield from self._counted(encoding, context)
        answer = _with_header(parts, route, context)
        return lambda: answer

    def _respond_later(
        self, response: Deferred[Any], route: Route, context: RequestContext
    ) -> Deferred[Encoder]:
        encoder: Deferred[Encoder] = Deferred()

        def on_response(response: Deferred[Any]) -> None:
            if response.error is not None:
                encoder.fail(response.error)
            elif type(response.value) is not GeneratorType and is_little(response.value):
                encoder.complete(self._encoder(response.value, route, context))
            else:
                # Not urgent: many may have waited for the same.
                work = self._respond(response.value, route, context)
                answer = self._start(context.client, work)
                answer.when_done(lambda answer: _settle(answer, encoder))

        response.when_done(on_response)
        return encoder

    def _answer_when_sent(self, response: Any, route: Route, context: RequestContext) -> Answer:
        """Encode a response of the data path when it is sent."""
        if response is None:
            return None
        if isinstance(response, Deferred):
            return response.map(lambda value: self._encoder(value, route, context))
        return self._encoder(response, route, context)

    def _encoder(self, response: Any, route: Route, context: RequestContext) -> Encoder:
        def encoder() -> list[Piece]:
            if context.times is not None:
                context.times.codes = error_codes(response)
            return _with_header(encode_pieces(response, context.api_version), route, context)

        throttle = self._active_throttle()
        if throttle is None:
            return encoder
        return throttle.count_call(encoder, context)


def _first_steps(work: Work[Any]) -> Any:
    """Do a little of some work at once; return its value, or what is left of it."""
    try:
        for _ in range(_FIRST_STEPS):
            awaited = next(work)
            if awaited is not None and not awaited.done:
                return _after(awaited, work)
    except StopIteration as end:
        return end.value
    return work


def _after(awaited: Deferred[Any], work: Work[Any]) -> Work[Any]:
    yield awaited
    return (yield from work)


def _with_header(parts: Sequence[Piece], route: Route, context: RequestContext) -> list[Piece]:
    """Put the length and the header before a response."""
    flexible = context.api_version >= route.flexible_header_from
    size = 4 + flexible + sum(map(len, parts))
    if context.times is not None:
        context.times.response_bytes = size
    # A flexible header ends with the count of its tagged fields: none.
    head = (_FLEXIBLE_HEAD if flexible else _HEAD)(size, context.correlation_id)
    if len(parts) == 1 and not isinstance(first := parts[0], StoredBytes):
        return [head + first]
    return [head, *parts]


def _settle(answer: Deferred[Answer], encoder: Deferred[Encoder]) -> None:
    """Pass on how some work ended; its error is raised when the answer's turn has come."""
    if answer.error is not None:
        encoder.fail(answer.error)
    elif isinstance(value := answer.value, Deferred):
        encoder.follow(value)
    else:
        # A place among the answers was taken when it was not known whether there is one.
        encoder.complete(value or _nothing)


def _nothing() -> list[Piece]:
    return []


def _unsupported_api_versions(correlation_id: int, route: Route) -> Encoder:
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(
                api_key=ApiKey.API_VERSIONS,
                min_version=route.min_version,
                max_version=route.max_version,
            )
        ],
    )
    body = encode(response, 0)

    def encode_response() -> list[Piece]:
        head = (4 + len(body)).to_bytes(4, "big")
        return [head + correlation_id.to_bytes(4, "big", signed=True) + body]

    return encode_response
