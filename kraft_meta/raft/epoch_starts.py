"""Where each leader epoch of a log begins, in memory: `EpochStarts`.

Owns: the list of (epoch, start offset), rising in both. Rules: an epoch's end is the start of the
next one, or the log's end. Called by: raft.py, which must know its epochs before they are on disk.
Protocol: the divergence rules of KIP-595 (as KIP-101 for partitions).
"""

from __future__ import annotations

from bisect import bisect_right

from kraftrio.kraft_meta.raft.values import OffsetAndEpoch, SnapshotId


class EpochStarts:
    """Epochs of the records from `log_start_offset` to `log_end_offset`."""

    __slots__ = ("_starts", "log_end_offset", "log_start_offset", "snapshot_epoch")

    def __init__(
        self,
        starts: list[tuple[int, int]],
        log_start_offset: int,
        log_end_offset: int,
        snapshot_id: SnapshotId | None,
    ) -> None:
        self._starts = starts
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # The epoch of the record before log_start_offset, which is 0 or where a snapshot ends.
        self.snapshot_epoch = 0
        if log_start_offset > 0:
            assert snapshot_id is not None and snapshot_id.end_offset == log_start_offset
            self.snapshot_epoch = snapshot_id.epoch

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record."""
        return self._starts[-1][0] if self._starts else self.snapshot_epoch

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log_end_offset, self.last_epoch)

    def append(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """Take records of an epoch at the end."""
        assert base_offset == self.log_end_offset, "the log has no holes"
        assert epoch >= self.last_epoch, "epochs do not go back along the log"
        if not self._starts or epoch > self._starts[-1][0]:
            self._starts.append((epoch, base_offset))
        self.log_end_offset = end_offset

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at an offset."""
        index = bisect_right([start for _epoch, start in self._starts], offset) - 1
        return self._starts[index][0] if index >= 0 else self.snapshot_epoch

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the greatest known epoch not above `epoch`, and where it ends."""
        found = OffsetAndEpoch(self.log_start_offset, self.snapshot_epoch)
        for index, (known, _start) in enumerate(self._starts):
            if known > epoch:
                break
            is_last = index + 1 == len(self._starts)
            end = self.log_end_offset if is_last else self._starts[index + 1][1]
            found = OffsetAndEpoch(end, known)
        return found

    def check_prefix(self, end: OffsetAndEpoch) -> OffsetAndEpoch | SnapshotId | None:
        """Return None when a log that ends so is a prefix of this one.

        Otherwise where the asked epoch (or the one before) ends here, so that the other log can be
        truncated to it; or the snapshot to start from when this log no longer reaches back so far.
        """
        if self.log_start_offset > 0 and (
            end.offset < self.log_start_offset
            or end.epoch < self.snapshot_epoch
            or (end.offset == self.log_start_offset and end.epoch != self.snapshot_epoch)
        ):
            return SnapshotId(self.log_start_offset, self.snapshot_epoch)
        own = self.end_offset_for_epoch(end.epoch)
        if end.offset > 0 and (own.epoch != end.epoch or own.offset < end.offset):
            return own
        return None

    def truncate_to(self, offset: int) -> None:
        """Forget the records from offset on."""
        assert self.log_start_offset <= offset <= self.log_end_offset
        while self._starts and self._starts[-1][1] >= offset:
            self._starts.pop()
        self.log_end_offset = offset

    def clean_before(self, snapshot_id: SnapshotId) -> None:
        """Forget the records below a snapshot's end."""
        offset = snapshot_id.end_offset
        if offset <= self.log_start_offset:
            return
        assert offset <= self.log_end_offset
        keep = [(epoch, start) for epoch, start in self._starts if start > offset]
        epoch = self.epoch_at(offset)
        if offset < self.log_end_offset and (not keep or keep[0][1] > offset):
            keep.insert(0, (epoch, offset))
        self._starts = keep
        self.snapshot_epoch = snapshot_id.epoch
        self.log_start_offset = offset

    def reset_to(self, snapshot_id: SnapshotId) -> None:
        """Begin again at the end of a snapshot received from the leader."""
        self._starts = []
        self.snapshot_epoch = snapshot_id.epoch
        self.log_start_offset = self.log_end_offset = snapshot_id.end_offset
