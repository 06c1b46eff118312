"""Puts the parts of one broker together: what each may ask is given to it here and nowhere else.

Owns nothing but the wiring, as do `replication` and `broker_handlers`, so that they show who
depends on whom; `broker_role` decides when the parts run.
"""

from __future__ import annotations

import uuid

from kraftrio.broker.api.api_versions import ApiVersionsHandler
from kraftrio.broker.api.unserved_apis import UNSERVED_BY_BROKERS
from kraftrio.broker.controller.channel import ControllerChannel
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator, group_coordinator
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.broker_handlers import broker_handlers
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.metadata_publisher import MetadataPublisher
from kraftrio.broker.node.replication import Replication
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.sliced_work import SlicedWork
from kraftrio.kraft_meta.controller.control import DEFAULT_FEATURES


class BrokerServices:
    """The parts of one broker, built and connected; attributes are what its role runs."""

    def __init__(self, node: NodeContext) -> None:
        self.metadata = MetadataCache()
        self.sliced_work = SlicedWork(node.environment.clock.monotonic_ms)
        self.publisher: MetadataPublisher
        self.channel = self._controller_channel(node)
        replication = Replication(node, self.metadata, self.channel)
        self.replica_manager = replication.replica_manager
        self.moves, self.fetchers = replication.moves, replication.fetchers
        self.coordinator = self._group_coordinator(node, replication)
        self.publisher = MetadataPublisher(
            node.config.node_id,
            self.metadata,
            node.dynamic,
            self.replica_manager.metadata_changes,
            {self.coordinator.topic: self.coordinator},
            self.fetchers,
            (replication.leader_quota, replication.follower_quota),
            self.channel.on_metadata,
        )
        self._handlers = broker_handlers(
            node, self.metadata, self.channel, replication, self.coordinator
        )

    def _controller_channel(self, node: NodeContext) -> ControllerChannel:
        log_manager = node.storage.log_manager
        channel = ControllerChannel(
            node.controller,
            node.config.node_id,
            lambda: self.publisher.applied_offset,
            node.config.broker_heartbeat_interval_ms,
            log_manager.dirs.offline_ids,
        )
        node.controller.on_connected(channel.heartbeat_soon)
        log_manager.on_failed = channel.directory_failed
        return channel

    def _group_coordinator(self, node: NodeContext, replication: Replication) -> GroupCoordinator:
        rng = node.environment.rng
        return group_coordinator(
            node.config,
            lambda: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            replicas=replication.replica_manager.led,
            timers=node.timers,
            clock=node.environment.clock,
            metadata=self.metadata,
        )

    def dispatcher(self) -> Dispatcher:
        """What a broker listener serves."""
        api_versions = ApiVersionsHandler(
            lambda: dispatcher.advertised(), self.metadata, DEFAULT_FEATURES
        )
        dispatcher = Dispatcher(
            {**self._handlers, **api_versions.table()}, UNSERVED_BY_BROKERS, self.sliced_work
        )
        return dispatcher
