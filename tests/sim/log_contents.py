"""What a replica's log holds, past every cache: its bytes, its records, its transactions.

Called by: the invariants, while a simulation runs; `simulation` and `transactional_work`, at its
end; scenarios.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftrio.broker.log.partition.partition_log import LogRead, PartitionLog
from kraftrio.wire.records.batch import Record, iter_headers, iter_records
from kraftrio.wire.records.control import read_end_transaction_marker
from tests.sim.transaction_model import Entry

_READ_BYTES = 1 << 20


def read_files(log: PartitionLog, start_offset: int, end_offset: int) -> LogRead | None:
    """Read some of the batches between two offsets, at least one; None: there is none."""
    found = log.segments.locate(start_offset, _READ_BYTES, end_offset, min_one_batch=True)
    if found is None:
        return None
    segment, (position, size_bytes, next_offset) = found
    return LogRead(segment.log_file.read_at(position, size_bytes), next_offset)


def content_of(log: PartitionLog, start_offset: int | None = None) -> bytes:
    """Everything in a log, from its start or an offset."""
    parts = []
    offset = log.log_start_offset if start_offset is None else start_offset
    while offset < log.log_end_offset:
        found = read_files(log, offset, log.log_end_offset)
        assert found is not None
        parts.append(bytes(found.records))
        offset = found.next_offset
    return b"".join(parts)


def records_of(content: bytes) -> list[Record]:
    """All records but those of control batches."""
    return [
        record
        for header in iter_headers(content)
        if not header.is_control
        for record in iter_records(content, header)
    ]


def entries_of(content: bytes) -> Iterator[Entry]:
    """All records and markers of producers."""
    for header in iter_headers(content):
        producer = header.producer_id, header.producer_epoch
        if header.is_control:
            marker = read_end_transaction_marker(content, header)
            if marker is not None:
                yield Entry(header.base_offset, *producer, marker.commit)
            continue
        for record in iter_records(content, header):
            yield Entry(record.offset, *producer, (record.value or b"").decode())
