"""Puts together the handlers of one broker: a table from API to handler.

Owns nothing but the wiring. An API has one handler.
"""

from __future__ import annotations

from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import ProcessLoggers
from kraftrio.broker.api.acls import AclHandlers
from kraftrio.broker.api.admin import AdminHandlers
from kraftrio.broker.api.client_quotas import ClientQuotaHandlers
from kraftrio.broker.api.cluster import ClusterHandlers
from kraftrio.broker.api.configs import ConfigHandlers
from kraftrio.broker.api.delegation_tokens import DelegationTokenHandlers
from kraftrio.broker.api.fetch.fetch import FetchHandlers
from kraftrio.broker.api.fetch.reads import FetchSettings
from kraftrio.broker.api.fetch.session import FetchSessions
from kraftrio.broker.api.groups.consumer_groups import ConsumerGroupHandlers
from kraftrio.broker.api.groups.find_coordinator import (
    GROUP_KEY,
    SHARE_KEY,
    TRANSACTION_KEY,
    FindCoordinatorHandler,
)
from kraftrio.broker.api.groups.groups import GroupHandlers
from kraftrio.broker.api.groups.share_group_offsets import ShareGroupOffsetHandlers
from kraftrio.broker.api.groups.share_groups import ShareGroupHandlers
from kraftrio.broker.api.groups.streams_groups import StreamsGroupHandlers
from kraftrio.broker.api.groups.transactional_offsets import TransactionalOffsetHandlers
from kraftrio.broker.api.log_dirs import LogDirHandlers
from kraftrio.broker.api.metadata import MetadataHandlers
from kraftrio.broker.api.offsets import OffsetHandlers
from kraftrio.broker.api.produce.produce import ProduceHandlers
from kraftrio.broker.api.sasl import SaslHandlers
from kraftrio.broker.api.scram_users import ScramUserHandlers
from kraftrio.broker.api.share.share_state import ShareStateHandlers
from kraftrio.broker.api.shared.permitted_entries import permitted_entries
from kraftrio.broker.api.telemetry import TelemetryHandlers
from kraftrio.broker.api.topic_partitions import TopicPartitionHandlers
from kraftrio.broker.api.transactions.coordination import TransactionHandlers
from kraftrio.broker.api.transactions.listing import TransactionListingHandlers
from kraftrio.broker.api.transactions.markers import MarkerHandlers
from kraftrio.broker.config.checks import RACK_AWARE_SELECTOR
from kraftrio.broker.controller.channel import ControllerChannel
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.metadata.internal_topics import InternalTopics
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.log_directories import LogDirectories
from kraftrio.broker.node.settings import token_settings
from kraftrio.broker.node.wiring.coordination import Coordination
from kraftrio.broker.node.wiring.replication import Replication
from kraftrio.broker.server.context import HandlerTable
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.wire.messages.quorum import DescribeQuorumRequest

_DESCRIBE_QUORUM_VERSION = 2


def broker_handlers(
    node: NodeContext,
    metadata: MetadataCache,
    channel: ControllerChannel,
    replication: Replication,
    coordination: Coordination,
    throttle: Throttle,
) -> HandlerTable:
    """Build the handlers that a broker's listeners serve."""
    auto_topics = coordination.auto_topics
    groups, transactions = coordination.groups, coordination.transactions
    tables = (
        _data_path(node, metadata, replication, throttle),
        _cluster(node, metadata, channel, auto_topics),
        LogDirHandlers(
            node.dynamic,
            LogDirectories(node.storage.log_manager, replication.moves.futures_in),
            replication.moves,
        ).table(),
        FindCoordinatorHandler(
            {GROUP_KEY: groups, TRANSACTION_KEY: transactions, SHARE_KEY: coordination.share},
            metadata,
            lambda name: auto_topics.create([name]),
        ).table(),
        GroupHandlers(groups, metadata, node.config, coordination.share_state).table(),
        TransactionalOffsetHandlers(groups, metadata, coordination.verification).table(),
        ConsumerGroupHandlers(groups, metadata, node.config).table(),
        ShareGroupHandlers(groups, metadata).table(),
        ShareGroupOffsetHandlers(
            groups,
            metadata,
            coordination.share_state,
            coordination.initializer,
            coordination.latest_offsets,
        ).table(),
        StreamsGroupHandlers(
            groups, metadata, node.config, InternalTopics(auto_topics, node.environment.clock)
        ).table(),
        TransactionHandlers(
            transactions,
            groups,
            coordination.producer_ids,
            metadata,
            node.config,
            coordination.markers,
        ).table(),
        ShareStateHandlers(coordination.share).table(),
        TransactionListingHandlers(transactions, node.environment.clock).table(),
        MarkerHandlers(
            replication.replica_manager,
            {groups.topic: groups},
            node.environment.clock,
            node.config.request_timeout_ms,
        ).table(),
        ClientQuotaHandlers(metadata, channel).table(),
        SaslHandlers(node.timers).table(),
        AclHandlers(channel, metadata).table(),
        ScramUserHandlers(metadata, channel).table(),
        DelegationTokenHandlers(metadata, channel, token_settings(node.config).secret_key).table(),
    )
    handlers: HandlerTable = {}
    for table in tables:
        assert not handlers.keys() & table.keys(), "an API has one handler"
        handlers |= table
    return handlers


def _data_path(
    node: NodeContext, metadata: MetadataCache, replication: Replication, throttle: Throttle
) -> HandlerTable:
    config, environment = node.config, node.environment
    replicas = replication.replica_manager

    fetch = FetchHandlers(
        replicas,
        metadata,
        FetchSessions(config.max_incremental_fetch_session_cache_slots, environment.rng),
        node.timers,
        environment.clock,
        FetchSettings(
            config.fetch_max_bytes,
            replication.leader_quota,
            node.resources.response_memory,
            selects_by_rack=config.replica_selector_class == RACK_AWARE_SELECTOR,
            throttle=throttle,
        ),
    )
    return {
        **ProduceHandlers(replicas, metadata, environment.clock).table(),
        **fetch.table(),
        **OffsetHandlers(replicas).table(),
    }


def _cluster(
    node: NodeContext,
    metadata: MetadataCache,
    channel: ControllerChannel,
    auto_topics: AutoTopicCreator,
) -> HandlerTable:
    quorum = node.quorum

    def describe_quorum(request: DescribeQuorumRequest) -> Deferred[Any]:
        if quorum.leader_id == quorum.node_id:
            return Deferred.completed(quorum.describe_quorum(request))
        return node.controller.submit(request, api_version=_DESCRIBE_QUORUM_VERSION)

    cluster = ClusterHandlers(
        node.dynamic,
        metadata,
        channel,
        describe_quorum,
    )
    environment = node.environment
    telemetry = TelemetryHandlers(
        node.dynamic,
        node.client_metrics,
        environment.clock,
        new_uuid=lambda: environment.rng.randbytes(16),
    )
    return {
        **MetadataHandlers(node.config.node_id, metadata, auto_topics).table(),
        **TopicPartitionHandlers(node.dynamic, metadata).table(),
        **cluster.table(),
        **permitted_entries(
            {
                **AdminHandlers(channel, node.timers).table(),
                **ConfigHandlers(node.dynamic, metadata, channel, ProcessLoggers()).table(),
            },
            metadata,
        ),
        **telemetry.table(),
    }
