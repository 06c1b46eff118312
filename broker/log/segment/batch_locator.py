"""Where in a segment the batches lie that a read or a truncation asks for.

Rules:
1. Headers alone are read, from the position of the last index entry before the offset, under the
   rules of `batch_search`.
2. Where a read ended is remembered for the reader that goes on from there, and forgotten when the
   log is truncated.

`segment` owns one.
"""

from __future__ import annotations

from kraftrio.broker.log.segment.batch_search import (
    FoundBatch,
    FoundRange,
    end_of_batches,
    find_batch,
)
from kraftrio.broker.log.segment.log_file import LogFile
from kraftrio.broker.log.segment.segment_indexes import SegmentIndexes
from kraftrio.wire.errors import CorruptBatchError

_MAX_CURSORS = 8


class BatchLocator:
    """See the module."""

    __slots__ = ("_cursors", "_indexes", "_log_file")

    def __init__(self, log_file: LogFile, indexes: SegmentIndexes) -> None:
        self._log_file = log_file
        self._indexes = indexes
        self._cursors: dict[int, int] = {}  # offset -> position of the batch that begins with it

    def find(self, offset: int) -> FoundBatch | None:
        """The first batch that ends at or after `offset`; None: none does.

        Raises:
            CorruptBatchError: what lies before it is damaged.
        """
        log_file = self._log_file
        file, end = log_file.open(), log_file.size_bytes
        cursor = self._cursors.get(offset)
        if cursor is not None:
            try:
                return find_batch(file, offset, cursor, end, is_start=True)
            except CorruptBatchError:
                self._cursors.pop(offset, None)  # the header before was damaged, or a gap follows
        return find_batch(file, offset, self._indexes.position_before(offset), end)

    def locate(
        self, start_offset: int, max_bytes: int, max_offset: int, min_one_batch: bool
    ) -> FoundRange | None:
        """Where whole batches lie from the one with `start_offset` on, all below `max_offset`.

        None when the segment ends before `start_offset`.
        """
        found = self.find(start_offset)
        if found is None:
            return None
        position, _, first_size = found
        if max_bytes < first_size:
            if not min_one_batch:
                return FoundRange(position, 0, start_offset)
            max_bytes = first_size
        log_file = self._log_file
        end = log_file.size_bytes
        limit = position + max_bytes
        if limit >= end and max_offset >= log_file.end_offset:
            next_offset = log_file.end_offset
            self._remember(next_offset, end)
            return FoundRange(position, end - position, next_offset)
        index, limit = self._indexes.offsets, min(limit, end)
        known = min(index.lookup(max_offset).position, index.batch_start_before(limit))
        size, goes_on_at = end_of_batches(log_file.open(), position, known, limit, end, max_offset)
        if not size or goes_on_at is None:
            return FoundRange(position, 0, start_offset)
        self._remember(goes_on_at, position + size)
        return FoundRange(position, size, goes_on_at)

    def _remember(self, offset: int, position: int) -> None:
        cursors = self._cursors
        if len(cursors) >= _MAX_CURSORS:
            del cursors[next(iter(cursors))]
        cursors[offset] = position

    def forget(self) -> None:
        """The log was truncated, or is closed."""
        self._cursors.clear()
