"""Requests of this broker to itself: a direct call of the handler, without a connection.

The response comes as the handler makes it: at once where it can, with arrays that may be iterated
only (`wire/codec/lazy_arrays`). What is long is worked on in slices, as for any client.

Called by: `broker_links`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import GeneratorType
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.context import ClientInfo, Handler, RequestContext
from kraftrio.broker.server.slices.sliced_work import SlicedWork
from kraftrio.wire.codec.schema import spec_of
from kraftrio.wire.protocol.api import APIS, Api, ApiKey


class LocalCalls:
    """Calls the handlers of this broker.

    Args:
        listener_name: over which the request would have come.
    """

    def __init__(self, sliced_work: SlicedWork, client_id: str, listener_name: str) -> None:
        self._sliced_work = sliced_work
        self._client_id = client_id
        self._listener_name = listener_name
        self._handlers: Mapping[ApiKey, Handler] = {}

    def serve(self, handlers: Mapping[ApiKey, Handler]) -> None:
        """Name the handlers; they may need, themselves, what calls them."""
        self._handlers = handlers

    def call(self, request: Any) -> Deferred[Any]:
        """Have a request handled, in the newest version of its API."""
        api = _api_of(request)
        client = ClientInfo("localhost", 0, self._listener_name, is_peer=True)
        context = RequestContext(api.key, api.max_version, 0, self._client_id, client)
        response: Deferred[Any] = Deferred()
        self._settle(response, client, self._handlers[api.key](request, context))
        return response

    def _settle(self, response: Deferred[Any], client: ClientInfo, handled: Any) -> None:
        """Complete the response with what a handler gave, whatever form that has."""
        if isinstance(handled, GeneratorType):
            handled = self._sliced_work.start(client, handled)
        if not isinstance(handled, Deferred):
            response.complete(handled)
        elif not handled.done:
            handled.when_done(lambda done: self._settle(response, client, done))
        elif handled.error is not None:
            response.follow(handled)
        else:
            self._settle(response, client, handled.value)


def newest_version(request: Any) -> int:
    """The newest version of a request's API: that which brokers speak with each other."""
    return _api_of(request).max_version


def _api_of(request: Any) -> Api:
    key = spec_of(type(request)).api_key
    assert key is not None, f"{type(request).__name__} is not a request"
    return APIS[key]
