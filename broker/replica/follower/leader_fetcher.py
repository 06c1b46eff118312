"""The connection to one leader that this broker follows, and what comes over it.

What is asked and what an answer means is the core's (`follower/fetch`), what is done to logs is the
replica manager's.

Rules
1. Answers are worked on where they arrive, in the connection's own task, and the next request
   leaves at once: a round costs no switch of tasks.
2. The connection is kept while there is something to follow from the leader; when the last
   partition leaves (the leader has died, say) it is closed.
3. A lost connection is tried again after 20 ms, then ever later, up to a second; at once when
   metadata names the leader again.
4. An outage is one line at its start and one at its end.

Called by: `follower/fetcher`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.base.clock import Clock
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.follower.fetch import FollowerFetch, SentFetch, SentOffsets
from kraftrio.broker.replica.follower.partition import (
    Append,
    Effect,
    FollowerFetchSettings,
    FollowerQuota,
    ReplicaLog,
    StartAt,
    TruncateTo,
    Warn,
)
from kraftrio.net.connection import Connection, ConnectionLost, Reply
from kraftrio.net.link import Address, Link, LinkSettings, Loss
from kraftrio.net.transport import Network
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer, TopicPartition

_log = logging.getLogger("kraftrio.replication")

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 9

_BACKOFF: Final = ExponentialBackoff(20, 1000)


class FollowedReplica(Protocol):
    """A replica hosted here."""

    @property
    def log(self) -> ReplicaLog: ...

    @property
    def is_in_sync(self) -> bool:
        """Is it in the ISR, by the newest metadata?"""


class FollowerReplicas(Protocol):
    """What is asked of the replica manager; all raise KafkaError."""

    def partition(self, topic_partition: TopicPartition, /) -> FollowedReplica | None: ...

    def append_as_follower(
        self,
        topic_partition: TopicPartition,
        records: Buffer,
        leader_epoch: int,
        *,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        topic_id: bytes,
    ) -> None: ...

    def truncate(
        self, topic_partition: TopicPartition, offset: int, leader_epoch: int, topic_id: bytes, /
    ) -> None: ...

    def truncate_fully_and_start_at(
        self, topic_partition: TopicPartition, offset: int, leader_epoch: int, topic_id: bytes, /
    ) -> None: ...


class NoQuota:
    """Nothing is throttled."""

    is_active = False

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return False

    def exceeded(self) -> bool:
        return False

    def record(self, size_bytes: int) -> None:
        return None


class LeaderAddress(NamedTuple):
    """Where a leader is, and which life of it."""

    host: str
    port: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class FollowerContext:
    """The broker that follows: who it is, what it knows and what it may use.

    Attributes:
        replicas: those hosted here; what was fetched goes there.
        names_changes_at_once: see `follower/fetch`; all brokers must answer accordingly.
    """

    broker_id: int
    broker_epoch: Callable[[], int]
    replicas: FollowerReplicas
    metadata: MetadataCache
    config: BrokerConfig
    network: Network
    clock: Clock
    rng: random.Random
    quota: FollowerQuota
    names_changes_at_once: bool = False

    def is_in_sync(self, topic_partition: TopicPartition) -> bool:
        """Is this broker in the partition's ISR, by the newest metadata?"""
        replica = self.replicas.partition(topic_partition)
        return replica is not None and replica.is_in_sync

    def target(self, leader_id: int) -> LeaderAddress | None:
        """Where a leader listens for other brokers, by the newest image."""
        broker = self.metadata.image.brokers.get(leader_id)
        if broker is None:
            return None
        endpoint = broker.endpoint(self.config.inter_broker_listener_name)
        if endpoint is None:
            return None
        return LeaderAddress(endpoint.host, endpoint.port, broker.broker_epoch)


