"""How a read of a log is answered: from the tail in memory, from a file, or by a slice of the file.

Called by `partition_log`, which knows what may be read.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.broker.log.partition.results import LogSlice
from kraftrio.broker.log.partition.segment_list import SegmentList
from kraftrio.broker.log.partition.tail_cache import TailCache


class ReadLimits(NamedTuple):
    """What a read may give.

    Attributes:
        max_bytes: of whole batches.
        hold_bytes: up to this size the bytes are read now; more is a `FileSlice`, to be read when
            it is sent.
        max_offset: the read ends before it.
        min_one_batch: the first batch is given even if it is larger than `max_bytes`.
    """

    max_bytes: int
    hold_bytes: int
    max_offset: int
    min_one_batch: bool


def read_batches(
    segments: SegmentList,
    tail: TailCache,
    start_offset: int,
    limits: ReadLimits,
    log_end_offset: int,
    high_watermark: int,
) -> LogSlice:
    """Read whole batches from `start_offset` on.

    Args:
        high_watermark: below it the log is never truncated, so a slice may be sent from the file.
    """
    max_bytes, hold_bytes, max_offset, min_one_batch = limits
    if start_offset >= max_offset:
        if start_offset == log_end_offset:
            tail.wanted = True
        return LogSlice(b"", start_offset)
    held = tail.read(start_offset, max_bytes, max_offset, min_one_batch, hold_bytes)
    if held is not None:
        return LogSlice(*held)
    found = segments.locate(start_offset, max_bytes, max_offset, min_one_batch)
    if found is None:
        return LogSlice(b"", start_offset)
    segment, (position, size, next_offset) = found
    if size > hold_bytes:
        is_settled = next_offset <= high_watermark
        piece = segment.log_file.slice_at(position, size, is_settled=is_settled)
        return LogSlice(piece, next_offset)
    if next_offset == log_end_offset:
        tail.wanted = True
    return LogSlice(segment.log_file.read_at(position, size), next_offset)
