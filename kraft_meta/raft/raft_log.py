"""The metadata log as the core knows it, ahead of what is on disk: `RaftLog`.

Owns: where the log ends, what of it is durable and what is committed, and the writes that the next
Ready asks for. Rules:
1. Proposals queued between two Readys become one batch (group commit); what was proposed together
   is never split.
2. The high watermark never goes back, nothing below it is truncated, nor what the election state
   says was committed (`committed_floor`): that is CommittedRecordsError, which ends the node.
3. A truncation is ordered before the batches of the same Ready.

Called by: the parts of the Raft core; the quorum's shell (`on_snapshot_written`, and its figures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.ports import RaftLogReader
from kraftrio.kraft_meta.raft.values import LogBatch, OffsetAndEpoch, SnapshotId

_UNSTAMPED: Final = -1


class CommittedRecordsError(Exception):
    """Following the leader would lose records that are known to be committed; says which."""


@dataclass(frozen=True, slots=True)
class _ProposedRecords:
    """Records that are to be in one batch."""

    base_offset: int
    epoch: int
    values: tuple[bytes, ...]


class RaftLog:
    """See the module.

    Args:
        committed_offset: what is below was committed, as far as the election state knows.
        batch_max_records: how many records of several proposals may share a batch.

    Attributes:
        epochs: the log with everything that is only queued.
        stable_end_offset: what is below is durable.
        high_watermark: what is below is committed; None when that is not known.
        committed_floor: what is known from before the start to have been committed.
        has_lost_records: the log on disk lacks something of that.
    """

    def __init__(
        self,
        reader: RaftLogReader,
        epochs: EpochStarts,
        committed_offset: int,
        batch_max_records: int,
    ) -> None:
        self.epochs = epochs
        self.stable_end_offset = epochs.log_end_offset
        # What a snapshot holds is committed, too.
        self.committed_floor = max(epochs.log_start_offset, committed_offset)
        self.has_lost_records = self.committed_floor > epochs.log_end_offset
        self.high_watermark = None if self.has_lost_records else self.committed_floor or None
        self._reader = reader
        self._batch_max_records = batch_max_records
        self._proposals: list[_ProposedRecords] = []
        self._batches: list[LogBatch] = []
        self._truncate_to: int | None = None
        self._in_flight_end: int | None = None

    # ---- where it stands

    @property
    def end_offset(self) -> int:
        """The end of the log including what is only proposed."""
        return self.epochs.log_end_offset

    @property
    def end(self) -> OffsetAndEpoch:
        return self.epochs.end

    @property
    def has_nothing(self) -> bool:
        """This node has no record, and knows of none that it should have."""
        return self.end_offset == 0 and self.committed_floor == 0

    @property
    def durable_committed_offset(self) -> int:
        """What is below is committed, and on this node's disk if it ever was there."""
        durable = min(self.high_watermark or 0, self.stable_end_offset)
        return max(durable, self.committed_floor)

    @property
    def has_writes(self) -> bool:
        """Something is to be appended or truncated."""
        return bool(self._batches or self._proposals) or self._truncate_to is not None

    def read(self, start_offset: int, max_bytes: int) -> tuple[LogBatch, ...]:
        """Return durable batches from an offset on; none where the log does not have it."""
        if not self.epochs.log_start_offset <= start_offset < self.stable_end_offset:
            return ()
        return tuple(self._reader.read(start_offset, self.stable_end_offset, max_bytes))

    # ---- appends

    def propose(self, values: Sequence[bytes], epoch: int) -> int:
        """Queue records of this node's own epoch; return the offset of the first."""
        base_offset = self.end_offset
        self._proposals.append(_ProposedRecords(base_offset, epoch, tuple(values)))
        self.epochs.append(epoch, base_offset, base_offset + len(values))
        return base_offset

    def append_control(self, epoch: int, key: bytes, value: bytes) -> int:
        """Queue a control record; return its offset."""
        base_offset = self.end_offset
        self._batches.append(LogBatch(base_offset, epoch, _UNSTAMPED, (value,), (key,)))
        self.epochs.append(epoch, base_offset, base_offset + 1)
        return base_offset

    def append_fetched(self, batches: Sequence[LogBatch], epoch: int) -> None:
        """Queue a leader's batches, as far as each follows the one before."""
        for batch in batches:
            if batch.base_offset != self.end_offset or not (
                self.epochs.last_epoch <= batch.epoch <= epoch
            ):
                break
            self.epochs.append(batch.epoch, batch.base_offset, batch.end_offset)
            self._batches.append(batch)

    def seal_proposals(self) -> None:
        """Merge queued proposals into as few batches as may be (rule 1)."""
        proposals, self._proposals = self._proposals, []
        values: list[bytes] = []
        base_offset = -1
        for proposal in proposals:
            if values and len(values) + len(proposal.values) > self._batch_max_records:
                self._batches.append(_own_batch(base_offset, proposal.epoch, values))
                values = []
            if not values:
                base_offset = proposal.base_offset
            values.extend(proposal.values)
        if values:
            self._batches.append(_own_batch(base_offset, proposals[-1].epoch, values))

    def take_writes(self, wall_ms: int) -> tuple[int | None, tuple[LogBatch, ...]]:
        """Return where to truncate the log (None: nowhere) and what to append then.

        Own batches get wall_ms as their time.
        """
        self.seal_proposals()
        truncate_to, self._truncate_to = self._truncate_to, None
        batches = tuple(
            replace(batch, timestamp_ms=wall_ms) if batch.timestamp_ms == _UNSTAMPED else batch
            for batch in self._batches
        )
        self._batches = []
        self._in_flight_end = batches[-1].end_offset if batches else None
        return truncate_to, batches

    def on_durable(self) -> bool:
        """Learn that what was taken is durable; True when that makes more of the log durable."""
        end, self._in_flight_end = self._in_flight_end, None
        # A truncation that came meanwhile removes what was in flight; it is ordered after it.
        if end is None or end > self.end_offset:
            return False
        self.stable_end_offset = max(self.stable_end_offset, end)
        return True

    # ---- commits

    def advance_high_watermark(self, offset: int) -> bool:
        """Commit what is below an offset; return whether that is more than before."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def check_uncommitted(self, offset: int, why: str) -> None:
        """Raise CommittedRecordsError if the log may not be replaced from an offset on."""
        committed = max(self.high_watermark or 0, self.committed_floor)
        if offset < committed <= self.end_offset:
            raise CommittedRecordsError(
                f"{why} offset {offset},"
                f" but records up to offset {committed} are known here to be committed: taking its"
                f" log would lose the records {offset} to {self.end_offset - 1} of this node;"
                " to give them up, move its metadata log away"
            )

    # ---- truncations

    def diverging_offset(self, diverging: OffsetAndEpoch) -> int:
        """Return where to truncate, for a leader in whose log an epoch ends as `diverging` says."""
        own = self.epochs.end_offset_for_epoch(diverging.epoch)
        offset = own.offset if own.epoch != diverging.epoch else min(own.offset, diverging.offset)
        return max(offset, self.epochs.log_start_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop everything from an offset on, if there is anything."""
        assert not self._batches, "a truncation comes when everything before it is durable"
        if offset < self.end_offset:
            self.epochs.truncate_to(offset)
            self.stable_end_offset = min(self.stable_end_offset, offset)
            self._truncate_to = offset

    def reset_to(self, snapshot_id: SnapshotId) -> None:
        """Begin again at the end of a snapshot that has replaced the log on disk."""
        assert not self.has_writes
        self.epochs.reset_to(snapshot_id)
        self.stable_end_offset = snapshot_id.end_offset
        self.high_watermark = snapshot_id.end_offset

    def on_snapshot_written(self, snapshot_id: SnapshotId) -> None:
        """Learn that the log below a snapshot is no longer needed."""
        self.epochs.clean_before(snapshot_id)


def _own_batch(base_offset: int, epoch: int, values: Sequence[bytes]) -> LogBatch:
    return LogBatch(base_offset, epoch, _UNSTAMPED, tuple(values))