class LeaderFetcher:
    """The connection to one leader and the task that keeps it up."""

    def __init__(self, follower: FollowerContext, leader_id: int) -> None:
        config = follower.config
        self._follower = follower
        self._leader_id = leader_id
        self.core = FollowerFetch(
            FollowerFetchSettings(
                broker_id=follower.broker_id,
                max_wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                partition_max_bytes=config.replica_fetch_max_bytes,
                backoff_ms=config.replica_fetch_backoff_ms,
                names_changes_at_once=follower.names_changes_at_once,
            ),
            follower.quota,
            follower.is_in_sync,
        )
        self._timeout_s = config.replica_socket_timeout_ms / 1000
        connect_timeout_ms = config.socket_connection_setup_timeout_ms
        self._link = Link(
            follower.network,
            self._address,
            LinkSettings(
                client_id=f"broker-{follower.broker_id}-fetcher-{leader_id}",
                connect_timeout=ExponentialBackoff(connect_timeout_ms, connect_timeout_ms),
                backoff=_BACKOFF,
            ),
            rng=follower.rng,
        )
        self._target: LeaderAddress | None = None  # where the link goes
        self._sleep = trio.CancelScope()  # until the connection ends, or there is more to ask

    # -- what is followed -----------------------------------------------------------------------

    def add(
        self, topic_partition: TopicPartition, topic_id: bytes, leader_epoch: int, log: ReplicaLog
    ) -> None:
        self._carry_out(self.core.add(topic_partition, topic_id, leader_epoch, log))
        # Several partitions come at once, with one change of metadata: one request for them all.
        self._wake()

    def remove(self, topic_id: bytes, partition_index: int) -> None:
        self.core.remove(topic_id, partition_index)
        if not len(self.core):
            self._wake()

    def _wake(self) -> None:
        self._sleep.deadline = min(self._sleep.deadline, trio.current_time())
        self._link.retry_now()

    def metadata_changed(self) -> None:
        """Rule 3."""
        target = self._follower.target(self._leader_id)
        if target != self._target and (target is not None or self._link.connection is None):
            self._link.redial("the leader is at another address")

    # -- the task -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a connection while there is something to follow."""
        await self._link.keep(self._fetch, self._on_loss, wanted=lambda: len(self.core) > 0)

    def _address(self) -> Address | None:
        self._target = target = self._follower.target(self._leader_id)
        return None if target is None else (target.host, target.port)

    async def _fetch(self, connection: Connection) -> None:
        """Ask until the connection ends or nothing is left to follow; answers ask again."""
        try:
            while len(self.core) and not connection.is_closed:
                with trio.CancelScope() as self._sleep:
                    self._ask()
                    await connection.wait_closed()
        finally:
            self.core.on_lost()

    def _on_loss(self, loss: Loss) -> None:
        if self._link.failures == 1:
            _log.warning(
                'replication interrupted leader=%d partitions=%d reason="%s"',
                self._leader_id,
                len(self.core),
                loss.reason,
            )

    # -- rounds ---------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Send what there is to ask, and come back when there may be more."""
        connection = self._link.connection
        if connection is None:
            return
        now_ms = self._follower.clock.monotonic_ms()
        core = self.core
        try:
            offsets = core.next_offsets()
            if offsets is not None:
                latest = connection.send(offsets.latest, LIST_OFFSETS_VERSION, self._timeout_s)
                earliest = connection.send(offsets.earliest, LIST_OFFSETS_VERSION, self._timeout_s)
                earliest.then(partial(self._on_offsets, offsets, latest))
            while True:
                sent = core.next_fetch(now_ms, self._follower.broker_epoch())
                if sent is None:
                    break
                reply = connection.send(sent.request, FETCH_VERSION, self._timeout_s)
                reply.then(partial(self._on_fetched, sent))
        except ConnectionLost:  # closed meanwhile, or the leader no longer takes anything
            connection.close()
            return
        wake_ms = core.next_wake_ms(now_ms)
        if wake_ms is not None:
            deadline = wake_ms / 1000
            if deadline < self._sleep.deadline:
                self._sleep.deadline = deadline

    def _on_fetched(self, sent: SentFetch, reply: Reply) -> None:
        try:
            response = reply.value()
        except ConnectionLost:
            return  # the task sees it
        if self._link.succeeded():
            _log.info(
                "replication resumed leader=%d partitions=%d", self._leader_id, len(self.core)
            )
        now_ms = self._follower.clock.monotonic_ms()
        self._carry_out(self.core.on_response(sent, response, now_ms))
        self._ask()

    def _on_offsets(self, sent: SentOffsets, latest: Reply, earliest: Reply) -> None:
        try:
            ends, starts = latest.value(), earliest.value()
        except ConnectionLost:
            return
        now_ms = self._follower.clock.monotonic_ms()
        self._carry_out(self.core.on_offsets(sent, ends, starts, now_ms))
        self._ask()

    # -- effects --------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Warn):
                self._log_warning(effect)
            elif self.core.is_followed(effect.partition):
                warning = self._do(effect)
                if warning is not None:
                    self._log_warning(warning)

    def _do(self, effect: Append | TruncateTo | StartAt) -> Warn | None:
        partition = effect.partition
        topic_partition = partition.topic_partition
        replicas = self._follower.replicas
        try:
            if isinstance(effect, Append):
                replicas.append_as_follower(
                    topic_partition,
                    effect.records,
                    partition.leader_epoch,
                    leader_high_watermark=effect.high_watermark,
                    leader_log_start_offset=effect.log_start_offset,
                    topic_id=partition.key.topic_id,
                )
            elif isinstance(effect, TruncateTo):
                self._log_truncation(effect, effect.reason)
                replicas.truncate(
                    topic_partition, effect.offset, partition.leader_epoch, partition.key.topic_id
                )
            else:
                self._log_truncation(effect, f"the leader's log starts at {effect.offset}")
                replicas.truncate_fully_and_start_at(
                    topic_partition, effect.offset, partition.leader_epoch, partition.key.topic_id
                )
        except KafkaError as error:
            return self.core.failed(effect, error.code, self._follower.clock.monotonic_ms())
        return self.core.done(effect, self._follower.clock.monotonic_ms())

    def _log_truncation(self, effect: TruncateTo | StartAt, reason: str) -> None:
        log = effect.partition.log
        if isinstance(effect, TruncateTo) and effect.offset >= log.log_end_offset:
            return  # an epoch without records, at most
        is_loss = effect.offset < log.high_watermark
        _log.log(
            logging.WARNING if is_loss else logging.INFO,
            'truncate partition=%s-%d offset=%d end=%d high_watermark=%d leader=%d reason="%s"',
            *effect.partition.topic_partition,
            effect.offset,
            log.log_end_offset,
            log.high_watermark,
            self._leader_id,
            reason,
        )

    def _log_warning(self, warning: Warn) -> None:
        partition = warning.partition
        code: ErrorCode = warning.code
        _log.warning(
            "replication %s partition=%s-%d leader=%d leader_epoch=%d error=%s",
            "waits for metadata" if warning.gives_up else "delayed",
            *partition.topic_partition,
            self._leader_id,
            partition.leader_epoch,
            code.name,
        )
