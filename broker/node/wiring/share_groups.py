"""Puts together what serves the data path of share groups on one broker: share partitions, sessions
and their handlers.

Owns nothing but the wiring; `services` and `broker_handlers` use it.
"""

from __future__ import annotations

from kraftrio.broker.api.share.ongoing_share_fetch import ShareFetchServices
from kraftrio.broker.api.share.share_acknowledge import ShareAcknowledgeHandler
from kraftrio.broker.api.share.share_fetch import ShareFetchHandler
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.wiring.coordination import Coordination
from kraftrio.broker.node.wiring.replication import Replication
from kraftrio.broker.server.context import HandlerTable
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.broker.share.led_share_partition import ShareServices
from kraftrio.broker.share.sessions import ShareSessions
from kraftrio.broker.share.share_partitions import SharePartitions


def share_partitions(
    node: NodeContext, metadata: MetadataCache, replication: Replication, coordination: Coordination
) -> SharePartitions:
    """Build the share partitions of a broker."""
    replicas = replication.replica_manager
    services = ShareServices(
        coordination.share_state,
        coordination.group_settings,
        replicas.reads,
        replicas.disk_errors,
        node.timers,
        node.environment.clock,
    )
    sessions = ShareSessions(node.config.group_share_max_share_sessions)
    return SharePartitions(replicas.hosted, metadata, services, sessions)


def share_handlers(
    node: NodeContext,
    metadata: MetadataCache,
    coordination: Coordination,
    partitions: SharePartitions,
    throttle: Throttle,
) -> HandlerTable:
    """Build the handlers of ShareFetch and ShareAcknowledge."""
    services = ShareFetchServices(
        node.timers,
        node.environment.clock,
        node.config.fetch_max_bytes,
        node.resources.response_memory,
        throttle,
    )
    settings = coordination.group_settings

    def is_enabled() -> bool:
        return metadata.image.share_version > 0

    return {
        **ShareFetchHandler(partitions, metadata, settings, services, is_enabled).table(),
        **ShareAcknowledgeHandler(partitions, metadata, settings, is_enabled).table(),
    }
