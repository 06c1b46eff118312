"""Runs the shards of the group coordinator: loads, appends, parks replies, keeps their time.

Owns one `GroupShard` for each partition of `__consumer_offsets` that this broker leads, and the
mapping from a group to its partition. Rules:

1. A shard is made by `elect` and dropped by `resign`; everything it had not committed is dropped
   with it, and whoever waits hears NOT_COORDINATOR.
2. Loading: the shard first waits until all that the partition holds at the election is committed,
   then replays it in chunks with checkpoints between; requests meet COORDINATOR_LOAD_IN_PROGRESS
   until then. An empty partition is ready at once.
3. A shard's outcome is carried out in one go, with no await: reply, append, replay. The response
   waits for the records' commit, for at most `offsets.commit.timeout.ms`.
4. Failures of an append reach members as coordinator errors, never as those of producing.

Called by the coordinator handlers (`write`, `read`, ...) and the metadata publisher (`elect`,
`resign`, `on_topics_deleted`); `run` is a task of the node.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, partial
from typing import TypeVar

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.groups.shard import GroupShard
from kraftrio.broker.coordinator.outcome import (
    CoordinatorRecord,
    FollowUp,
    Now,
    Outcome,
    append_error_to_response,
)
from kraftrio.broker.coordinator.ports import (
    OFFSETS_TOPIC,
    Clocks,
    GroupProperties,
    Metadata,
    Replicas,
    ScheduledTimer,
    TimerService,
)
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.wire.errors import CorruptRecordError, ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer, TopicPartition
from kraftrio.wire.records.batch import (
    BatchHeader,
    Record,
    build_batch,
    iter_headers,
    iter_records,
    verify_crc,
)
from kraftrio.wire.records.compression import Compression
from kraftrio.wire.records.control import read_end_transaction_marker

_log = logging.getLogger("kraftrio.groups")

R = TypeVar("R")

# How much is replayed, or appended of a splittable outcome, before others get their turn.
_REPLAY_SLICE_RECORDS = 500
_APPEND_SLICE_RECORDS = 1000
_RELOAD_MS = 5000
# What a disk may do to a log that is there: the same load may succeed later. A damaged batch may
# look like one of an old format.
_OF_THE_DISK = frozenset(
    {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
)


@lru_cache(maxsize=8192)
def java_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a group or transactional id belongs to."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


class SlotState(Enum):
    """LOADING moves to ACTIVE or FAILED; a failed slot waits for the next election."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Slot:
    """One led partition and its shard."""

    topic_partition: TopicPartition
    leader_epoch: int
    shard: GroupShard
    state: SlotState = SlotState.LOADING
    written_end_offset: int = 0
    deleted_topics: dict[str, bytes] = field(default_factory=dict)
    """Topics deleted while the shard was loading."""
    timer: ScheduledTimer | None = None
    timer_ms: float = field(default=float("inf"))


