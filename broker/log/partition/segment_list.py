"""The segments of one log in offset order, and what is asked of them as a whole.

Rules: never empty; base offsets rise strictly; the last segment is the active one; a closed
segment's `end_offset` is the next one's base offset. `partition_log` decides when segments come and
go.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kraftrio.broker.log.producers.replay import rebuild_txn_index
from kraftrio.broker.log.producers.snapshots import ProducerSnapshots
from kraftrio.broker.log.segment.batch_scan import ScannedBatch
from kraftrio.broker.log.segment.batch_search import FoundRange
from kraftrio.broker.log.segment.index_file import CorruptIndexError
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.broker.log.segment.txn_index import AbortedTxn, search


class SegmentList:
    """Segments by base offset."""

    __slots__ = ("_segments", "active", "base_offsets")

    def __init__(self, segments: Sequence[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self._segments = list(segments)
        self.base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def first_base_offset(self) -> int:
        return self.base_offsets[0]

    def total_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    # -- coming and going -----------------------------------------------------------------------

    def append(self, segment: Segment) -> None:
        """Add a new active segment."""
        assert segment.base_offset > self.base_offsets[-1]
        self._segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a compacted segment in the place of neighbours that are not active."""
        first = self._segments.index(old[0])
        self._segments = [*self._segments[:first], new, *self._segments[first + len(old) :]]
        self.base_offsets = [segment.base_offset for segment in self._segments]

    def has_closed(self, wanted: Sequence[Segment]) -> bool:
        """Whether exactly these segments are neighbours here, and none of them is active."""
        if wanted[0] not in self._segments:
            return False
        first = self._segments.index(wanted[0])
        here = self._segments[first : first + len(wanted)]
        return here == list(wanted) and here[-1] is not self.active

    def forget_retired(self) -> None:
        """Drop the oldest segments whose files are `.deleted`."""
        count = sum(segment.is_retired for segment in self._segments)
        assert all(segment.is_retired for segment in self._segments[:count])
        # New lists: a flush in another thread may be walking over the old ones.
        self._segments = self._segments[count:]
        self.base_offsets = self.base_offsets[count:]

    def replace_all(self, new: Segment) -> None:
        """Replace the only segment by an empty one. OSError: one of the two is left."""
        old = self.active
        assert len(self._segments) == 1, "see remove_after"
        try:
            old.remove()
        finally:
            if old.is_removed:
                self._segments = [new]
                self.base_offsets = [new.base_offset]
                self.active = new
            else:
                new.remove()

    def remove_after(self, offset: int) -> None:
        """Remove the segments after the one that holds `offset`, the last one first.

        So a crash, or an OSError, between leaves a log without a gap.
        """
        while self.active.base_offset > max(offset, self.first_base_offset):
            active = self.active
            try:
                active.remove()
            finally:
                if active.is_removed:
                    self._segments = self._segments[:-1]
                    self.base_offsets = self.base_offsets[:-1]
                    self.active = self._segments[-1]

    # -- look-ups -------------------------------------------------------------------------------

    def floor_index(self, offset: int) -> int:
        """Index of the segment that holds `offset`, the first one for older offsets."""
        return max(0, bisect_right(self.base_offsets, offset) - 1)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all later ones."""
        return self._segments[self.floor_index(offset) :]

    def locate(
        self, start_offset: int, max_bytes: int, max_offset: int, min_one_batch: bool
    ) -> tuple[Segment, FoundRange] | None:
        """Where batches lie in the first segment that has one at or after `start_offset`."""
        segments = self._segments
        for index in range(self.floor_index(start_offset), len(segments)):
            segment = segments[index]
            if segment.base_offset >= max_offset:
                break
            found = segment.batches.locate(start_offset, max_bytes, max_offset, min_one_batch)
            if found is not None:
                return segment, found
        return None

    def scan(self, start_offset: int, end_offset: int) -> Iterator[ScannedBatch]:
        """Every batch that ends after `start_offset` and begins before `end_offset`."""
        for segment in self.from_offset(start_offset):
            if segment.base_offset >= end_offset:
                return
            position = 0
            if segment.base_offset < start_offset:
                position = segment.indexes.position_before(start_offset)
            for batch in segment.log_file.scan(position):
                if batch.header.base_offset >= end_offset:
                    return
                if batch.header.last_offset >= start_offset:
                    yield batch

    # -- aborted transactions -------------------------------------------------------------------

    def aborted_transactions(
        self, start_offset: int, end_offset: int, snapshots: ProducerSnapshots
    ) -> list[AbortedTxn]:
        """The aborted transactions that touch offsets in [start_offset, end_offset)."""
        found: list[AbortedTxn] = []
        for segment in self.from_offset(start_offset):
            try:
                entries = segment.indexes.transactions.entries
            except CorruptIndexError as error:
                entries = rebuild_txn_index(segment, self._segments, snapshots, str(error))
            result = search(entries, start_offset, end_offset)
            found += result.transactions
            if result.complete:
                break
        return found
