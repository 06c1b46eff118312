"""The newest batches of the metadata log in memory: followers that keep up cost no reading.

`metadata_log` owns one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraftrio.kraft_meta.quorum.log_batches import encode_batch
from kraftrio.kraft_meta.raft.values import LogBatch

_LIMIT_BYTES: Final = 8 * 1024 * 1024


class RecentBatches:
    """The newest batches as they were appended, without a gap up to the end of the log."""

    def __init__(self) -> None:
        self._batches: deque[tuple[LogBatch, int]] = deque()
        self._size_bytes = 0

    def append(self, batch: LogBatch, size_bytes: int) -> None:
        self._batches.append((batch, size_bytes))
        self._size_bytes += size_bytes
        while self._size_bytes > _LIMIT_BYTES:
            self._size_bytes -= self._batches.popleft()[1]

    def truncate_to(self, offset: int) -> None:
        while self._batches and self._batches[-1][0].end_offset > offset:
            self._size_bytes -= self._batches.pop()[1]

    def read(self, start_offset: int, max_offset: int, max_bytes: int) -> list[LogBatch] | None:
        """Return batches as MetadataLog.read does, None when they begin before these."""
        if not self._batches or start_offset < self._batches[0][0].base_offset:
            return None
        found: list[LogBatch] = []
        size = 0
        for batch, _size_bytes in reversed(self._batches):
            if batch.end_offset <= start_offset:
                break
            if batch.base_offset < max_offset:
                found.append(batch)
        found.reverse()
        for index, batch in enumerate(found):
            size += len(encode_batch(batch))
            if index and size > max_bytes:
                return found[:index]
        return found
