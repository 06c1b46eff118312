"""When the active segment of a log is closed and another one begun (log.roll.ms, segment.bytes...).

Pure. `partition_log` makes one for each configuration of a log, and asks before each append.
"""

from __future__ import annotations

import zlib

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.wire.primitives import TopicPartition


class RollPolicy:
    """The bounds of one log's segments."""

    __slots__ = ("_roll_ms", "_segment_bytes")

    def __init__(self, config: LogConfig, topic_partition: TopicPartition) -> None:
        self._segment_bytes = config.segment_bytes
        jitter = config.segment_jitter_ms
        # Any spread will do; one that comes from the name is the same after a restart.
        name = str(topic_partition).encode()
        self._roll_ms = config.roll_ms - (zlib.crc32(name) % jitter if jitter else 0)

    def must_roll(
        self, segment: Segment, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether what is to be appended, of `size` bytes, belongs in another segment."""
        segment_size = segment.size_bytes
        if segment_size + size > self._segment_bytes:
            return True
        if segment_size:
            first = segment.indexes.first_batch_timestamp
            # By the records' times, so that old records copied in are split by their own times.
            waited = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
            if waited > self._roll_ms:
                return True
        return segment.indexes.are_full or not segment.fits_offset(last_offset)
