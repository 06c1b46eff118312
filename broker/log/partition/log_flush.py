"""How far a log is durable: its recovery point, and the flushes that move it up.

Rules:
1. recovery_point <= log_end_offset, also where a flush in another thread ends while the log is
   truncated.
2. A flush promises what was in the log when it began, and nothing if the log was truncated or
   closed since: it may have synced files that are no part of it any more.
3. The owner never waits for a sync: the lock it shares with a flush is held for moments only.

`partition_log` owns one; `flush` may be called from any thread, everything else from the owner's.
"""

from __future__ import annotations

import threading

from kraftrio.broker.log.partition.partition_files import PartitionFiles
from kraftrio.broker.log.partition.segment_list import SegmentList
from kraftrio.broker.log.producers.snapshots import ProducerSnapshots


class LogFlush:
    """See the module.

    Attributes:
        truncation_count: rises with every truncation and at the close: work that was begun on the
            segments before no longer counts.
    """

    __slots__ = (
        "_files",
        "_flush_lock",
        "_move_lock",
        "_segments",
        "_snapshots",
        "is_closed",
        "recovery_point",
        "truncation_count",
    )

    def __init__(
        self,
        files: PartitionFiles,
        snapshots: ProducerSnapshots,
        segments: SegmentList,
        recovery_point: int,
    ) -> None:
        self._files = files
        self._snapshots = snapshots
        self._segments = segments
        self.recovery_point = recovery_point
        self.truncation_count = 0
        self.is_closed = False
        self._flush_lock = threading.Lock()  # one flush at a time
        self._move_lock = threading.Lock()  # held to move the recovery point, or to void a flush

    def on_truncation_begins(self) -> None:
        """The log is going to be truncated: a flush that is under way promises nothing."""
        with self._move_lock:
            self.truncation_count += 1

    def on_truncated(self, end_offset: int) -> None:
        """The log was truncated and ends at `end_offset`."""
        with self._move_lock:
            self.truncation_count += 1
            self.recovery_point = min(self.recovery_point, end_offset)

    def close(self) -> None:
        """Flush nothing any more: the names of the files may become another log's."""
        with self._move_lock:
            self.is_closed = True
            self.truncation_count += 1
        self._files.close()

    def mark_durable(self) -> None:
        """What was opened is durable as it is: a clean stop flushed it."""
        self._files.mark_durable()
        self._snapshots.mark_durable()
        for segment in self._segments:
            segment.mark_durable()

    @property
    def has_closed_segments_to_flush(self) -> bool:
        """Whether a segment that was rolled waits for its flush."""
        return self.recovery_point < self._segments.active.base_offset

    def flush_closed_segments(self) -> int:
        """Make all but the active segment durable, as Kafka does after each roll. Any thread."""
        return self.flush_before(self._segments.active.base_offset)

    def flush_before(self, limit: int) -> int:
        """Make all batches in the segments that start below `limit` durable.

        Returns:
            the recovery point, as it is now.
        """
        with self._flush_lock:
            with self._move_lock:
                truncation_count, recovery_point = self.truncation_count, self.recovery_point
                if self.is_closed:
                    return recovery_point
            end_offset = self._segments.active.end_offset  # after the count, to notice a truncation
            try:
                for segment in list(self._segments):
                    if segment.end_offset >= recovery_point and segment.base_offset < limit:
                        segment.flush()
                self._snapshots.sync()
                self._files.sync()
            except FileNotFoundError:
                if not self.is_closed:  # a closed log may be deleted meanwhile
                    raise
            with self._move_lock:
                if truncation_count == self.truncation_count:
                    self.recovery_point = max(self.recovery_point, min(end_offset, limit))
                return self.recovery_point
