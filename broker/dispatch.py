"""From a request's bytes to its handler and back to the bytes of its response.

One `Dispatcher` per listener: it holds the table of what that listener serves, gates the version,
decodes, calls the handler and gives the connection a way to encode the response.

Behaviour (Apache Kafka's)
- ApiVersions in a version we do not have is answered with error 35 in the layout of version 0, and
  the connection lives on (KIP-511).
- Any other request outside the served versions, an unknown key, or a body that cannot be decoded
  closes the connection.
- Bytes left over after a decoded request are ignored.
- Produce is advertised from version 0, since older librdkafka stops compressing otherwise
  (KAFKA-18659), yet served from 3 only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraftrio.broker.context import ClientInfo, RequestContext
from kraftrio.kraft_meta.deferred import Deferred
from kraftrio.wire.api import APIS, ApiKey
from kraftrio.wire.codec import decode, encode, encode_parts
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.framing import RequestStart, parse_request_start
from kraftrio.wire.messages.cluster import ApiVersion, ApiVersionsResponse
from kraftrio.wire.primitives import Buffer

Handler = Callable[[Any, RequestContext], Any]
"""Takes a decoded request and its context; returns a response, a `Deferred` of one, or None (no
reply).
"""

Encoder = Callable[[], list[Buffer]]

# Answered when asked, but offered only by a broker with a telemetry receiver (KIP-714).
_NOT_ADVERTISED = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS})

_PRODUCE_FIRST_SERVED = 3


@dataclass(slots=True, frozen=True)
class Route:
    """How one API is served on this listener."""

    request: type
    min_version: int
    max_version: int
    flexible_from: int | None
    handler: Handler


class Dispatcher:
    """What one listener serves.

    Args:
        unserved: why APIs that the wire knows are not served.
    """

    def __init__(
        self, handlers: Mapping[ApiKey, Handler], unserved: Mapping[ApiKey, str] | None = None
    ) -> None:
        self._unserved = unserved or {}
        self._routes: dict[int, Route] = {}
        for key, handler in handlers.items():
            api = APIS[key]
            first = _PRODUCE_FIRST_SERVED if key == ApiKey.PRODUCE else api.min_version
            self._routes[int(key)] = Route(
                api.request, first, api.max_version, api.flexible_from, handler
            )

    def advertised(self) -> list[ApiVersion]:
        """What ApiVersions says: every served API with its versions, in key order."""
        return [
            ApiVersion(
                api_key=int(key),
                min_version=APIS[key].min_version,
                max_version=APIS[key].max_version,
            )
            for key in sorted(self._routes)
            if key not in _NOT_ADVERTISED
        ]

    def _flexible_from(self, api_key: int) -> int | None:
        route = self._routes.get(api_key)
        return route.flexible_from if route is not None else None

    def _why_unserved(self, api_key: int) -> str:
        try:
            name = ApiKey(api_key).name
        except ValueError:
            return f"api key {api_key} is not served on this listener"
        reason = self._unserved.get(ApiKey(api_key))
        return f"{name} is not served on this listener" + (f": {reason}" if reason else "")

    def start(self, frame: memoryview) -> RequestStart:
        """Parse the header (RemoteProtocolError when it cannot be)."""
        return parse_request_start(frame, self._flexible_from)

    def handle(
        self, frame: memoryview, start: RequestStart, client: ClientInfo
    ) -> Encoder | Deferred[Encoder] | None:
        """Serve one request.

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
        request: Any
        request, _ = decode(route.request, version, frame, position)
        context = RequestContext(api_key, version, correlation_id, client_id, client)
        response = route.handler(request, context)
        if response is None:
            return None
        flexible = (
            route.flexible_from is not None
            and version >= route.flexible_from
            and api_key != ApiKey.API_VERSIONS
        )
        if isinstance(response, Deferred):
            encoder: Deferred[Encoder] = Deferred()
            response.then(
                lambda value: encoder.complete(_encoder(value, version, correlation_id, flexible))
            )
            return encoder
        return _encoder(response, version, correlation_id, flexible)


def _encoder(response: Any, version: int, correlation_id: int, flexible: bool) -> Encoder:
    def encode_response() -> list[Buffer]:
        parts = encode_parts(response, version)
        size = 4 + flexible + sum(map(len, parts))
        head = size.to_bytes(4, "big") + correlation_id.to_bytes(4, "big", signed=True)
        if flexible:
            head += b"\0"  # no tagged fields in the header
        if len(parts) == 1:
            return [head + parts[0]]
        return [head, *parts]

    return encode_response


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

    def encode_response() -> list[Buffer]:
        head = (4 + len(body)).to_bytes(4, "big")
        return [head + correlation_id.to_bytes(4, "big", signed=True) + body]

    return encode_response
