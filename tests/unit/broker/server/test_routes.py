"""The table of routes: a line for each handler, and what differs between APIs."""

from __future__ import annotations

import pytest

from kraftrio.broker.security.api_access import API_ACCESS
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.routes import build_routes
from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.support.authorizers import Allow


def _serve(_request: object, _context: object) -> None:
    """A handler that does nothing."""


def test_versions_are_those_advertised_but_for_old_produce() -> None:
    """Produce 0-2 are advertised for old clients, and refused."""
    handlers = dict.fromkeys(API_ACCESS, _serve)
    routes = build_routes(handlers, API_ACCESS)
    served = {key: (route.min_version, route.max_version) for key, route in routes.items()}
    expected = {int(key): (APIS[key].min_version, APIS[key].max_version) for key in handlers}
    assert expected[ApiKey.PRODUCE][0] == 0
    assert served == expected | {int(ApiKey.PRODUCE): (3, APIS[ApiKey.PRODUCE].max_version)}


def test_the_header_of_api_versions_never_has_tagged_fields() -> None:
    """A client must be able to read it before it knows the version (KIP-511)."""
    routes = build_routes({ApiKey.API_VERSIONS: _serve, ApiKey.METADATA: _serve}, API_ACCESS)
    assert routes[ApiKey.METADATA].flexible_header_from == 9
    assert routes[ApiKey.API_VERSIONS].flexible_header_from > APIS[ApiKey.API_VERSIONS].max_version


def test_only_a_listener_with_an_authorizer_has_guards() -> None:
    """And only before handlers whose line has something to ask."""
    handlers = dict.fromkeys([ApiKey.HEARTBEAT, ApiKey.METADATA], _serve)
    routes = build_routes(handlers, API_ACCESS)
    assert {route.handler for route in routes.values()} == {_serve}
    routes = build_routes(handlers, API_ACCESS, Allow(()))
    assert routes[ApiKey.METADATA].handler is _serve
    assert routes[ApiKey.HEARTBEAT].handler is not _serve


def test_a_route_without_a_line_in_the_table_does_not_start() -> None:
    with pytest.raises(ValueError, match=r"^METADATA is served, but has no line"):
        Dispatcher({ApiKey.METADATA: _serve}, access={})
