"""The topics that a client may do something to, each asked about once: `PermittedTopics`.

Called by handlers that come back to a topic when they answer: the answer is to say what was done.
"""

from __future__ import annotations

from collections.abc import Container

from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import RequestContext


def is_visible(topic: str, context: RequestContext) -> bool:
    """Which topics a client may know of; the others are left out of answers, and not audited."""
    return context.may_see(AclOperation.DESCRIBE, Resource(ResourceType.TOPIC, topic))


class PermittedTopics(Container[str]):
    """See the module."""

    def __init__(self, context: RequestContext, operation: AclOperation) -> None:
        self._context = context
        self._operation = operation
        self._known: dict[str, bool] = {}

    def __contains__(self, topic: object) -> bool:
        if not self._context.is_guarded:
            return True
        assert isinstance(topic, str)
        known = self._known.get(topic)
        if known is None:
            known = self._context.may(self._operation, ResourceType.TOPIC, topic)
            self._known[topic] = known
        return known
