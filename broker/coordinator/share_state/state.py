"""What the share coordinator holds of one share partition, and how records change it.

Rules (Kafka's)
1. A snapshot replaces the state; an update is merged into it. An update knows no state epoch.
2. The epochs that requests are fenced by are the highest of all records, not those of the last:
   a state that is initialized again starts over with leader epoch 0, but its leader does not.
3. Updates are counted; where the next write is due to be a snapshot, that begins a new count.

Values are never changed in place. Called by `shard`, with what `records` has read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kraftrio.broker.coordinator.share_state.batches import Batches, combine
from kraftrio.broker.share_state import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_EPOCH,
    NO_START_OFFSET,
    SharePartitionState,
    ShareStateWrite,
)

_NO_TIMESTAMP = 0


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The whole state of a share partition, as a record has it.

    Attributes:
        snapshot_epoch: counts the snapshots of this share partition.
        created_ms, written_ms: when a leader wrote the state, and when it was written last; they
            differ where the coordinator wrote a cold state again.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches
    created_ms: int = _NO_TIMESTAMP
    written_ms: int = _NO_TIMESTAMP

    @classmethod
    def initial(
        cls, state_epoch: int, start_offset: int, now_ms: int, *, snapshot_epoch: int
    ) -> ShareSnapshot:
        """The state of a share partition that was not read yet."""
        count = NO_DELIVERY_COMPLETE_COUNT if start_offset == NO_START_OFFSET else 0
        return cls(snapshot_epoch, state_epoch, 0, start_offset, count, (), now_ms, now_ms)

    @property
    def value(self) -> SharePartitionState:
        """The state as others see it."""
        return SharePartitionState(
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.batches,
        )

    @property
    def is_cold(self) -> bool:
        """Whether the coordinator wrote it again, since its leader did not."""
        return self.created_ms != self.written_ms

    def updated(self, update: Update) -> ShareSnapshot:
        """The state after an update."""
        start_offset = update.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self.start_offset
        return replace(
            self,
            start_offset=start_offset,
            leader_epoch=(
                self.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch
            ),
            delivery_complete_count=update.delivery_complete_count,
            batches=combine(self.batches, update.batches, start_offset),
        )

    def rewritten(self, now_ms: int) -> ShareSnapshot:
        """The same state, to be written again."""
        return replace(self, snapshot_epoch=self.snapshot_epoch + 1, written_ms=now_ms)

    def next_snapshot(
        self, write: ShareStateWrite, leader_epoch: int, now_ms: int
    ) -> ShareSnapshot:
        """The snapshot that follows from a write."""
        start_offset = write.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self.start_offset
        return ShareSnapshot(
            self.snapshot_epoch + 1,
            self.state_epoch,
            leader_epoch,
            start_offset,
            write.delivery_complete_count,
            combine(self.batches, write.batches, start_offset),
            now_ms,
            now_ms,
        )

    def next_update(self, write: ShareStateWrite, leader_epoch: int) -> Update:
        """The update that follows from a write."""
        return Update(
            self.snapshot_epoch,
            leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            combine((), write.batches, write.start_offset),
        )


@dataclass(frozen=True, slots=True)
class Update:
    """What a record says has changed; a start offset of NO_START_OFFSET has not."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches

    @property
    def alone(self) -> ShareSnapshot:
        """The state, if no snapshot came before."""
        return ShareSnapshot(
            self.snapshot_epoch,
            0,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.batches,
        )


class StoredPartition:
    """One share partition in the coordinator.

    Attributes:
        state: what the records so far make of it.
        highest_state_epoch, highest_leader_epoch: rule 2; None: no record has had one.
        update_count: of the updates since the last snapshot that was due.
        snapshot_offset: of the last snapshot in the log; None: there is none.
    """

    __slots__ = (
        "highest_leader_epoch",
        "highest_state_epoch",
        "snapshot_offset",
        "state",
        "update_count",
    )

    def __init__(self, state: ShareSnapshot, *, update_count: int = 0) -> None:
        self.state = state
        self.highest_state_epoch: int | None = None
        self.highest_leader_epoch = state.leader_epoch
        self.update_count = update_count
        self.snapshot_offset: int | None = None

    def on_snapshot(self, snapshot: ShareSnapshot, offset: int, updates_per_snapshot: int) -> None:
        """Replay a snapshot."""
        self.state = snapshot
        self.snapshot_offset = offset
        if self.highest_state_epoch is None or snapshot.state_epoch > self.highest_state_epoch:
            self.highest_state_epoch = snapshot.state_epoch
        self.highest_leader_epoch = max(self.highest_leader_epoch, snapshot.leader_epoch)
        if self.update_count >= updates_per_snapshot:
            self.update_count = 0

    def on_update(self, update: Update) -> None:
        """Replay an update."""
        self.state = self.state.updated(update)
        self.highest_leader_epoch = max(self.highest_leader_epoch, update.leader_epoch)
        self.update_count += 1

    def fences_leader_epoch(self, leader_epoch: int) -> bool:
        """Whether a newer leader has been here."""
        return leader_epoch != NO_EPOCH and self.highest_leader_epoch > leader_epoch

    def fences_state_epoch(self, state_epoch: int) -> bool:
        """Whether the state has been initialized again."""
        highest = self.highest_state_epoch
        return state_epoch != NO_EPOCH and highest is not None and highest > state_epoch
