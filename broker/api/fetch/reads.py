"""What a fetch comes to, partition by partition: a follower's progress, and what is read.

Owns `FetchReader`, which works on some of a fetch's partitions at a time, in their order: a fetch
of a few is read in one step, one of very many in parts (`long_fetch`). What came of earlier parts
is in `ReadOutcome`, so that all of them together are held to the limits of one fetch.

The rules of Fetch are in `fetch/fetch`. Called by it and `long_fetch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from kraftrio.broker.api.fetch.nearest_replica import ReplicaView, select_replica
from kraftrio.broker.api.fetch.session import (
    FetchKey,
    FetchPart,
    FetchPlan,
    FetchSession,
    SessionWatch,
)
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import ReplicationThrottle
from kraftrio.broker.replica.traffic import TopicTraffic
from kraftrio.broker.replica.waiting.waiters import FetchWaiters
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, ResourceType
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.data import (
    AbortedTransaction,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition
from kraftrio.wire.stored_bytes import StoredBytes

CONSUMER_REPLICA_ID = -1

# Records of a partition up to this size are read for the answer, larger ones are only named in it:
# then the socket takes them from the file, which costs less from about here on.
_HOLD_BYTES = 16 << 10
_HOLD_BYTES_IN_ALL = 256 << 10

_READ, _TOPIC = AclOperation.READ, ResourceType.TOPIC
_READ_COMMITTED = 1
_ANY_REPLICA_VERSION = 11
_TOPIC_ID_VERSION = 13
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Entries: TypeAlias = Iterable[tuple[FetchKey, FetchPart]]
"""Some of the partitions of a fetch, in their order."""


@dataclass(slots=True)
class OngoingFetch:
    """One fetch while it is worked on.

    Attributes:
        refused: what must not be read by this follower.
        session: of a follower; the replicas that it reads report their changes to it.
        only_leader: is a replica that does not lead no answer?
        most_bytes: what it may be answered with at most, the first batch apart.
        guard: whom to ask who may read what; None: everybody may.
    """

    request: FetchRequest
    plan: FetchPlan
    replica_id: int
    refused: dict[FetchKey, KafkaError] = field(default_factory=dict)
    session: FetchSession | None = None
    only_leader: bool = True
    most_bytes: int = 0
    guard: RequestContext | None = None

    def check_consumer(self, topic: str) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the sender may read a topic, now.

        It is asked for each read: much may have changed while a fetch waited.
        """
        guard = self.guard
        if guard is not None and not guard.may(_READ, _TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def check_follower(self) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the sender may act for the cluster, now."""
        guard = self.guard
        if guard is not None and not guard.is_authorized(AclOperation.CLUSTER_ACTION, CLUSTER):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class ReadOutcome:
    """The outcome of reading the partitions of a fetch once.

    Attributes:
        budget: how many bytes of records may still be read.
        may_hold: how many of them may be read for the answer.
        can_wait: is there a partition that may get more?
        only_looks: nothing is answered with what is read.
        waiters: where to wait for more.
        served: what was read of topics: records, and their bytes.
    """

    __slots__ = (
        "_is_follower",
        "budget",
        "can_wait",
        "data",
        "has_news",
        "may_hold",
        "only_looks",
        "records_bytes",
        "served",
        "up_to_date",
        "waiters",
    )

    def __init__(
        self, budget: int, may_hold: int, can_wait: bool, only_looks: bool, is_follower: bool
    ) -> None:
        self._is_follower = is_follower
        self.budget = budget
        self.may_hold = may_hold
        self.can_wait = can_wait
        self.only_looks = only_looks
        self.data: list[tuple[FetchKey, FetchPart, PartitionData]] = []
        self.waiters: list[FetchWaiters] = []
        self.up_to_date: list[FetchKey] = []
        self.served: list[tuple[TopicTraffic, int, int]] = []
        self.records_bytes = 0
        self.has_news = False

    @property
    def must_answer(self) -> bool:
        """Is there nothing to wait for?"""
        return self.has_news or not self.can_wait

    def clear(self) -> None:
        """Drop what was read, and go on to count."""
        self.data.clear()
        self.waiters.clear()
        self.up_to_date.clear()
        self.served.clear()

    def count_served(self) -> None:
        """What was read is going to be sent."""
        for traffic, records, size_bytes in self.served:
            if self._is_follower:
                traffic.replication_bytes_out += size_bytes
            else:
                traffic.bytes_out += size_bytes
                traffic.records_out += records


@dataclass(slots=True, frozen=True)
class FetchSettings:
    """What the broker's settings say of fetches.

    Attributes:
        max_bytes: above which no answer grows (fetch.max.bytes).
        leader_quota: bounds what followers outside of the ISR get; None: nothing does.
        throttle: holds consumers to their quotas; None: they have none.
        response_memory: while it has no room, nothing is read for an answer.
        selects_by_rack: is a consumer sent to a replica in its rack (replica.selector.class)?
    """

    max_bytes: int
    leader_quota: ReplicationThrottle | None = None
    response_memory: MemoryBudget | None = None
    selects_by_rack: bool = False
    throttle: Throttle | None = None


class FetchReader:
    """See the module."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        settings: FetchSettings,
    ) -> None:
        self._replicas = replica_manager
        self._metadata = metadata
        self._settings = settings

    # -- followers ------------------------------------------------------------------------------

    def ask(
        self,
        request: FetchRequest,
        replica_id: int,
        plan: FetchPlan,
        context: RequestContext,
        now_ms: float,
    ) -> OngoingFetch:
        """Begin to work on a fetch; a follower's session is notified of changes from now on."""
        session = plan.session
        fetch = OngoingFetch(request, plan, replica_id)
        fetch.most_bytes = min(request.max_bytes, self._settings.max_bytes)
        throttle = self._settings.throttle
        if replica_id < 0 and throttle is not None and throttle.quotas.is_on:
            fetch.most_bytes = int(min(fetch.most_bytes, throttle.most_consumed_bytes(context)))
            request.min_bytes = min(request.min_bytes, fetch.most_bytes)
        fetch.guard = context if context.is_guarded else None
        if replica_id == CONSUMER_REPLICA_ID:
            fetch.only_leader = context.api_version < _ANY_REPLICA_VERSION
        elif replica_id >= 0:
            context.client.is_peer = True
            if session is not None:
                session.on_follower_fetch(request.replica_state.replica_epoch, now_ms)
                fetch.session = session
        return fetch

    def note_progress(self, fetch: OngoingFetch, entries: Entries, now_ms: float) -> None:
        """Note what this follower has; reading finds out whatever is wrong."""
        replica_id = fetch.replica_id
        broker_epoch = fetch.request.replica_state.replica_epoch
        for key, part in entries:
            try:
                partition = self._partition(fetch, key, part)
                diverges = part.last_fetched_epoch >= 0 and _divergence(partition, part)
            except KafkaError:
                continue
            log, offset = partition.log, part.fetch_offset
            if (
                diverges
                or not log.log_start_offset <= offset <= log.log_end_offset
                or partition.state.followers.get(replica_id) is None
            ):
                continue
            try:
                self._replicas.isrs.on_follower_fetch(
                    partition, replica_id, broker_epoch, offset, part.log_start_offset, now_ms
                )
            except KafkaError as error:
                fetch.refused[key] = error

    def _is_held_back(self, partition: Partition, replica_id: int) -> bool:
        """Must a follower wait for bandwidth that others need more?"""
        quota = self._settings.leader_quota
        return (
            quota is not None
            and replica_id not in partition.state.isr.maximal
            and quota.is_throttled(partition.topic_partition)
            and quota.exceeded()
        )

    def _note_throttled(self, partition: Partition, records_bytes: int) -> None:
        quota = self._settings.leader_quota
        if quota is not None and quota.is_throttled(partition.topic_partition):
            quota.record(records_bytes)

    # -- reading ----------------------------------------------------------------------------------

    def reading(self, fetch: OngoingFetch, *, only_looks: bool = False) -> ReadOutcome:
        """Begin to read.

        Args:
            only_looks: nothing is answered with what is read.
        """
        memory, plan = self._settings.response_memory, fetch.plan
        return ReadOutcome(
            fetch.most_bytes,
            _HOLD_BYTES_IN_ALL if memory is None or memory.has_room else 0,
            plan.session is not None and plan.is_partial,
            only_looks,
            fetch.replica_id != CONSUMER_REPLICA_ID,
        )

    def read_some(self, fetch: OngoingFetch, reading: ReadOutcome, entries: Entries) -> None:
        """Read the next partitions of a fetch."""
        replica_id = fetch.replica_id
        for key, part in entries:
            answer = PartitionData(
                partition_index=key.partition,
                high_watermark=-1,
                last_stable_offset=-1,
                log_start_offset=-1,
                records=b"",
            )
            if not reading.only_looks:
                reading.data.append((key, part, answer))
            try:
                if key in fetch.refused:
                    raise fetch.refused[key]
                partition = self._partition(fetch, key, part, only_leader=fetch.only_leader)
                reading.can_wait = True
                if replica_id >= 0 and self._is_held_back(partition, replica_id):
                    _set_offsets(partition, answer)
                    answer.aborted_transactions = None
                    continue
                if fetch.session is None:
                    reading.waiters.append(_waiters(fetch, partition))
                records_bytes = self._read_partition(fetch, partition, part, answer, reading)
            except KafkaError as error:
                answer.error_code = error.code
                # A topic that does not exist is no reason to answer, or its reader would spin. A
                # follower rests by itself, and looks for newer metadata.
                if error.code not in _UNKNOWN or replica_id != CONSUMER_REPLICA_ID:
                    reading.has_news = True
                    answer.aborted_transactions = None
                continue
            reading.records_bytes += records_bytes
            if not isinstance(answer.records, StoredBytes):
                reading.may_hold -= records_bytes
            if replica_id >= 0 and records_bytes and not reading.only_looks:
                self._note_throttled(partition, records_bytes)
            if answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
                reading.has_news = True
            elif fetch.session is not None:
                watch = partition.watches.get(replica_id)
                if not isinstance(watch, SessionWatch) or not watch.is_of(fetch.session, key):
                    partition.watches[replica_id] = SessionWatch(fetch.session, key)
                if partition.confirmations and partition.must_show(replica_id):
                    reading.has_news = True  # so that it fetches again at once
                elif (
                    part.fetch_offset == partition.log.log_end_offset
                    and replica_id in partition.state.isr.committed
                ):
                    reading.up_to_date.append(key)

    def _partition(
        self, fetch: OngoingFetch, key: FetchKey, part: FetchPart, *, only_leader: bool = True
    ) -> Partition:
        """The replica that a key means, by the topic's identity when it was first named."""
        if fetch.replica_id >= 0:
            fetch.check_follower()
        if part.topic_name is None:
            part.topic_name = self._metadata.topic_name(key.topic_id)
            if part.topic_name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        name = part.topic_name
        if fetch.replica_id < 0:
            fetch.check_consumer(name)
        if key.topic_id != ZERO_UUID:
            current = self._metadata.topic_id(name)
            if current != key.topic_id and current != ZERO_UUID:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        topic_partition = TopicPartition(name, key.partition)
        hosted = self._replicas.hosted
        find = hosted.leader if only_leader else hosted.readable
        return find(topic_partition, part.current_leader_epoch)

    def _read_partition(
        self,
        fetch: OngoingFetch,
        partition: Partition,
        part: FetchPart,
        answer: PartitionData,
        reading: ReadOutcome,
    ) -> int:
        """Fill in one partition's answer; return the bytes of its records."""
        log, replica_id = partition.log, fetch.replica_id
        read_committed = fetch.request.isolation_level == _READ_COMMITTED
        if replica_id >= 0:
            code = partition.state.check_follower(replica_id, part.current_leader_epoch)
            if code is not ErrorCode.NONE:
                raise KafkaError(code)
        if part.last_fetched_epoch >= 0:
            answer.diverging_epoch = _divergence(partition, part)
        if not fetch.only_leader and fetch.request.rack_id:
            answer.preferred_read_replica = self._nearer_replica(fetch, partition, part)
        if answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
            records_bytes = 0
            answer.aborted_transactions = None
        else:
            if replica_id != CONSUMER_REPLICA_ID:
                max_offset = log.log_end_offset
            elif read_committed:
                max_offset = log.last_stable_offset
            else:
                max_offset = partition.state.high_watermark
            try:
                read = log.read_lazily(
                    part.fetch_offset,
                    max(0, min(reading.budget - reading.records_bytes, part.partition_max_bytes)),
                    min(_HOLD_BYTES, reading.may_hold),
                    max_offset=max_offset,
                    min_one_batch=reading.records_bytes == 0,
                )
                records_bytes = len(read.records)
                aborted = (
                    log.aborted_transactions(part.fetch_offset, read.next_offset)
                    if read_committed and records_bytes
                    else ()
                )
            except OSError as error:
                raise self._replicas.disk_errors.refused("read", partition, error) from error
            answer.records = read.records
            if records_bytes:
                records = read.next_offset - part.fetch_offset
                reading.served.append((partition.traffic, records, records_bytes))
            if not read_committed:
                answer.aborted_transactions = None
            else:
                answer.aborted_transactions = [
                    AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                    for txn in aborted
                ]
        _set_offsets(partition, answer)
        return records_bytes

    def _nearer_replica(self, fetch: OngoingFetch, partition: Partition, part: FetchPart) -> int:
        """The replica that the consumer should read from instead of its leader here, or -1."""
        state = partition.state
        if not self._settings.selects_by_rack or not state.is_leader:
            return -1
        rack_id, log = fetch.request.rack_id, partition.log
        views = [
            ReplicaView(state.broker_id, self._rack(state.broker_id), log.log_end_offset, 0.0, True)
        ]
        for replica_id in state.isr.committed:
            progress = state.followers.get(replica_id)
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


