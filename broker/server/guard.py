"""Asks the authorizer what the authorization table says, before a handler is called: `guarded`.

Called by: `routes`. A listener whose authorizer allows everything has no guards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kraftrio.broker.security.api_access import REFUSALS, Access
from kraftrio.broker.security.authorizer import CLUSTER, Resource
from kraftrio.broker.server.context import Handler, RequestContext
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.fitting import fit_version

Refuse: TypeAlias = Callable[[int, Any, ErrorCode], Any]
"""Takes the API, the request and the error; returns the response that says only this error."""


def close_connection(api_key: int, _request: object, code: ErrorCode) -> Any:
    """Refuse by the end of the connection: what a server can do that knows no responses."""
    raise RemoteProtocolError(f"not authorized to send {ApiKey(api_key).name}: {code.name}")


def guarded(handler: Handler, access: Access, refuse: Refuse) -> Handler:
    """Return a handler that is called only with what its sender may ask for."""

    def handle(request: Any, context: RequestContext) -> Any:
        if _is_let_in(access, request, context):
            return handler(request, context)
        code = REFUSALS[access.permissions[0].resource_type]
        return fit_version(refuse(context.api_key, request, code), context.api_version)

    return handle


def _is_let_in(access: Access, request: Any, context: RequestContext) -> bool:
    first, *others = access.permissions
    resource = CLUSTER
    if access.name_field is not None:
        resource = Resource(first.resource_type, getattr(request, access.name_field))
    if any(context.may_see(other.operation, resource) for other in others):
        return True
    return context.is_authorized(first.operation, resource)
