"""Puts the parts of one broker together: managers, coordinators, handlers, and what each may ask.

Owns nothing but the wiring.  Every part gets its ports here and nowhere else, so that this file
shows who depends on whom; `node` decides when the parts run.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import ProcessLoggers
from kraftrio.base.timers import Timers
from kraftrio.broker.api.admin import AdminHandlers
from kraftrio.broker.api.cluster import ApiVersionsHandler, ClusterHandlers
from kraftrio.broker.api.configs import ConfigHandlers
from kraftrio.broker.api.fetch.fetch import FetchHandlers
from kraftrio.broker.api.fetch.session import FetchSessions
from kraftrio.broker.api.groups.absent_groups import AbsentGroupHandlers
from kraftrio.broker.api.groups.groups import CoordinatorHandlers
from kraftrio.broker.api.log_dirs import LogDirHandlers
from kraftrio.broker.api.offsets import OffsetHandlers
from kraftrio.broker.api.produce.produce import ProduceHandlers
from kraftrio.broker.api.quotas import QuotaHandlers
from kraftrio.broker.api.security import SecurityHandlers
from kraftrio.broker.api.transactions import TransactionHandlers
from kraftrio.broker.api.unserved_apis import UNSERVED_BY_BROKERS
from kraftrio.broker.config.checks import RACK_AWARE_SELECTOR
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.controller.channel import ControllerChannel
from kraftrio.broker.controller.client import ControllerClient
from kraftrio.broker.controller.producer_ids import ProducerIdManager
from kraftrio.broker.coordinator.runtime import GroupCoordinator
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.metadata_publisher import MetadataPublisher
from kraftrio.broker.ports import FutureReplica, LogDirectory, QuorumPort
from kraftrio.broker.replica.directory_assignments import DirectoryAssignments
from kraftrio.broker.replica.follower.fetcher import ReplicaFetchers
from kraftrio.broker.replica.isr_proposals import IsrProposals
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.moves import MOVE_RATE_CONFIG, ReplicaMoves
from kraftrio.broker.replica.quota import Direction, ReplicationQuota, SlidingRate
from kraftrio.broker.server.client_connection import ServerResources
from kraftrio.broker.server.dispatch import Dispatcher, Handler
from kraftrio.broker.server.sliced_work import SlicedWork
from kraftrio.kraft_meta.controller.control import DEFAULT_FEATURES
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    DescribeQuorumRequest,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey

_DESCRIBE_QUORUM_VERSION = 2


class LogDirectories:
    """What DescribeLogDirs tells of the log directories."""

    def __init__(
        self,
        log_manager: LogManager,
        futures_in: Callable[[LogDir], Mapping[TopicPartition, FutureReplica]],
    ) -> None:
        self._log_manager = log_manager
        self._futures_in = futures_in

    def log_directories(self) -> Sequence[LogDirectory]:
        """Every directory of log.dirs, with the sizes of its partitions."""
        found = []
        for log_dir in self._log_manager.dirs:
            if not log_dir.is_online:
                error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(log_dir.failure))
                found.append(LogDirectory(log_dir.path, {}, error=error))
                continue
            partitions = {
                log.topic_partition: log.size_bytes
                for log in self._log_manager.logs()
                if self._log_manager.dir_of(log.topic_partition) is log_dir
            }
            try:
                usage = shutil.disk_usage(log_dir.path)
            except OSError as error:  # whoever writes to it will take it offline
                failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                found.append(LogDirectory(log_dir.path, {}, error=failure))
                continue
            found.append(
                LogDirectory(
                    log_dir.path,
                    partitions,
                    usage.total,
                    usage.free,
                    futures=self._futures_in(log_dir),
                )
            )
        return found


class QuorumDescriptions:
    """Describes the metadata quorum, as its leader sees it."""

    def __init__(self, quorum: QuorumService, controller: ControllerClient) -> None:
        self._quorum = quorum
        self._controller = controller

    def describe_quorum(self, request: DescribeQuorumRequest) -> Deferred[Any]:
        """Answer, or ask the leader to."""
        if self._quorum.leader_id == self._quorum.node_id:
            return Deferred.completed(self._quorum.describe_quorum(request))
        return self._controller.submit(request, api_version=_DESCRIBE_QUORUM_VERSION)


def _quota(direction: Direction, config: BrokerConfig, clock: Clock) -> ReplicationQuota:
    return ReplicationQuota(
        direction,
        config.node_id,
        clock.monotonic_ms,
        window_count=config.replication_quota_window_num,
        window_size_seconds=config.replication_quota_window_size_seconds,
    )


class BrokerServices:
    """The parts of one broker, built and connected; attributes are what `node` runs."""

    def __init__(
        self,
        dynamic: DynamicConfig,
        log_manager: LogManager,
        quorum: QuorumService,
        controller: ControllerClient,
        timers: Timers,
        environment: Environment,
        resources: ServerResources,
    ) -> None:
        config = dynamic.static
        clock, rng = environment.clock, environment.rng
        self._dynamic = dynamic
        self._resources = resources
        self.sliced_work = SlicedWork(clock.monotonic_ms)
        self.metadata = MetadataCache()
        self.publisher: MetadataPublisher
        self.channel = ControllerChannel(
            controller,
            config.node_id,
            lambda: self.publisher.applied_offset,
            config.broker_heartbeat_interval_ms,
            log_manager.offline_directory_ids,
        )
        controller.on_connected(self.channel.heartbeat_soon)
        log_manager.on_failed = self.channel.directory_failed
        leader_quota = _quota(Direction.LEADER, config, clock)
        follower_quota = _quota(Direction.FOLLOWER, config, clock)
        self._placer = DirectoryAssignments(
            self.channel, config.node_id, self._broker_epoch, self.metadata, timers
        )
        self.replica_manager = self._build_replicas(log_manager, timers, clock)
        self.moves = self._build_moves(environment)
        self.fetchers = ReplicaFetchers(
            environment.network,
            config.node_id,
            self._broker_epoch,
            self.replica_manager,
            self.metadata,
            config,
            clock,
            rng,
            follower_quota,
            tells_news_at_once=True,
        )
        self.replica_manager.fetch_with(self.fetchers)
        self.coordinator = GroupCoordinator(
            replicas=self.replica_manager,
            timers=timers,
            clock=clock,
            metadata=self.metadata,
            properties=config,
            new_uuid=lambda: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        )
        self.publisher = MetadataPublisher(
            config.node_id,
            self.metadata,
            dynamic,
            self.replica_manager,
            self.coordinator,
            self.fetchers,
            (leader_quota, follower_quota),
            self.channel.on_metadata,
        )
        self._handlers = self._build_handlers(
            QuorumDescriptions(quorum, controller), log_manager, timers, clock, rng, leader_quota
        )

    def _build_replicas(
        self, log_manager: LogManager, timers: Timers, clock: Clock
    ) -> ReplicaManager:
        channel, config = self.channel, self._dynamic.static
        return ReplicaManager(
            config.node_id,
            log_manager,
            self.metadata,
            timers,
            clock,
            self._topic_log_config,
            proposals=IsrProposals(channel, config.node_id, self._broker_epoch, timers),
            placer=self._placer,
            lag_time_max_ms=config.replica_lag_time_max_ms,
        )

    def _build_moves(self, environment: Environment) -> ReplicaMoves:
        dynamic = self._dynamic
        config = dynamic.static

        def limit() -> int:
            rate = dynamic.dynamic_value(MOVE_RATE_CONFIG)
            assert isinstance(rate, int), rate
            return rate

        return ReplicaMoves(
            self.replica_manager,
            self.metadata,
            self._placer,
            environment.clock,
            environment.run_in_thread,
            limit,
            SlidingRate(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds,
            ),
        )

    def _broker_epoch(self) -> int:
        return self.channel.broker_epoch

    def _topic_log_config(self, topic: str) -> LogConfig:
        return self._dynamic.log_config(self.metadata.image, topic)

    def _build_handlers(
        self,
        quorum: QuorumPort,
        log_manager: LogManager,
        timers: Timers,
        clock: Clock,
        rng: random.Random,
        leader_quota: ReplicationQuota,
    ) -> dict[ApiKey, Handler]:
        dynamic, metadata, channel = self._dynamic, self.metadata, self.channel
        config = dynamic.static
        auto_topics = AutoTopicCreator(dynamic, metadata, channel)
        producer_ids = ProducerIdManager(
            config.node_id, self._broker_epoch, self._allocate_producer_ids
        )
        sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, rng)
        groups = (
            ProduceHandlers(self.replica_manager, metadata, producer_ids, clock).table(),
            FetchHandlers(
                self.replica_manager,
                metadata,
                sessions,
                timers,
                clock,
                config.fetch_max_bytes,
                leader_quota,
                self._resources.answers,
                selects_by_rack=config.replica_selector_class == RACK_AWARE_SELECTOR,
            ).table(),
            OffsetHandlers(self.replica_manager).table(),
            ClusterHandlers(
                dynamic, metadata, channel, quorum, auto_topics, lambda: rng.randbytes(16)
            ).table(),
            AdminHandlers(channel, timers).table(),
            LogDirHandlers(
                dynamic, LogDirectories(log_manager, self.moves.futures_in), self.moves
            ).table(),
            ConfigHandlers(dynamic, metadata, channel, ProcessLoggers()).table(),
            CoordinatorHandlers(
                self.coordinator, metadata, config, lambda name: auto_topics.create([name])
            ).table(),
            AbsentGroupHandlers(self.coordinator).table(),
            TransactionHandlers().table(),
            QuotaHandlers().table(),
            SecurityHandlers().table(),
        )
        handlers: dict[ApiKey, Handler] = {}
        for table in groups:
            assert not handlers.keys() & table.keys(), "an API has one handler"
            handlers |= table
        return handlers

    def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Deferred[AllocateProducerIdsResponse]:
        return self.channel.submit(request, api_version=0)

    def dispatcher(self) -> Dispatcher:
        """What a broker listener serves."""
        api_versions = ApiVersionsHandler(
            lambda: dispatcher.advertised(), self.metadata, DEFAULT_FEATURES
        )
        dispatcher = Dispatcher(
            {**self._handlers, **api_versions.table()}, UNSERVED_BY_BROKERS, self.sliced_work
        )
        return dispatcher