class GroupCoordinator:
    """The shards of this broker. See the rules at the top of the module."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        timers: TimerService,
        clock: Clocks,
        metadata: Metadata,
        properties: GroupProperties,
        new_uuid: Callable[[], str],
    ) -> None:
        self._replicas = replicas
        self._timers = timers
        self._clock = clock
        self._metadata = metadata
        self._properties = properties
        self._new_uuid = new_uuid
        self._slots: dict[int, Slot] = {}
        self._to_load: deque[Slot] = deque()
        self._load_wanted = trio.Event()

    # --- which partition ---

    def partition_count(self) -> int:
        """How many partitions the offsets topic has; the configured count until it exists."""
        topic = self._metadata.topic(OFFSETS_TOPIC)
        return (
            self._properties.offsets_topic_num_partitions
            if topic is None
            else len(topic.partitions)
        )

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.partition_count())

    # --- elections ---

    def elect(self, partition: int, leader_epoch: int) -> None:
        """This broker leads a partition now: make its shard and load it.

        A shard goes on when the leader epoch is the same or the next, since nobody else can have
        led in between.
        """
        former = self._slots.get(partition)
        if former is not None:
            if leader_epoch <= former.leader_epoch + 1 and former.state is not SlotState.FAILED:
                former.leader_epoch = max(former.leader_epoch, leader_epoch)
                return
            self.resign(partition)
        slot = Slot(
            TopicPartition(OFFSETS_TOPIC, partition),
            leader_epoch,
            GroupShard(self._properties, self._new_uuid),
        )
        self._slots[partition] = slot
        if self._is_empty(slot):
            self._activate(slot)
        else:
            self._load_when_committed(slot)

    def _load_when_committed(self, slot: Slot) -> None:
        """Load a shard once its followers have all of it; nobody else waits for that."""

        def load(_code: ErrorCode) -> None:
            self._to_load.append(slot)  # which tells what is wrong, if anything is
            self._load_wanted.set()

        try:
            end_offset = self._replicas.log(slot.topic_partition).log_end_offset
        except KafkaError as error:
            load(error.code)
        else:
            self._replicas.when_committed(slot.topic_partition, end_offset, None, load)

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker no longer leads a partition; with an epoch, only if that is not outdated."""
        slot = self._slots.get(partition)
        if slot is None or (leader_epoch is not None and leader_epoch < slot.leader_epoch):
            return
        del self._slots[partition]
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None
        self._send_replies(slot.shard.unload(self._now()))
        _log.debug("resigned partition=%s epoch=%d", slot.topic_partition, slot.leader_epoch)

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Topics (name and id) were deleted: so are their committed offsets."""
        for slot in list(self._slots.values()):
            if slot.state is SlotState.ACTIVE:
                self._carry_out(slot, slot.shard.delete_topics(topics))
            else:
                slot.deleted_topics.update(topics)

    def _is_current(self, slot: Slot) -> bool:
        return self._slots.get(slot.topic_partition.partition) is slot

    # --- loading ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load shards as they are elected, one after the other, until cancelled."""
        task_status.started()
        while True:
            shards = records = 0
            while self._to_load:
                records += await self.load(self._to_load.popleft())
                shards += 1
            if records:
                _log.info("groups loaded partitions=%d records=%d", shards, records)
            self._load_wanted = trio.Event()
            await self._load_wanted.wait()

    async def load(self, slot: Slot) -> int:
        """Replay a partition into its shard and begin to serve it; return how many records."""
        if not self._is_current(slot):
            return 0
        try:
            record_count = await self._replay_log(slot)
        except (KafkaError, RemoteProtocolError) as error:
            if self._is_current(slot):
                slot.state = SlotState.FAILED
                _log.error("load failed partition=%s reason=%s", slot.topic_partition, error)
                if isinstance(error, KafkaError) and error.code in _OF_THE_DISK:
                    self._timers.schedule(_RELOAD_MS, partial(self._load_again, slot))
            return 0
        if self._is_current(slot):
            _log.debug("loaded partition=%s records=%d", slot.topic_partition, record_count)
            self._activate(slot)
        return record_count

    def _load_again(self, slot: Slot) -> None:
        """Start over with a shard whose disk failed, unless somebody else leads by now."""
        if self._is_current(slot):
            self.elect(slot.topic_partition.partition, slot.leader_epoch)

    async def _replay_log(self, slot: Slot) -> int:
        topic_partition = slot.topic_partition
        log = self._replicas.log(topic_partition)
        end_offset = log.log_end_offset
        await self._wait_committed(topic_partition, end_offset)
        offset, record_count, slice_count = log.log_start_offset, 0, 0
        while offset < end_offset and self._is_current(slot):
            read = self._replicas.read_log(
                topic_partition, offset, self._properties.offsets_load_buffer_size
            )
            if not len(read.records):
                break  # the tail holds no batches any more
            start = offset
            for header in iter_headers(read.records, allow_partial=True):
                verify_crc(read.records, header)
                offset = header.next_offset
                self._replay_batch(slot, read.records, header)
                record_count += header.record_count
                slice_count += header.record_count
                if slice_count >= _REPLAY_SLICE_RECORDS:
                    slice_count = 0
                    await trio.lowlevel.checkpoint()
                    if not self._is_current(slot):
                        return record_count
            if offset == start:
                raise CorruptRecordError(f"no whole batch at offset {offset}")
        return record_count

    async def _wait_committed(self, topic_partition: TopicPartition, end_offset: int) -> None:
        committed: Deferred[ErrorCode] = Deferred()
        self._replicas.when_committed(topic_partition, end_offset, None, committed.complete)
        error = await committed.wait()
        # What is behind the high watermark stays, however few replicas are in sync by now.
        if error not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            raise KafkaError(error)

    def _replay_batch(self, slot: Slot, buf: Buffer, header: BatchHeader) -> None:
        shard, now = slot.shard, self._now()
        if header.is_control:
            marker = read_end_transaction_marker(buf, header)
            if marker is not None:
                shard.replay_end_transaction(
                    header.base_offset, header.producer_id, commit=marker.commit
                )
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iter_records(buf, header):
            if record.key is None:
                continue
            try:
                shard.replay(record.offset, record.key, record.value, now, producer_id=producer_id)
            except RemoteProtocolError as error:
                # A record of a newer Kafka must not take the whole partition away.
                _log.warning(
                    "record skipped partition=%s offset=%d reason=%s",
                    slot.topic_partition, record.offset, error,
                )  # fmt: skip

    def _is_empty(self, slot: Slot) -> bool:
        try:
            return self._replicas.is_empty(slot.topic_partition)
        except KafkaError:
            return False  # `load` will say so

    def _activate(self, slot: Slot) -> None:
        slot.state = SlotState.ACTIVE
        self._carry_out(slot, slot.shard.on_loaded(self._now()))
        if slot.deleted_topics:
            self._carry_out(slot, slot.shard.delete_topics(slot.deleted_topics))
        self._reschedule(slot)

    # --- requests ---

    def _slot_for(self, group_id: str) -> Slot:
        slot = self._slots.get(self.partition_for(group_id))
        if slot is None or slot.state is SlotState.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if slot.state is SlotState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return slot

    def read(self, group_id: str, operation: Callable[[GroupShard, Now], R]) -> R:
        """Ask a group's shard something that appends nothing.

        Raises:
            KafkaError: this broker is not the group's coordinator, or the shard refuses.
        """
        slot = self._slot_for(group_id)
        result = operation(slot.shard, self._now())
        self._reschedule(slot)
        return result

    def read_stable(
        self, group_id: str, operation: Callable[[GroupShard, Now], R]
    ) -> Deferred[R | ErrorCode]:
        """Ask like `read`, and answer once everything written so far is committed.

        The result is an ErrorCode when that fails.
        """
        deferred: Deferred[R | ErrorCode] = Deferred()
        try:
            slot = self._slot_for(group_id)
            result = operation(slot.shard, self._now())
        except KafkaError as error:
            deferred.complete(error.code)
            return deferred
        self._replicas.when_committed(
            slot.topic_partition,
            slot.written_end_offset,
            self._commit_deadline_ms(),
            lambda code: deferred.complete(result if code is ErrorCode.NONE else code),
        )
        return deferred

    def read_all(self, operation: Callable[[GroupShard], R]) -> list[R]:
        """Ask every shard.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while one is loading.
        """
        results = []
        for _, slot in sorted(self._slots.items()):
            if slot.state is SlotState.LOADING:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if slot.state is SlotState.ACTIVE:
                results.append(operation(slot.shard))
        return results

    def write(
        self,
        group_id: str,
        operation: Callable[[GroupShard, Now], Outcome],
        error_response: Callable[[ErrorCode], R],
    ) -> Deferred[R]:
        """Let a group's shard serve a request; its response comes when its records are committed.

        `error_response` makes the response to a failure of the whole request.
        """
        deferred: Deferred[R] = Deferred()
        try:
            slot = self._slot_for(group_id)
            outcome = operation(slot.shard, self._now())
        except KafkaError as error:
            deferred.complete(error_response(error.code))
            return deferred
        self._carry_out(slot, outcome, deferred, error_response)
        self._reschedule(slot)
        return deferred

    def write_parked(
        self,
        group_id: str,
        operation: Callable[[GroupShard, Deferred[R], Now], Outcome],
        error_response: Callable[[ErrorCode], R],
    ) -> Deferred[R]:
        """Like `write` for requests that the shard parks: the operation gets the ticket."""
        deferred: Deferred[R] = Deferred()
        try:
            slot = self._slot_for(group_id)
            outcome = operation(slot.shard, deferred, self._now())
        except KafkaError as error:
            deferred.complete(error_response(error.code))
            return deferred
        self._carry_out(slot, outcome)
        self._reschedule(slot)
        return deferred

    # --- outcomes ---

    def _carry_out(
        self,
        slot: Slot,
        outcome: Outcome,
        deferred: Deferred[R] | None = None,
        error_response: Callable[[ErrorCode], R] | None = None,
    ) -> None:
        """Reply, append and replay (rule 3)."""
        self._send_replies(outcome)
        respond: Callable[[ErrorCode], None] | None = None
        if deferred is not None and error_response is not None:
            respond = partial(_respond, deferred, outcome.response, error_response)
        if not outcome.records:
            if respond is not None:
                respond(ErrorCode.NONE)
            return
        try:
            end_offset = self._append(slot, outcome)
        except KafkaError as error:
            _log.warning("append failed partition=%s reason=%s", slot.topic_partition, error)
            self._settle(slot, 0, outcome.follow_up, respond, error.code)
            return
        self._replicas.when_committed(
            slot.topic_partition,
            end_offset,
            self._commit_deadline_ms(),
            partial(self._settle, slot, end_offset, outcome.follow_up, respond),
        )

    def _append(self, slot: Slot, outcome: Outcome) -> int:
        """Append an outcome's records and replay them; return the end offset."""
        records = outcome.records
        step = _APPEND_SLICE_RECORDS if outcome.splittable else len(records)
        end_offset = slot.written_end_offset
        for start in range(0, len(records), step):
            end_offset = self._append_batch(slot, records[start : start + step], outcome.replay)
        return end_offset

    def _append_batch(self, slot: Slot, records: list[CoordinatorRecord], replay: bool) -> int:
        now = self._now()
        batch = build_batch(
            [Record(0, now.wall_ms, key, value) for key, value in records],
            compression=Compression(self._properties.offsets_topic_compression_codec),
            base_sequence=0,  # what Kafka's coordinator writes, though there is no producer id
        )
        info = self._replicas.append_to_leader(
            slot.topic_partition, batch, origin=AppendOrigin.COORDINATOR
        )
        if replay:
            for i, (key, value) in enumerate(records):
                slot.shard.replay(info.base_offset + i, key, value, now, committed=False)
        slot.written_end_offset = info.base_offset + len(records)
        return slot.written_end_offset

    def _settle(
        self,
        slot: Slot,
        end_offset: int,
        follow_up: FollowUp | None,
        respond: Callable[[ErrorCode], None] | None,
        error: ErrorCode,
    ) -> None:
        """The records of an outcome are committed, or are known to have failed."""
        is_current = self._is_current(slot)
        if is_current and error is ErrorCode.NONE:
            slot.shard.on_committed(end_offset)
        elif is_current and error is ErrorCode.REQUEST_TIMED_OUT:
            # The request gave up, but the records are in the log and may yet be committed.
            self._replicas.when_committed(
                slot.topic_partition, end_offset, None, partial(self._show, slot, end_offset)
            )
        if respond is not None:
            respond(error)
        if is_current and follow_up is not None:
            self._carry_out(slot, slot.shard.on_append_done(follow_up, error, self._now()))
            self._reschedule(slot)

    def _show(self, slot: Slot, end_offset: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE and self._is_current(slot):
            slot.shard.on_committed(end_offset)

    def _send_replies(self, outcome: Outcome) -> None:
        for ticket, response in outcome.replies:
            ticket.complete(response)

    # --- time ---

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _commit_deadline_ms(self) -> float:
        return self._clock.monotonic_ms() + self._properties.offsets_commit_timeout_ms

    def _reschedule(self, slot: Slot) -> None:
        """Make sure that a timer runs at or before the shard's next deadline."""
        deadline_ms = slot.shard.next_deadline_ms()
        if deadline_ms is None or deadline_ms >= slot.timer_ms or not self._is_current(slot):
            return
        if slot.timer is not None:
            slot.timer.cancel()
        slot.timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        slot.timer = self._timers.schedule(delay_ms, partial(self._on_timer, slot))

    def _on_timer(self, slot: Slot) -> None:
        slot.timer, slot.timer_ms = None, float("inf")
        if not self._is_current(slot):
            return
        for outcome in slot.shard.on_deadline(self._now()):
            self._carry_out(slot, outcome)
        self._reschedule(slot)


def _respond(
    deferred: Deferred[R],
    response: R,
    error_response: Callable[[ErrorCode], R],
    error: ErrorCode,
) -> None:
    if error is ErrorCode.NONE:
        deferred.complete(response)
    else:
        deferred.complete(error_response(append_error_to_response(error)))
