"""Puts together the replicas of one broker, and what copies, moves and throttles them.

Owns nothing but the wiring; attributes are what `services` and the broker's role use.
"""

from __future__ import annotations

from kraftrio.broker.controller.channel import ControllerChannel
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.replica.directories.directory_assignments import DirectoryAssignments
from kraftrio.broker.replica.follower.fetcher import ReplicaFetchers
from kraftrio.broker.replica.follower.leader_fetcher import FollowerContext
from kraftrio.broker.replica.isr.isr_proposals import IsrProposals
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.moves import MOVE_RATE_CONFIG, ReplicaMoves
from kraftrio.broker.replica.quota import Direction, ReplicationQuota, SlidingRate
from kraftrio.broker.replica.settings import ReplicaSettings


class Replication:
    """See the module."""

    def __init__(
        self, node: NodeContext, metadata: MetadataCache, channel: ControllerChannel
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._channel = channel
        self.leader_quota = self._quota(Direction.LEADER)
        self.follower_quota = self._quota(Direction.FOLLOWER)
        self._directory_reports = DirectoryAssignments(
            channel, node.config.node_id, self._broker_epoch, metadata, node.timers
        )
        self.replica_manager = self._replica_manager()
        self.moves = self._moves()
        self.fetchers = self._fetchers()
        self.replica_manager.fetch_with(self.fetchers)

    def _broker_epoch(self) -> int:
        return self._channel.broker_epoch

    def _quota(self, direction: Direction) -> ReplicationQuota:
        config = self._node.config
        return ReplicationQuota(
            direction,
            config.node_id,
            self._node.environment.clock.monotonic_ms,
            window_count=config.replication_quota_window_num,
            window_size_seconds=config.replication_quota_window_size_seconds,
        )

    def _replica_manager(self) -> ReplicaManager:
        node, config = self._node, self._node.config

        def log_config(topic: str) -> LogConfig:
            return node.dynamic.log_config(self._metadata.image, topic)

        return ReplicaManager(
            ReplicaSettings(
                config.node_id,
                log_config,
                config.replica_lag_time_max_ms,
                node.environment.freeze_objects,
            ),
            node.storage.log_manager,
            self._metadata,
            node.timers,
            node.environment.clock,
            IsrProposals(self._channel, config.node_id, self._broker_epoch, node.timers),
            self._directory_reports,
        )

    def _moves(self) -> ReplicaMoves:
        dynamic, config = self._node.dynamic, self._node.config
        environment = self._node.environment

        def rate_limit() -> int:
            rate = dynamic.dynamic_value(MOVE_RATE_CONFIG)
            assert isinstance(rate, int), rate
            return rate

        return ReplicaMoves(
            self.replica_manager,
            self._metadata,
            self._directory_reports,
            environment.clock,
            environment.run_in_thread,
            rate_limit,
            SlidingRate(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds,
            ),
        )

    def _fetchers(self) -> ReplicaFetchers:
        environment, config = self._node.environment, self._node.config
        return ReplicaFetchers(
            FollowerContext(
                broker_id=config.node_id,
                broker_epoch=self._broker_epoch,
                replicas=self.replica_manager.follower_writes,
                metadata=self._metadata,
                config=config,
                network=self._node.security.brokers,
                clock=environment.clock,
                rng=environment.rng,
                quota=self.follower_quota,
                names_changes_at_once=True,
            )
        )
