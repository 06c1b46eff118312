"""Bit fields of authorized operations, which responses carry when a client asks (KIP-430)."""

from __future__ import annotations

from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import RequestContext
from kraftrio.wire.messages.cluster import NO_AUTHORIZED_OPERATIONS


def cluster_operations(context: RequestContext, *, is_asked: bool) -> int:
    """What the client may do to the cluster; nothing, if it may not describe it."""
    if not is_asked:
        return NO_AUTHORIZED_OPERATIONS
    if not context.is_authorized(AclOperation.DESCRIBE, CLUSTER):
        return 0
    return context.authorized_operations(CLUSTER)


def group_operations(context: RequestContext, group_id: str, *, is_asked: bool) -> int:
    """What the client may do to a group."""
    if not is_asked:
        return NO_AUTHORIZED_OPERATIONS
    return context.authorized_operations(Resource(ResourceType.GROUP, group_id))


def topic_operations(context: RequestContext, topic: str, *, is_asked: bool) -> int:
    """What the client may do to a topic."""
    if not is_asked:
        return NO_AUTHORIZED_OPERATIONS
    return context.authorized_operations(Resource(ResourceType.TOPIC, topic))
