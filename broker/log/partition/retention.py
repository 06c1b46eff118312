"""Which segments of a log the retention settings no longer keep, and what waits as `.deleted`.

Called by `partition_log`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.segment_list import SegmentList
from kraftrio.broker.log.segment.segment import Segment


def deletable_segments(
    segments: SegmentList,
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments may go: all of their records are below the high watermark and

    - before the log start offset, under any cleanup.policy, or
    - (cleanup.policy has delete) more than retention.bytes are kept without them, or
    - (the same) their newest record is older than retention.ms.

    The active segment goes like the others, but never while it is empty.
    """
    excess = -1
    if config.delete and config.retention_bytes >= 0:
        excess = segments.total_bytes() - config.retention_bytes
    retention_ms = config.retention_ms if config.delete else -1
    active = segments.active
    count = 0
    for segment in segments:
        if segment.end_offset > high_watermark or (segment is active and not segment.size_bytes):
            break
        is_before_start = segment is not active and segment.end_offset <= log_start_offset
        is_kept = not is_before_start and excess < segment.size_bytes
        if is_kept and (retention_ms < 0 or now_ms - segment.largest_timestamp() <= retention_ms):
            break
        excess -= segment.size_bytes  # also of one that goes by its age
        count += 1
    return count


class RetiredSegments:
    """Segments out of use whose files stay as `.deleted` for file.delete.delay.ms."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Segment]] = []

    def retire(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Rename the files; `remove_expired` removes them from `due_ms` on.

        OSError: those renamed so far wait for their removal all the same, see `Segment.retire`.
        """
        for segment in segments:
            try:
                segment.retire()
            finally:
                if segment.is_retired:
                    self._waiting.append((due_ms, segment))

    def are_due(self, now_ms: int) -> bool:
        """Whether `remove_expired` has something to do."""
        return bool(self._waiting) and self._waiting[0][0] <= now_ms

    def remove_expired(self, now_ms: int) -> int:
        """Remove the files whose delay is over; return how many segments still wait."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            self._waiting[0][1].remove()
            del self._waiting[0]
        return len(self._waiting)

    def close_files(self) -> None:
        for _, segment in self._waiting:
            segment.close_file()

    def moved(self, directory: str) -> None:
        """Use the new path: the partition directory was renamed."""
        for _, segment in self._waiting:
            segment.moved(directory)
