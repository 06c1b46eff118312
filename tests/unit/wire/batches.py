"""Helpers of the record batch tests: recorded logs, a slow reference encoder, damaged batches."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import encode_varint
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    Record,
    build_batch,
    parse_header,
    validate_records,
    verify_crc,
)

LOG_DIRS = Path(__file__).resolve().parents[2] / "data" / "log-dirs"
T0 = 1_700_000_000_000


def log_bytes(partition: str, base_offset: int = 0) -> bytes:
    return (LOG_DIRS / partition / f"{base_offset:020d}.log").read_bytes()


def batch_bytes(buf: bytes, header: BatchHeader) -> bytes:
    return buf[header.position : header.position + header.size_bytes]


def error_of(buf: bytes | bytearray, **options: Any) -> ErrorCode:
    """Check a batch as an append does and return the code of its fault."""
    with pytest.raises(KafkaError) as caught:
        header = parse_header(buf)
        verify_crc(buf, header)
        validate_records(buf, header, **options)
    return caught.value.code


def seal(buf: bytearray) -> bytearray:
    """Give a changed batch a right size and CRC again."""
    struct.pack_into(">i", buf, 8, len(buf) - 12)
    struct.pack_into(">I", buf, 17, crc32c(bytes(buf[21:])))
    return buf


def batch_of(payload: bytes, count: int, attributes: int = 0) -> bytearray:
    """Return a sealed batch with the given bytes as its records."""
    buf = build_batch([Record(0, T0, None, None)] * max(count, 1))
    del buf[BATCH_OVERHEAD:]
    buf += payload
    struct.pack_into(">h", buf, 21, attributes)
    struct.pack_into(">i", buf, 23, count - 1)
    struct.pack_into(">i", buf, 57, count)
    return seal(buf)


def reference_record(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    """Encode one record as the protocol's text says, without any shortcut."""

    def sized(data: bytes | None) -> bytes:
        return encode_varint(-1) if data is None else encode_varint(len(data)) + data

    body = b"\x00" + encode_varint(record.timestamp - base_timestamp) + encode_varint(offset_delta)
    body += sized(record.key) + sized(record.value) + encode_varint(len(record.headers))
    for name, value in record.headers:
        body += sized(name.encode()) + sized(value)
    return encode_varint(len(body)) + body


def reference_batch(records: Sequence[Record], base_offset: int) -> bytes:
    base_timestamp = records[0].timestamp
    tail = struct.pack(">h", 0) + struct.pack(">i", len(records) - 1)
    tail += struct.pack(">q", base_timestamp)
    tail += struct.pack(">q", max(record.timestamp for record in records))
    tail += struct.pack(">qhi", 9, 1, 5) + struct.pack(">i", len(records))
    for delta, record in enumerate(records):
        tail += reference_record(record, delta, base_timestamp)
    middle = struct.pack(">i", 3) + b"\x02" + struct.pack(">I", crc32c(tail))
    return struct.pack(">qi", base_offset, len(middle) + len(tail)) + middle + tail
