"""How each API is served on one listener: versions, handler, what it needs, how it is encoded.

Behaviour (Apache Kafka's): Produce is advertised from version 0, since older librdkafka stops
compressing otherwise (KAFKA-18659), yet served from 3 only.

Called by: `dispatch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraftrio.broker.security.api_access import Access
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.context import Handler
from kraftrio.broker.server.guard import Refuse, close_connection, guarded
from kraftrio.wire.protocol.api import APIS, Api, ApiKey

_PRODUCE_FIRST_SERVED = 3

# A request above this size may have many entries, and is decoded in slices.
_LARGE_BYTES = 8 << 10
_LARGE_DATA_BYTES = 64 << 10  # where most bytes are records

# The data path: encoded when sent (records are not copied), and not held up by others' long work.
_DATA_PATH = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH})

_NEVER = 1 << 16  # above all versions


@dataclass(slots=True)
class Route:
    """How one API is served.

    Attributes:
        large_bytes: larger requests are decoded in slices.
        flexible_header_from: from this version on, the header of a response has tagged fields.
        request_count: how often the API was requested.
    """

    request: type
    min_version: int
    max_version: int
    flexible_from: int | None
    handler: Handler
    large_bytes: int
    is_data_path: bool
    flexible_header_from: int
    request_count: int = 0


def build_routes(
    handlers: Mapping[ApiKey, Handler],
    access: Mapping[ApiKey, Access],
    authorizer: Authorizer = ALLOW_ALL,
    refuse: Refuse = close_connection,
) -> dict[int, Route]:
    """Return the routes by API key.

    Raises:
        ValueError: a handler's API has no line in `access`.
    """
    routes = {}
    for key, handler in handlers.items():
        if key not in access:
            raise ValueError(f"{key.name} is served, but has no line in the authorization table")
        if authorizer is not ALLOW_ALL and access[key].permissions:
            handler = guarded(handler, access[key], refuse)
        routes[int(key)] = _route(APIS[key], handler)
    return routes


def _route(api: Api, handler: Handler) -> Route:
    is_data_path = api.key in _DATA_PATH
    return Route(
        request=api.request,
        min_version=_PRODUCE_FIRST_SERVED if api.key is ApiKey.PRODUCE else api.min_version,
        max_version=api.max_version,
        flexible_from=api.flexible_from,
        handler=handler,
        large_bytes=_LARGE_DATA_BYTES if is_data_path else _LARGE_BYTES,
        is_data_path=is_data_path,
        flexible_header_from=_flexible_header_from(api),
    )


def _flexible_header_from(api: Api) -> int:
    if api.flexible_from is None or api.key is ApiKey.API_VERSIONS:  # KIP-511
        return _NEVER
    return api.flexible_from
