"""Records found by timestamp: the first one at or after a time, and the latest one (KIP-734).

Called by `replica/replica_reads`. A look-up starts from the time index, and checks the checksums of
the batches that it reads: a damaged one is a CorruptRecordError.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.wire.records.batch import NO_TIMESTAMP, iter_records


class TimestampedRecord(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampedRecord | None:
    """The first record at or after a time; None when every record is earlier."""
    start_offset = log.log_start_offset
    for segment in log.segments.from_offset(start_offset):
        if segment.size_bytes and segment.indexes.max_timestamp >= timestamp:
            found = _find_timestamp(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(log: PartitionLog) -> TimestampedRecord | None:
    """The first record with the largest timestamp of the log; None without a record."""
    start_offset = log.log_start_offset
    live = [segment for segment in log.segments.from_offset(start_offset) if segment.size_bytes]
    if not live:
        return None
    found = _find_max_timestamp(max(live, key=lambda segment: segment.indexes.max_timestamp))
    if found is not None and found.offset >= start_offset:
        return found
    # The indexed answer is a deleted record: look at what is left.
    candidates = [_scan_max_timestamp(segment, start_offset) for segment in live]
    left = [candidate for candidate in candidates if candidate is not None]
    return max(left, key=lambda candidate: candidate.timestamp, default=None)


def _find_timestamp(
    segment: Segment, timestamp: int, start_offset: int
) -> TimestampedRecord | None:
    indexed = segment.indexes.times.lookup(timestamp)
    position = segment.indexes.position_before(max(indexed.offset, start_offset))
    for batch in segment.log_file.scan(position, check_crc=True):
        header = batch.header
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in iter_records(batch.buffer, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampedRecord(
                    record.offset, record.timestamp, header.partition_leader_epoch
                )
    return None


def _find_max_timestamp(segment: Segment) -> TimestampedRecord | None:
    """The first record with the largest timestamp that the segment's indexes know."""
    timestamp, offset = segment.indexes.max_timestamp_entry
    if timestamp == NO_TIMESTAMP:
        return None
    for batch in segment.log_file.scan(segment.indexes.position_before(offset), check_crc=True):
        if batch.header.max_timestamp != timestamp:
            continue
        for record in iter_records(batch.buffer, batch.header):
            if record.timestamp == timestamp:
                return TimestampedRecord(
                    record.offset, timestamp, batch.header.partition_leader_epoch
                )
    return None


def _scan_max_timestamp(segment: Segment, start_offset: int) -> TimestampedRecord | None:
    best: TimestampedRecord | None = None
    position = segment.indexes.position_before(start_offset)
    for batch in segment.log_file.scan(position, check_crc=True):
        largest = NO_TIMESTAMP if best is None else best.timestamp
        if batch.header.last_offset < start_offset or batch.header.max_timestamp <= largest:
            continue
        for record in iter_records(batch.buffer, batch.header):
            if record.offset >= start_offset and record.timestamp > largest:
                largest = record.timestamp
                epoch = batch.header.partition_leader_epoch
                best = TimestampedRecord(record.offset, largest, epoch)
    return best
