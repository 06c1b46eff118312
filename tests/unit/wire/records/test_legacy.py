"""Message sets of magic 0 and 1: recorded clients, wrappers, conversion, hostile bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records.batch import (
    Record,
    build_batch,
    iter_records,
    parse_header,
    validate_records,
    verify_crc,
)
from kraftrio.wire.records.compression import Compression, compress
from kraftrio.wire.records.legacy import is_legacy, iter_legacy_records, iter_messages, to_v2

T0 = 1_700_000_000_000
JAVA_0_8 = "0000000000000000000000101fecd70a0000000000016b0000000176"
JAVA_0_9 = "0000000000000000000000128697724c0000000000026b30000000027630"
SARAMA_0_10 = "000000000000000000000017496d98cc0100000001a21f111c22ffffffff0000000176"


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp: int = T0,
    attributes: int = 0,
) -> bytes:
    """Return one message with its CRC, as an old client writes it."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += sized(key) + sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def wrapper(
    magic: int,
    codec: Compression,
    messages: Sequence[bytes],
    *,
    offset: int = 0,
    timestamp: int = T0,
    attributes: int = 0,
) -> bytes:
    data = b"".join(messages)
    value = compress(codec, data)
    if codec is Compression.LZ4 and magic == 0:
        frame = bytearray(value)
        frame[6] ^= 0xFF  # the wrong header checksum of old clients
        value = bytes(frame)
    return message(magic, offset, None, value, timestamp=timestamp, attributes=attributes | codec)


