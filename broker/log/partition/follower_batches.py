"""What a follower checks in the batches that its leader gave it, before they are appended.

Pure: takes the bytes, and returns those that may be appended. The leader has validated the records
themselves; here only what would break the log is checked: checksums, offsets that go back, leader
epochs that are later than the fetch's. Only `partition_log` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer, TopicPartition
from kraftrio.wire.records.batch import BatchHeader, iter_headers, verify_crc
from kraftrio.wire.records.control import EndTransactionMarker, read_end_transaction_marker


class FollowerBatches(NamedTuple):
    """Batches to append: their bytes, headers, and the transaction marker of each (or None)."""

    records: Buffer
    headers: list[BatchHeader]
    markers: list[EndTransactionMarker | None]


def check_follower_batches(
    records: Buffer,
    topic_partition: TopicPartition,
    *,
    log_end_offset: int,
    log_is_empty: bool,
    leader_epoch: int | None,
) -> FollowerBatches:
    """Find the whole batches that may follow a log's end; an incomplete last one is left out.

    Args:
        log_is_empty: then the first batch may begin before the log's end if it also ends after it:
            the leader's log starts within that batch (DeleteRecords).
        leader_epoch: of the fetch; batches of later epochs are not taken (KAFKA-18723).

    Raises:
        KafkaError: the first batch has a bad checksum, or an offset is below the log's end.
    """
    headers: list[BatchHeader] = []
    markers: list[EndTransactionMarker | None] = []
    next_offset = log_end_offset
    for header in _sound_headers(records):
        if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
            break
        base_offset = header.base_offset
        if base_offset < next_offset:
            starts_within = log_is_empty and not headers and header.last_offset >= next_offset
            if not starts_within:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"offset {base_offset} of {topic_partition} is below {next_offset}, the next",
                )
        next_offset = header.next_offset
        headers.append(header)
        markers.append(
            read_end_transaction_marker(records, header) if header.producer_id >= 0 else None
        )
    if headers:
        size = headers[-1].position + headers[-1].size_bytes
        if size != len(records):
            records = memoryview(records)[:size]
    return FollowerBatches(records, headers, markers)


def _sound_headers(records: Buffer) -> Iterator[BatchHeader]:
    """Yield the headers of the batches before the first damaged one.

    Those are good, and safer on two disks. The next fetch begins with the damaged batch, and one
    that comes first is a CorruptBatchError.
    """
    is_first = True
    try:
        for header in iter_headers(records, allow_partial=True):
            verify_crc(records, header)
            yield header
            is_first = False
    except CorruptBatchError:
        if is_first:
            raise
