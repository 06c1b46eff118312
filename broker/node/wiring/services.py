"""Puts the parts of one broker together: what each may ask is given to it here and nowhere else.

Owns nothing but the wiring, as do `replication`, `coordination` and `broker_handlers`, so that they
show who depends on whom; `broker_role` decides when the parts run.
"""

from __future__ import annotations

from kraftrio.broker.api.api_versions import ApiVersionsHandler
from kraftrio.broker.api.shared.refusals import refuse
from kraftrio.broker.api.unserved_apis import UNSERVED_BY_BROKERS
from kraftrio.broker.controller.channel import ControllerChannel
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.settings import quota_windows
from kraftrio.broker.node.wiring.broker_handlers import broker_handlers
from kraftrio.broker.node.wiring.coordination import Coordination
from kraftrio.broker.node.wiring.metadata_publisher import MetadataPublisher, Quotas
from kraftrio.broker.node.wiring.replication import Replication
from kraftrio.broker.node.wiring.share_groups import share_handlers, share_partitions
from kraftrio.broker.security.quotas.client_quotas import ClientQuotas
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.slices.sliced_work import SlicedWork
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.kraft_meta.controller.control import DEFAULT_FEATURES
from kraftrio.kraft_meta.metadata.client_limits import ClientLimits
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage


class BrokerServices:
    """The parts of one broker, built and connected; attributes are what its role runs."""

    def __init__(self, node: NodeContext) -> None:
        self.metadata = MetadataCache()
        self._authorizer = node.authorizer
        self.sliced_work = SlicedWork(node.environment.clock.monotonic_ms)
        self.publisher: MetadataPublisher
        client_quotas = ClientQuotas(quota_windows(node.config))
        self.throttle = Throttle(client_quotas, node.environment.clock)
        self.channel = self._controller_channel(node, client_quotas.mutations)
        replication = Replication(node, self.metadata, self.channel)
        self.replica_manager = replication.replica_manager
        self.moves, self.fetchers = replication.moves, replication.fetchers
        self.coordination = Coordination(
            node, self.metadata, self.channel, replication, self.sliced_work
        )
        self.share_partitions = share_partitions(
            node, self.metadata, replication, self.coordination
        )
        self.publisher = MetadataPublisher(
            node.config.node_id,
            self.metadata,
            node.dynamic,
            self.replica_manager.metadata_changes,
            self.coordination.by_topic,
            (self.fetchers, *self.coordination.links.values()),
            Quotas(
                (replication.leader_quota, replication.follower_quota),
                (client_quotas, node.resources.connections),
            ),
            self._when_applied,
        )
        self._handlers = broker_handlers(
            node, self.metadata, self.channel, replication, self.coordination, self.throttle
        ) | share_handlers(
            node, self.metadata, self.coordination, self.share_partitions, self.throttle
        )
        self.coordination.local_calls.serve(self._handlers)

    def _when_applied(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.coordination.markers.metadata_changed()
        if delta.changed_topics or delta.deleted_topics:
            self.share_partitions.metadata_changed()
        self.channel.on_metadata(delta, image)

    def _controller_channel(
        self, node: NodeContext, mutation_limits: ClientLimits
    ) -> ControllerChannel:
        log_manager = node.storage.log_manager
        channel = ControllerChannel(
            node.controller,
            node.config.node_id,
            lambda: self.publisher.applied_offset,
            node.config.broker_heartbeat_interval_ms,
            log_manager.dirs.offline_ids,
            mutation_limits,
        )
        node.controller.on_connected(channel.heartbeat_soon)
        log_manager.on_failed = channel.directory_failed
        return channel

    def dispatcher(self) -> Dispatcher:
        """What a broker listener serves."""
        api_versions = ApiVersionsHandler(
            lambda: dispatcher.advertised(), self.metadata, DEFAULT_FEATURES
        )
        dispatcher = Dispatcher(
            {**self._handlers, **api_versions.table()},
            UNSERVED_BY_BROKERS,
            self.sliced_work,
            authorizer=self._authorizer,
            refuse=refuse,
            throttle=self.throttle,
        )
        return dispatcher
