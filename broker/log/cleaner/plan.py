"""What compaction should look at next: which log, and which part of it (as Kafka's
LogCleanerManager).

Rules, for a log whose cleanup.policy has compact:
1. Never cleaned are the active segment, those at or above the last stable offset (so nothing above
   the high watermark and no open transaction), and all from the first one that holds a record
   younger than min.compaction.lag.ms.
2. A log is to be cleaned when more than min.cleanable.dirty.ratio of its cleanable bytes lie after
   `first_dirty_offset`, or when a dirty segment began more than max.compaction.lag.ms ago.
3. The dirtiest log comes first.

`broker/upkeep/log_cleaner.py` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kraftrio.broker.log.log_config import INT_MAX, LONG_MAX, LogConfig
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.segment.segment import Segment


class CleaningTarget(NamedTuple):
    """A log with the part that may be cleaned: all segments before `end_offset`."""

    log: PartitionLog
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.overdue_ms > 0 and self.cleanable_bytes:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def cleaning_target(log: PartitionLog, now_ms: int) -> CleaningTarget:
    """Measure one log."""
    segments = log.segments
    first_dirty_offset = log.first_dirty_offset
    if not log.log_start_offset <= first_dirty_offset <= log.log_end_offset:
        first_dirty_offset = log.log_start_offset
    closed_dirty = segments.from_offset(first_dirty_offset)[:-1]
    bound = min(log.last_stable_offset, segments.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in closed_dirty:
            if segment.largest_timestamp() > now_ms - lag_ms:
                bound = min(bound, segment.base_offset)
                break
    # Whole segments only: the one that holds the bound stays out.
    end_offset = max(first_dirty_offset, segments.base_offsets[segments.floor_index(bound)])
    clean = [s for s in segments if s.base_offset < min(first_dirty_offset, end_offset)]
    cleanable = [segment for segment in closed_dirty if segment.base_offset < end_offset]
    return CleaningTarget(
        log,
        first_dirty_offset,
        end_offset,
        sum(segment.size_bytes for segment in clean),
        sum(segment.size_bytes for segment in cleanable),
        _overdue_ms(log.config, closed_dirty, now_ms),
    )


def _overdue_ms(config: LogConfig, closed_dirty: Iterable[Segment], now_ms: int) -> int:
    """How long ago max.compaction.lag.ms was over for the oldest dirty segment."""
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0  # the usual case: spare the reads
    timestamps = [segment.indexes.first_batch_timestamp for segment in closed_dirty]
    oldest = min([timestamp for timestamp in timestamps if timestamp > 0], default=now_ms)
    return max(0, now_ms - config.max_compaction_lag_ms - oldest)


def dirtiest(logs: Iterable[PartitionLog], now_ms: int) -> CleaningTarget | None:
    """The log to clean next, None when none needs it."""
    candidates = [
        target
        for log in logs
        if log.config.compact and (target := cleaning_target(log, now_ms)).is_due
    ]
    return max(candidates, key=lambda target: target.dirty_ratio, default=None)


def group_segments(
    segments: Sequence[Segment], config: LogConfig, index_bytes: Callable[[Segment], int]
) -> list[list[Segment]]:
    """Join neighbours whose records will surely fit one segment (KAFKA-6264: offsets too).

    Args:
        index_bytes: the size of the larger of a segment's indexes.
    """
    groups: list[list[Segment]] = []
    size = index_size = 0
    for segment in segments:
        segment_index_bytes = index_bytes(segment)
        fits = (
            groups
            and size + segment.size_bytes <= config.segment_bytes
            and index_size + segment_index_bytes <= config.segment_index_bytes
            and segment.end_offset - 1 - groups[-1][0].base_offset <= INT_MAX
        )
        if not fits:
            groups.append([])
            size = index_size = 0
        groups[-1].append(segment)
        size += segment.size_bytes
        index_size += segment_index_bytes
    return groups
