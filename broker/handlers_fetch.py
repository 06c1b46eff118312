"""Fetch, with incremental sessions and long polls.

Behaviour (Apache Kafka's)
- A fetch answers at once when it has `min_bytes`, an error (other than of a topic that does not
  exist), or nothing to wait for; else it parks until enough was committed or `max_wait_ms` is over,
  and then reads again.
- The byte budget: the first batch of the first partition that has data comes whole, whatever the
  limits (KIP-74); after that `max_bytes` and each partition's limit hold.
- A consumer sees up to the high watermark, or with read_committed up to the last stable offset,
  with the aborted transactions of what it was given.
- An empty partition is an empty record set with valid offsets, never null, never an error.
- A follower sees up to the log end, and is woken by appends alone.  Its fetch tells its progress,
  before anything is read, so that the answer has the high watermark which that progress made; a
  fetch that diverges, or is out of range, tells nothing.
- A follower's session reads what is due alone (rule 6 of `fetch_session`): the replicas tell its
  `FollowerWatch` of news.
- Records are not held for the answer: what is more than a little stays in its file until the socket
  takes it (`StoredBytes`).
- A consumer is served by any replica from version 11 on, up to the high watermark known there; a
  leader may name it a nearer one (KIP-392, `replica_selector`).
- Followers outside of the ISR get nothing of a throttled partition while the quota is used up.

Version notes: 5 log start offsets, 7 sessions (KIP-227), 9 leader epochs (KIP-320), 11 the
consumer's rack (KIP-392), 12 divergence by last fetched epoch (KIP-595), 13 topic ids (KIP-516),
15 the follower's broker epoch (KIP-903), 16 the leader beside an error (KIP-951).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kraftrio.broker.clock import Clock
from kraftrio.broker.context import RequestContext
from kraftrio.broker.fetch_session import FetchKey, FetchPart, FetchPlan, FetchSessions
from kraftrio.broker.leader_hints import WRONG_LEADER, LeaderHints
from kraftrio.broker.memory_budget import MemoryBudget
from kraftrio.broker.metadata_cache import MetadataCache
from kraftrio.broker.partition import Partition
from kraftrio.broker.replica_manager import ReplicaManager
from kraftrio.broker.replica_ports import ReplicationQuota
from kraftrio.broker.replica_selector import ReplicaView, select_replica
from kraftrio.broker.timers import Timers
from kraftrio.broker.waiters import FetchWaiter, FollowerWatch
from kraftrio.kraft_meta.deferred import Deferred
from kraftrio.wire.api import ApiKey
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.data import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition
from kraftrio.wire.stored_bytes import StoredBytes

# Records of a partition up to this size are read for the answer, larger ones are only named in it:
# then the socket takes them from the file, which costs less from about here on.
_HOLD_BYTES = 16 << 10
_HOLD_BYTES_IN_ALL = 256 << 10

_CONSUMER_REPLICA_ID = -1
_READ_COMMITTED = 1
_ANY_REPLICA_VERSION = 11
_TOPIC_ID_VERSION = 13
_HINTS_VERSION = 16
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class _Reading(NamedTuple):
    """The outcome of reading all partitions of a fetch once."""

    data: list[tuple[FetchKey, FetchPart, PartitionData]]
    partitions: list[Partition]
    up_to_date: list[FetchKey]
    records_bytes: int
    must_answer: bool


@dataclass(slots=True)
class _Asking:
    """One fetch while it is worked on.

    Attributes:
        refused: what must not be read by this follower.
        watch: of a follower's session.
        only_leader: is a replica that does not lead no answer?
    """

    request: FetchRequest
    plan: FetchPlan
    replica_id: int
    refused: dict[FetchKey, KafkaError] = field(default_factory=dict)
    watch: FollowerWatch | None = None
    only_leader: bool = True


class FetchHandlers:
    """The handler of Fetch.

    Args:
        fetch_max_bytes: the broker's `fetch.max.bytes`, above which no answer grows.
        leader_quota: bounds what followers outside of the ISR get; None: nothing does.
        answers_memory: while it has no room, nothing is read for an answer.
        selects_by_rack: are consumers told of a replica in their rack (replica.selector.class)?
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        sessions: FetchSessions,
        timers: Timers,
        clock: Clock,
        fetch_max_bytes: int,
        leader_quota: ReplicationQuota | None = None,
        answers_memory: MemoryBudget | None = None,
        *,
        selects_by_rack: bool = False,
    ) -> None:
        self._replicas = replica_manager
        self._metadata = metadata
        self._sessions = sessions
        self._timers = timers
        self._clock = clock
        self._fetch_max_bytes = fetch_max_bytes
        self.leader_quota = leader_quota
        self._answers_memory = answers_memory
        self._selects_by_rack = selects_by_rack

    def table(self) -> dict[ApiKey, Callable[[Any, RequestContext], Any]]:
        return {ApiKey.FETCH: self.fetch}

    def fetch(
        self, request: FetchRequest, context: RequestContext
    ) -> FetchResponse | Deferred[FetchResponse]:
        """Read, and answer now or when there is enough."""
        by_id = context.api_version >= _TOPIC_ID_VERSION
        parts, forgotten = _asked(request, by_id)
        replica_id = _replica_id(request)
        now_ms = self._clock.monotonic_ms()
        plan = self._sessions.plan(
            request.session_id,
            request.session_epoch,
            parts,
            forgotten,
            uses_topic_ids=by_id,
            now_ms=now_ms,
            is_follower=replica_id >= 0,
        )
        if plan.error is not ErrorCode.NONE:
            return FetchResponse(error_code=plan.error)
        asking = _Asking(request, plan, replica_id)
        if replica_id == _CONSUMER_REPLICA_ID:
            asking.only_leader = context.api_version < _ANY_REPLICA_VERSION
        elif replica_id >= 0:
            context.client.is_peer = True
            self._note_progress(asking, now_ms)
        reading = self._read(asking)
        if (
            reading.must_answer
            or request.max_wait_ms <= 0
            or reading.records_bytes >= request.min_bytes
        ):
            return self._respond(plan, reading, context)
        deferred: Deferred[FetchResponse] = Deferred()
        on_close = context.client.on_close

        def answer() -> None:
            on_close.remove(waiter.drop)
            deferred.complete(self._respond(plan, self._read(asking), context))

        waiter = FetchWaiter(
            request.min_bytes - reading.records_bytes,
            answer,
            is_follower=replica_id != _CONSUMER_REPLICA_ID,
        )
        on_close.append(waiter.drop)
        if asking.watch is not None:
            asking.watch.waiter = waiter  # it is told of every partition of the session
            waiter.park([], self._timers, request.max_wait_ms)
        else:
            waiter.park(reading.partitions, self._timers, request.max_wait_ms)
        return deferred

    # -- followers ------------------------------------------------------------------------------

    def _note_progress(self, asking: _Asking, now_ms: float) -> None:
        """Tell the replicas what this follower has; whatever is wrong is told by reading."""
        replica_id, session = asking.replica_id, asking.plan.session
        broker_epoch = asking.request.replica_state.replica_epoch
        if session is not None:
            watch = session.watch
            if watch is None:
                watch = session.watch = FollowerWatch(session, replica_id, broker_epoch)
            watch.on_fetch(broker_epoch, now_ms)
            asking.watch = watch
        for key, part in asking.plan.partitions():
            try:
                partition = self._partition(key, part)
                diverges = part.last_fetched_epoch >= 0 and _divergence(partition, part)
            except KafkaError:
                continue
            log, offset = partition.log, part.fetch_offset
            if (
                diverges
                or not log.log_start_offset <= offset <= log.log_end_offset
                or partition.state.progress(replica_id) is None
            ):
                continue
            try:
                self._replicas.on_follower_fetch(
                    partition, replica_id, broker_epoch, offset, part.log_start_offset, now_ms
                )
            except KafkaError as error:
                asking.refused[key] = error

    def _is_held_back(self, partition: Partition, replica_id: int) -> bool:
        """Must a follower wait for bandwidth that others need more?"""
        quota = self.leader_quota
        return (
            quota is not None
            and replica_id not in partition.state.maximal_isr
            and quota.is_throttled(partition.topic_partition)
            and quota.exceeded()
        )

    # -- reading --------------------------------------------------------------------------------

    def _read(self, asking: _Asking) -> _Reading:
        plan, replica_id = asking.plan, asking.replica_id
        budget = min(asking.request.max_bytes, self._fetch_max_bytes)
        data: list[tuple[FetchKey, FetchPart, PartitionData]] = []
        partitions: list[Partition] = []
        up_to_date: list[FetchKey] = []
        total = 0
        memory = self._answers_memory
        may_hold = _HOLD_BYTES_IN_ALL if memory is None or memory.has_room else 0
        must_answer = False
        can_wait = plan.is_partial
        for key, part in plan.partitions():
            answer = PartitionData(
                partition_index=key.partition,
                high_watermark=-1,
                last_stable_offset=-1,
                log_start_offset=-1,
                records=b"",
            )
            data.append((key, part, answer))
            try:
                if key in asking.refused:
                    raise asking.refused[key]
                partition = self._partition(key, part, only_leader=asking.only_leader)
                can_wait = True
                if replica_id >= 0 and self._is_held_back(partition, replica_id):
                    _tell_offsets(partition, answer)
                    answer.aborted_transactions = None
                    continue
                partitions.append(partition)
                records_bytes = self._read_partition(
                    asking,
                    partition,
                    part,
                    answer,
                    budget - total,
                    min(_HOLD_BYTES, may_hold),
                    total == 0,
                )
            except KafkaError as error:
                answer.error_code = error.code
                # A topic that is not there is no news: told at once, over and over, it would make
                # its reader spin. A follower rests by itself, and looks for newer metadata.
                if error.code not in _UNKNOWN or replica_id != _CONSUMER_REPLICA_ID:
                    must_answer = True
                    answer.aborted_transactions = None
                continue
            total += records_bytes
            if not isinstance(answer.records, StoredBytes):
                may_hold -= records_bytes
            if answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
                must_answer = True
            elif asking.watch is not None:
                partition.watches[replica_id] = (asking.watch, key)
                if partition.confirmations and partition.must_show(replica_id):
                    must_answer = True  # so that it fetches again at once
                elif (
                    part.fetch_offset == partition.log.log_end_offset
                    and replica_id in partition.state.isr
                ):
                    up_to_date.append(key)
        # without any partition there is nothing to wait for
        return _Reading(data, partitions, up_to_date, total, must_answer or not can_wait)

    def _partition(self, key: FetchKey, part: FetchPart, *, only_leader: bool = True) -> Partition:
        """The replica that a key means, by the topic's identity when it was first named."""
        if part.topic_name is None:
            part.topic_name = self._metadata.topic_name(key.topic_id)
            if part.topic_name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        name = part.topic_name
        if key.topic_id != ZERO_UUID:
            current = self._metadata.topic_id(name)
            if current != key.topic_id and current != ZERO_UUID:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        topic_partition = TopicPartition(name, key.partition)
        find = self._replicas.leader if only_leader else self._replicas.readable
        return find(topic_partition, part.current_leader_epoch)

    def _read_partition(
        self,
        asking: _Asking,
        partition: Partition,
        part: FetchPart,
        answer: PartitionData,
        budget: int,
        hold_bytes: int,
        is_first_data: bool,
    ) -> int:
        """Fill in one partition's answer; return the bytes of its records."""
        log, replica_id = partition.log, asking.replica_id
        read_committed = asking.request.isolation_level == _READ_COMMITTED
        if replica_id >= 0:
            code = partition.state.check_follower(replica_id, part.current_leader_epoch)
            if code is not ErrorCode.NONE:
                raise KafkaError(code)
        if part.last_fetched_epoch >= 0:
            answer.diverging_epoch = _divergence(partition, part)
        if not asking.only_leader and asking.request.rack_id:
            answer.preferred_read_replica = self._nearer_replica(asking, partition, part)
        if answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
            records_bytes = 0
            answer.aborted_transactions = None
        else:
            if replica_id != _CONSUMER_REPLICA_ID:
                max_offset = log.log_end_offset
            elif read_committed:
                max_offset = log.last_stable_offset
            else:
                max_offset = partition.state.high_watermark
            try:
                read = log.read_lazily(
                    part.fetch_offset,
                    max(0, min(budget, part.partition_max_bytes)),
                    hold_bytes,
                    max_offset=max_offset,
                    min_one_batch=is_first_data,
                )
            except OSError as error:
                raise self._replicas.disk_errors.refused("read", partition, error) from error
            answer.records = read.records
            records_bytes = len(read.records)
            if not read_committed:
                answer.aborted_transactions = None
            else:
                answer.aborted_transactions = [
                    AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                    for txn in (
                        log.aborted_transactions(part.fetch_offset, read.next_offset)
                        if records_bytes
                        else ()
                    )
                ]
            if (
                replica_id >= 0
                and records_bytes
                and self.leader_quota is not None
                and self.leader_quota.is_throttled(partition.topic_partition)
            ):
                self.leader_quota.record(records_bytes)
        _tell_offsets(partition, answer)
        return records_bytes

    def _nearer_replica(self, asking: _Asking, partition: Partition, part: FetchPart) -> int:
        """The replica that the consumer shall read from instead of its leader here, or -1."""
        state = partition.state
        if not self._selects_by_rack or not state.is_leader:
            return -1
        rack_id, log = asking.request.rack_id, partition.log
        views = [
            ReplicaView(state.broker_id, self._rack(state.broker_id), log.log_end_offset, 0.0, True)
        ]
        for replica_id in state.isr:
            progress = state.progress(replica_id)
            if (
                progress is not None
                and progress.log_start_offset <= part.fetch_offset <= progress.log_end_offset
            ):
                rack = self._rack(replica_id)
                views.append(
                    ReplicaView(
                        replica_id, rack, progress.log_end_offset, progress.last_caught_up_ms
                    )
                )
        chosen = select_replica(rack_id, views)
        return -1 if chosen is None else chosen

    def _rack(self, broker_id: int) -> str | None:
        broker = self._metadata.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    # -- answering ------------------------------------------------------------------------------

    def _respond(
        self, plan: FetchPlan, reading: _Reading, context: RequestContext
    ) -> FetchResponse:
        topics: dict[tuple[bytes, str], FetchableTopicResponse] = {}
        hints: LeaderHints | None = None
        served: list[FetchKey] = []
        for key, part, answer in reading.data:
            has_records = bool(answer.records)
            if not plan.is_news(
                part,
                has_records=has_records
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0,
                error=answer.error_code,
                high_watermark=answer.high_watermark,
                last_stable_offset=answer.last_stable_offset,
                log_start_offset=answer.log_start_offset,
            ):
                continue
            if has_records:
                served.append(key)
            elif answer.error_code in WRONG_LEADER and context.api_version >= _HINTS_VERSION:
                hints = hints or LeaderHints(self._metadata, context.listener_name)
                assert part.topic_name is not None, "only a known topic has a leader"
                answer.current_leader = hints.leader_of(part.topic_name, key.partition)
            topic = topics.get(key[:2])
            if topic is None:
                topic = FetchableTopicResponse(
                    topic=key.topic, topic_id=key.topic_id, partitions=[]
                )
                topics[key[:2]] = topic
            topic.partitions.append(answer)
        if reading.up_to_date:
            plan.is_up_to_date(reading.up_to_date)
        if served:
            plan.move_to_back(served)
        return FetchResponse(
            session_id=plan.session_id,
            responses=list(topics.values()),
            node_endpoints=[] if hints is None else hints.node_endpoints(),
        )


def _tell_offsets(partition: Partition, answer: PartitionData) -> None:
    answer.high_watermark = partition.state.high_watermark
    answer.last_stable_offset = partition.log.last_stable_offset
    answer.log_start_offset = partition.log.log_start_offset


def _divergence(partition: Partition, part: FetchPart) -> FetchEpochEndOffset | None:
    """Has the reader fetched what this log does not have?  Where the paths part, if so.

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE: no epoch so early is known here.
    """
    epoch, end_offset = partition.log.end_offset_for_epoch(part.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= part.last_fetched_epoch and end_offset >= part.fetch_offset:
        return None
    return FetchEpochEndOffset(epoch=epoch, end_offset=end_offset)


def _replica_id(request: FetchRequest) -> int:
    """The follower that asks, -1 for a consumer; version 15 moved it into a tagged field."""
    if request.replica_state.replica_id != _CONSUMER_REPLICA_ID:
        return request.replica_state.replica_id
    return request.replica_id


def _asked(request: FetchRequest, by_id: bool) -> tuple[dict[FetchKey, FetchPart], list[FetchKey]]:
    """The partitions that a request adds or changes, and those that it drops."""
    parts: dict[FetchKey, FetchPart] = {}
    for topic in request.topics:
        topic_id = topic.topic_id if by_id else ZERO_UUID
        for asked in topic.partitions:
            parts[FetchKey(topic_id, topic.topic, asked.partition)] = FetchPart(
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
                asked.log_start_offset,
                topic_name=None if by_id else topic.topic,
            )
    forgotten = [
        FetchKey(topic.topic_id if by_id else ZERO_UUID, topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return parts, forgotten
