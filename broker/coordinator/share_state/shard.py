"""One shard of the share coordinator: the share partitions of one `__share_group_state` partition.

Rules
1. A request makes at most one record, and the state is what the records make of it. A response,
   also one that needs no record, comes once all that the shard wrote so far is committed.
2. A state is initialized by the group's coordinator, which draws a state epoch for that; an older
   one is fenced. A leader that reads the state says which leader epoch it has; from then on older
   leaders are fenced.
3. Every so many updates a snapshot is written; a state that its leader leaves alone is written
   again from time to time, unless none is used. So all that lies below the oldest of the last
   snapshots is redundant, and is deleted from time to time, once all these snapshots are committed.
4. States of deleted topics are removed.

Sans-IO; run by the coordinator runtime. The source is Kafka 4.3's ShareCoordinatorShard, with its
messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.outcome import (
    Change,
    CoordinatorRecord,
    FollowUp,
    Now,
    Outcome,
    RecordMessages,
)
from kraftrio.broker.coordinator.share_state.ports import (
    PartitionCount,
    Prune,
    ShareStateProperties,
)
from kraftrio.broker.coordinator.share_state.records import (
    read_record,
    snapshot_record,
    tombstone,
    update_record,
)
from kraftrio.broker.coordinator.share_state.state import ShareSnapshot, StoredPartition
from kraftrio.broker.share_state import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_EPOCH,
    NO_START_OFFSET,
    SharePartitionKey,
    SharePartitionState,
    ShareStateWrite,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import NO_PRODUCER_ID

_PRUNE, _PRUNE_COMMITTED, _COLD = ("prune",), ("prune committed",), ("cold",)
_COLD_AT_ONCE = 250  # states that are looked at in one step; the others follow in the next one
_NEXT_STEP_MS = 1
_COMMIT_PAUSE_MS = 1000  # between two looks whether all is committed

_UNKNOWN: Final = SharePartitionState(0, 0, NO_START_OFFSET, NO_DELIVERY_COMPLETE_COUNT)


class ShareStateShard:
    """The share partitions of one partition. See the rules at the top of the module.

    Args:
        prune: called from `on_deadline`.
    """

    def __init__(
        self, properties: ShareStateProperties, partition_count: PartitionCount, prune: Prune
    ) -> None:
        self._properties = properties
        self._partition_count = partition_count
        self._prune = prune
        self._stored: dict[SharePartitionKey, StoredPartition] = {}
        self._last_tombstone_offset = 0
        self._redundant_offset = self._pruned_offset = 0
        self._written_offset = self._committed_offset = 0  # the ends of what was
        self._prune_after_offset = 0  # is committed
        self._cold: list[SharePartitionKey] = []  # still to be looked at, the last one first
        self._deadlines = DeadlineQueue()

    # --- requests ---

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now: Now
    ) -> Outcome:
        """Give a share partition a new state. The response is None.

        Raises:
            KafkaError: INVALID_REQUEST, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_index(key)
        stored = self._stored.get(key)
        snapshot_epoch = 0
        if stored is not None:
            _check_state_epoch(stored, state_epoch)
            snapshot_epoch = stored.state.snapshot_epoch + 1
        self._check_topic(key)
        state = ShareSnapshot.initial(
            state_epoch, start_offset, now.wall_ms, snapshot_epoch=snapshot_epoch
        )
        return _written([snapshot_record(key, state)], None)

    def read(self, key: SharePartitionKey, leader_epoch: int, now: Now) -> Outcome:
        """Give a leader the state, and fence those before it. The response is the state.

        Raises:
            KafkaError: INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_index(key)
        stored = self._initialized(key, "Read")
        if stored.fences_leader_epoch(leader_epoch):
            raise _error(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_topic(key)
        state = stored.state
        records = []
        if leader_epoch not in (NO_EPOCH, stored.highest_leader_epoch):
            same = ShareStateWrite(
                state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count
            )
            records.append(self._record(key, stored, same, leader_epoch, now))
        return _written(records, state.value)

    def write(self, key: SharePartitionKey, write: ShareStateWrite, now: Now) -> Outcome:
        """Store what a leader decided about records. The response is None.

        Raises:
            KafkaError: INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
                UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_index(key)
        stored = self._initialized(key, "Write")
        if stored.fences_leader_epoch(write.leader_epoch):
            raise _error(ErrorCode.FENCED_LEADER_EPOCH)
        _check_state_epoch(stored, write.state_epoch)
        self._check_topic(key)
        return _written([self._record(key, stored, write, stored.state.leader_epoch, now)], None)

    def summary(self, key: SharePartitionKey) -> Outcome:
        """Say how far a share partition is, without fencing. The response is the state.

        Raises:
            KafkaError: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_index(key)
        self._check_topic(key)
        stored = self._stored.get(key)
        return _written([], _UNKNOWN if stored is None else stored.state.value)

    def delete(self, key: SharePartitionKey) -> Outcome:
        """Remove a share partition; one that is not there is removed. The response is None.

        Raises:
            KafkaError: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_index(key)
        self._check_topic(key)
        return _written([tombstone(key)] if key in self._stored else [], None)

    def statistics(self) -> dict[str, int]:
        """How many share partitions there are."""
        return {"share_partitions": len(self._stored)}

    def _initialized(self, key: SharePartitionKey, operation: str) -> StoredPartition:
        stored = self._stored.get(key)
        if stored is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{operation} operation on uninitialized share partition not allowed.",
            )
        return stored

    def _check_topic(self, key: SharePartitionKey) -> None:
        if key.partition >= self._partition_count(key.topic_id):
            raise _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _record(
        self,
        key: SharePartitionKey,
        stored: StoredPartition,
        write: ShareStateWrite,
        leader_epoch: int,
        now: Now,
    ) -> CoordinatorRecord:
        """The record of a write: a snapshot, if there were updates enough."""
        if stored.update_count >= self._updates_per_snapshot:
            return snapshot_record(
                key, stored.state.next_snapshot(write, leader_epoch, now.wall_ms)
            )
        return update_record(key, stored.state.next_update(write, leader_epoch))

    @property
    def _updates_per_snapshot(self) -> int:
        return self._properties.share_coordinator_snapshot_update_records_per_snapshot

    # --- changes ---

    def replay(
        self,
        record_offset: int,
        key: Buffer,
        value: Buffer | None,
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        committed: bool = True,
        messages: RecordMessages | None = None,
    ) -> None:
        """Apply one record; record types of a newer Kafka are passed over.

        Raises RemoteProtocolError when the record cannot be read.
        """
        self._written_offset = record_offset + 1
        if committed:
            self._committed_offset = self._written_offset
        read = read_record(key, value)
        if read is None:
            return
        share_partition, content = read
        if content is None:
            self._stored.pop(share_partition, None)
            self._last_tombstone_offset = record_offset
            return
        stored = self._stored.get(share_partition)
        if isinstance(content, ShareSnapshot):
            if stored is None:
                stored = self._stored[share_partition] = StoredPartition(content)
            stored.on_snapshot(content, record_offset, self._updates_per_snapshot)
        elif stored is not None:
            stored.on_update(content)
        else:
            self._stored[share_partition] = StoredPartition(content.alone, update_count=1)

    def replay_end_transaction(
        self, producer_id: int, end_offset: int, now: Now, *, commit: bool, committed: bool = True
    ) -> None:
        """Nobody writes to this topic in a transaction; a marker in it changes nothing."""

    def apply(
        self, change: Change, end_offset: int, now: Now, *, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        raise AssertionError("records of the share coordinator are replayed")

    def on_committed(self, end_offset: int) -> None:
        self._committed_offset = max(self._committed_offset, end_offset)

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        raise AssertionError("nothing follows the records of the share coordinator")

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> Outcome:
        """Remove the states of deleted topics."""
        ids = set(topics.values())
        records = [tombstone(key) for key in self._stored if key.topic_id in ids]
        return Outcome(records=records, replay=True, splittable=True)

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Each request looks up its own topic."""

    # --- time ---

    def next_deadline_ms(self) -> float | None:
        return self._deadlines.next_deadline_ms()

    def on_deadline(self, now: Now) -> list[Outcome]:
        """Delete what is redundant; write cold states again, some of them in each step."""
        outcomes = []
        while (deadline := self._deadlines.pop_due(now.monotonic_ms)) is not None:
            if deadline == _PRUNE:
                self._redundant_offset = self._find_redundant_offset()
                self._prune_after_offset = self._written_offset
                self._prune_redundant(now)
                self._schedule_prune(now)
            elif deadline == _PRUNE_COMMITTED:
                self._prune_redundant(now)
            else:
                outcomes.append(Outcome(records=self._cold_snapshots(now), replay=True))
        return outcomes

    def _schedule_prune(self, now: Now) -> None:
        interval_ms = self._properties.share_coordinator_state_topic_prune_interval_ms
        self._deadlines.schedule(_PRUNE, now.monotonic_ms + interval_ms)

    def _find_redundant_offset(self) -> int:
        """The offset below which every record is superseded by one that was written."""
        offsets = [stored.snapshot_offset or 0 for stored in self._stored.values()]
        return min(offsets, default=self._last_tombstone_offset)

    def _prune_redundant(self, now: Now) -> None:
        """Delete below the redundant offset, if what supersedes it cannot be lost any more."""
        if self._redundant_offset <= self._pruned_offset:
            return
        if self._committed_offset < self._prune_after_offset:
            self._deadlines.schedule(_PRUNE_COMMITTED, now.monotonic_ms + _COMMIT_PAUSE_MS)
        elif self._prune(self._redundant_offset):
            self._pruned_offset = self._redundant_offset

    def _cold_snapshots(self, now: Now) -> list[CoordinatorRecord]:
        """Snapshots of the next states whose last one is long ago."""
        interval_ms = self._properties.share_coordinator_cold_partition_snapshot_interval_ms
        if not self._cold and any(not one.state.is_cold for one in self._stored.values()):
            self._cold.extend(reversed(self._stored))
        records = []
        for _ in range(min(_COLD_AT_ONCE, len(self._cold))):
            key = self._cold.pop()
            stored = self._stored.get(key)
            if stored is not None and now.wall_ms - stored.state.written_ms >= interval_ms:
                records.append(snapshot_record(key, stored.state.rewritten(now.wall_ms)))
        delay_ms = _NEXT_STEP_MS if self._cold else interval_ms
        self._deadlines.schedule(_COLD, now.monotonic_ms + delay_ms)
        return records

    # --- life of the shard ---

    def on_loaded(self, now: Now) -> Outcome:
        """Begin to serve: everything was replayed."""
        self._schedule_prune(now)
        interval_ms = self._properties.share_coordinator_cold_partition_snapshot_interval_ms
        self._deadlines.schedule(_COLD, now.monotonic_ms + interval_ms)
        return Outcome()

    def on_leader_epoch(self, leader_epoch: int) -> None:
        """Share partitions do not depend on who leads."""

    def unload(self, now: Now) -> Outcome:
        """Stop: the next leader finds all of it in the log."""
        return Outcome()


def _written(records: list[CoordinatorRecord], response: SharePartitionState | None) -> Outcome:
    """Rule 1."""
    return Outcome(records=records, response=response, replay=True, stable=True)


def _check_index(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")


def _check_state_epoch(stored: StoredPartition, state_epoch: int) -> None:
    if stored.fences_state_epoch(state_epoch):
        raise _error(ErrorCode.FENCED_STATE_EPOCH)


def _error(code: ErrorCode) -> KafkaError:
    return KafkaError(code, code.sentence)