def _waiters(fetch: OngoingFetch, partition: Partition) -> FetchWaiters:
    """Where a fetch waits for more of a partition."""
    if fetch.replica_id != CONSUMER_REPLICA_ID:
        return partition.follower_waiters
    if fetch.request.isolation_level == _READ_COMMITTED:
        return partition.stable_waiters.from_offset(partition.log.last_stable_offset)
    return partition.fetch_waiters


def _set_offsets(partition: Partition, answer: PartitionData) -> None:
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


# -- what a request asks -------------------------------------------------------------------------


def uses_topic_ids(context: RequestContext) -> bool:
    """Does a request name topics by their ids?"""
    return context.api_version >= _TOPIC_ID_VERSION


def replica_id_of(request: FetchRequest) -> int:
    """The follower that asks, -1 for a consumer; version 15 moved it into a tagged field."""
    if request.replica_state.replica_id != CONSUMER_REPLICA_ID:
        return request.replica_state.replica_id
    return request.replica_id


def asked_of(topic: FetchTopic, by_id: bool) -> Iterator[tuple[FetchKey, FetchPart]]:
    """The partitions of a topic that a request adds or changes."""
    topic_id = topic.topic_id if by_id else ZERO_UUID
    for asked in topic.partitions:
        yield FetchKey(topic_id, topic.topic, asked.partition), _part_of(asked, topic, by_id)


def asked_at_once(request: FetchRequest, by_id: bool) -> dict[FetchKey, FetchPart]:
    """All partitions that a request adds or changes."""
    parts: dict[FetchKey, FetchPart] = {}
    for topic in request.topics:
        topic_id, name = topic.topic_id if by_id else ZERO_UUID, topic.topic
        for asked in topic.partitions:
            parts[FetchKey(topic_id, name, asked.partition)] = _part_of(asked, topic, by_id)
    return parts


def _part_of(asked: FetchPartition, topic: FetchTopic, by_id: bool) -> FetchPart:
    return FetchPart(
        asked.fetch_offset,
        asked.partition_max_bytes,
        asked.current_leader_epoch,
        asked.last_fetched_epoch,
        asked.log_start_offset,
        topic_name=None if by_id else topic.topic,
    )


def forgotten_of(topic: ForgottenTopic, by_id: bool) -> Iterator[FetchKey]:
    """The partitions of a topic that a request drops."""
    topic_id = topic.topic_id if by_id else ZERO_UUID
    for index in topic.partitions:
        yield FetchKey(topic_id, topic.topic, index)