def error_of(buf: bytes, **options: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        list(iter_legacy_records(buf, **options))
    return caught.value.code


@pytest.mark.parametrize(
    ("recorded", "record"),
    [
        (JAVA_0_8, Record(0, -1, b"k", b"v")),
        (JAVA_0_9, Record(0, -1, b"k0", b"v0")),
        (SARAMA_0_10, Record(0, 1795817544738, None, b"v")),
    ],
)
def test_recorded_clients(recorded: str, record: Record) -> None:
    """Message sets that old clients sent are read and become the same record in a batch."""
    buf = bytes.fromhex(recorded)
    assert is_legacy(buf)
    assert list(iter_legacy_records(buf)) == [record]
    batch = to_v2(buf)
    assert not is_legacy(batch)
    header = parse_header(batch)
    verify_crc(batch, header)
    assert list(iter_records(batch, header)) == [record]
    assert header.max_timestamp == record.timestamp


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_sets(magic: int) -> None:
    """Messages one after the other keep offsets, nulls and, from magic 1 on, timestamps."""
    rows = [(10, b"k", b"v"), (11, None, b""), (15, b"", None)]
    buf = b"".join(message(magic, *row, timestamp=T0 + row[0]) for row in rows)
    records = list(iter_legacy_records(memoryview(buf)))
    assert [(r.offset, r.key, r.value) for r in records] == rows
    stamps = [T0 + row[0] for row in rows] if magic else [-1] * 3
    assert [r.timestamp for r in records] == stamps


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers(magic: int, codec: Compression) -> None:
    """Inner offsets are absolute in magic 0 and relative to the wrapper's in magic 1."""
    inner_offsets = [7, 8, 9] if magic == 0 else [0, 1, 2]
    inner = [message(magic, o, b"k", b"v%d" % i) for i, o in enumerate(inner_offsets)]
    buf = message(magic, 6, None, b"before") + wrapper(magic, codec, inner, offset=9)
    records = list(iter_legacy_records(buf))
    assert [r.offset for r in records] == [6, 7, 8, 9]
    assert [r.value for r in records] == [b"before", b"v0", b"v1", b"v2"]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_conversion_counts_messages(magic: int, codec: Compression) -> None:
    """Producers leave inner offsets 0; ten messages are ten offsets in the same codec."""
    inner = [message(magic, 0, None, b"v%d" % i, timestamp=T0 + i) for i in range(10)]
    batch = to_v2(wrapper(magic, codec, inner))
    header = parse_header(batch)
    verify_crc(batch, header)
    info = validate_records(batch, header)
    assert (header.record_count, header.last_offset, header.compression) == (10, 9, codec)
    assert info.max_timestamp == (T0 + 9 if magic else -1)
    assert [r.value for r in iter_records(batch, header)] == [b"v%d" % i for i in range(10)]
    plain = to_v2(wrapper(magic, codec, inner), compression=Compression.NONE)
    assert parse_header(plain).compression is Compression.NONE


def test_log_append_time_of_a_wrapper() -> None:
    """A wrapper with the broker's timestamp gives it to its messages."""
    inner = [message(1, 0, None, b"a", timestamp=1), message(1, 1, None, b"b", timestamp=2)]
    buf = wrapper(1, Compression.GZIP, inner, offset=1, timestamp=T0, attributes=0x08)
    assert [r.timestamp for r in iter_legacy_records(buf)] == [T0, T0]


@pytest.mark.parametrize("magic", [0, 1])
def test_crc_covers_every_byte_from_the_magic_on(magic: int) -> None:
    """A flip of a covered byte is CORRUPT_MESSAGE; the offset is not covered."""
    buf = message(magic, 0, b"key", b"value")
    for position in range(12, len(buf)):
        damaged = bytearray(buf)
        damaged[position] ^= 0x80
        assert error_of(bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE
    moved = bytearray(buf)
    moved[7] = 99
    assert next(iter_legacy_records(moved)).offset == 99


def test_cut_and_impossible_sizes() -> None:
    """Cut messages, too small sizes and other magics are CORRUPT_MESSAGE."""
    buf = message(1, 0, b"key", b"value")
    for end in range(1, len(buf)):
        assert error_of(buf[:end]) is ErrorCode.CORRUPT_MESSAGE
    for size in (-1, 0, 21):
        assert error_of(buf[:8] + struct.pack(">i", size) + buf[12:]) is ErrorCode.CORRUPT_MESSAGE
    assert error_of(bytes(build_batch([Record(0, T0, None, b"v")]))) is ErrorCode.CORRUPT_MESSAGE


def test_faults_behind_a_right_crc() -> None:
    """Lengths that do not fit and wrong wrappers are INVALID_RECORD."""

    def sealed(body: bytes) -> bytes:
        return struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body

    start = struct.pack(">bb", 0, 0)
    inner = message(1, 0, None, b"v")
    gzip_bit = Compression.GZIP
    cases = [
        sealed(start + sized(b"key") + struct.pack(">i", 1)),
        sealed(start + struct.pack(">i", 99) + bytes(8)),
        sealed(start + sized(None) + sized(b"v") + b"\x00"),
        message(1, 0, None, None, attributes=gzip_bit),
        message(1, 0, None, b"not gzip", attributes=gzip_bit),
        wrapper(1, Compression.GZIP, []),
        wrapper(1, Compression.GZIP, [wrapper(1, Compression.GZIP, [inner])]),
        wrapper(1, Compression.GZIP, [message(0, 0, None, b"v")]),
        message(0, 0, None, b"short", attributes=Compression.LZ4),
    ]
    for buf in cases:
        assert error_of(buf) is ErrorCode.INVALID_RECORD
    with pytest.raises(KafkaError) as caught:
        to_v2(b"")
    assert caught.value.code is ErrorCode.INVALID_RECORD
    zstd = message(1, 0, None, b"v", attributes=Compression.ZSTD)
    assert error_of(zstd) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_bound_covers_all_wrappers_together() -> None:
    """Many wrappers may not hold more than one may."""
    inner = [message(1, 0, None, bytes(1000))]
    buf = wrapper(1, Compression.GZIP, inner) * 5
    assert len(list(iter_legacy_records(buf, max_decompressed_bytes=6000))) == 5
    assert error_of(buf, max_decompressed_bytes=4500) is ErrorCode.MESSAGE_TOO_LARGE


def test_lz4_of_magic_1_has_a_right_checksum() -> None:
    """Only magic 0 is forgiven the wrong header checksum."""
    frame = bytearray(lz4.frame.compress(message(1, 0, None, b"v"), store_size=False))
    assert next(
        iter_legacy_records(message(1, 0, None, bytes(frame), attributes=Compression.LZ4))
    ) == Record(0, T0, None, b"v")
    frame[6] ^= 0xFF
    broken = message(1, 0, None, bytes(frame), attributes=Compression.LZ4)
    assert error_of(broken) is ErrorCode.INVALID_RECORD


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_sets_raise_nothing_but_kafka_errors(data: st.DataObject) -> None:
    """Damage behind a renewed CRC, also inside wrappers, gives records or a KafkaError."""
    magic = data.draw(st.sampled_from([0, 1]))
    inner = bytearray(message(magic, 0, b"k", b"v"))
    for _ in range(data.draw(st.integers(0, 3))):
        inner[data.draw(st.integers(16, len(inner) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", inner, 12, crc32(bytes(inner[16:])))
    buf = bytes(inner)
    if data.draw(st.booleans()):
        buf = wrapper(magic, data.draw(st.sampled_from(list(Compression)[1:4])), [buf])
    try:
        list(iter_legacy_records(buf, max_decompressed_bytes=1000))
    except KafkaError as error:
        assert error.code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )


@given(st.binary(max_size=80))
def test_random_bytes_raise_nothing_but_kafka_errors(junk: bytes) -> None:
    """Junk is never taken for messages."""
    try:
        assert list(iter_messages(junk)) == [] and not junk
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE
