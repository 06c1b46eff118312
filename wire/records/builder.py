"""Builds one batch a few records at a time, for what is done in slices.

All records have the same timestamp and no headers, as those that a coordinator writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.wire.records.batch import (
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
)
from kraftrio.wire.records.compression import Compression, compress
from kraftrio.wire.records.walk import encode_records


class BatchBuilder:
    """A batch in the making.

    Args:
        timestamp_ms: of every record.
    """

    __slots__ = ("_parts", "_timestamp_ms", "record_count")

    def __init__(self, timestamp_ms: int) -> None:
        self._timestamp_ms = timestamp_ms
        self._parts: list[bytes] = []
        self.record_count = 0

    def add(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Add records, given as key and value, after those that are there."""
        stamp = self._timestamp_ms
        rows = [(0, stamp, key, value, ()) for key, value in records]
        self._parts.append(b"".join(encode_records(rows, stamp, self.record_count)))
        self.record_count += len(rows)

    def build(
        self,
        *,
        compression: Compression = Compression.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        """Give the batch of all records so far, at least one; equal to what `build_batch` makes."""
        assert self.record_count, "a batch needs a record"
        parts = self._parts
        if compression is not Compression.NONE:
            parts = [compress(compression, b"".join(parts))]
        header = BatchHeader(
            base_offset=0,
            size_bytes=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=compression | (TRANSACTIONAL_BIT if transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self._timestamp_ms,
            max_timestamp=self._timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
            position=0,
        )
        return assemble(header, parts)
