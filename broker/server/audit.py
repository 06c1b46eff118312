"""The audit: a line of the log for each operation that was denied, and for each refused login.

The logger is `kraftrio.audit`, so that it may go elsewhere than the others; lines that come over
and over are logged now and then, with how often they came (`base/line_limits`). Only what a client
asked for is logged: not what an answer leaves out since the client may not see it.

Called by: `context`, for every refusal; and where clients are authenticated.
"""

from __future__ import annotations

import logging

from kraftrio.broker.security.authorizer import AclOperation, Resource
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.wire.protocol.api import ApiKey

_log = logging.getLogger("kraftrio.audit")


def operation_denied(
    principal: KafkaPrincipal, host: str, operation: AclOperation, resource: Resource, api_key: int
) -> None:
    """Log that a principal was denied an operation."""
    _log.info(
        "denied principal=%s host=%s operation=%s resource=%s:%s api=%s",
        principal,
        host,
        operation.name,
        resource.type.name,
        "*" if resource.name is None else resource.name,
        ApiKey(api_key).name,
    )


def login_refused(host: str, listener_name: str, mechanism: str, reason: str) -> None:
    """Log that a client was not let in; `reason` must not show what is secret."""
    _log.info(
        "login refused host=%s listener=%s mechanism=%s reason=%s",
        host,
        listener_name,
        mechanism,
        reason,
    )
