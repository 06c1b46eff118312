"""Checking records: malformed, damaged and hostile batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.primitives import encode_varint
from kraftrio.wire.records.batch import (
    Compression,
    LegacyFormatError,
    Record,
    TimestampType,
    build_batch,
    check_client_header,
    check_lengths,
    iter_headers,
    iter_records,
    parse_header,
    recompress,
    validate_records,
    verify_crc,
)
from tests.unit.wire.batches import T0, batch_of, error_of, reference_record, seal


def test_bad_crc_in_each_place() -> None:
    """A flip of any byte the CRC covers, or of the CRC itself, is CORRUPT_MESSAGE."""
    batch = build_batch([Record(0, T0, b"key", b"value")])
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x01
        assert error_of(damaged) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_impossible_batch_length(length: int) -> None:
    """A length below that of a header is CORRUPT_MESSAGE."""
    batch = build_batch([Record(0, T0, None, b"value")])
    struct.pack_into(">i", batch, 8, length)
    assert error_of(batch) is ErrorCode.CORRUPT_MESSAGE


def test_batch_longer_than_its_bytes() -> None:
    """A length beyond the buffer is CORRUPT_MESSAGE."""
    batch = build_batch([Record(0, T0, None, b"value")])
    struct.pack_into(">i", batch, 8, len(batch) - 11)
    assert error_of(batch) is ErrorCode.CORRUPT_MESSAGE


def test_magic() -> None:
    """Old magics are INVALID_RECORD as Produce v3+ answers, unknown ones CORRUPT_MESSAGE."""
    batch = build_batch([Record(0, T0, None, b"value")])
    for magic, code in [(0, 87), (1, 87), (3, 2), (127, 2), (255, 2)]:
        batch[16] = magic
        assert error_of(batch) == code
        assert error_of(batch[:30]) == code
    batch[16] = 1
    with pytest.raises(LegacyFormatError):
        parse_header(batch)
    for size in range(17):
        with pytest.raises(CorruptBatchError):
            parse_header(batch[:size])


def malformed() -> Iterator[tuple[str, bytes, int]]:
    good = reference_record(Record(0, T0, b"key", b"value", (("h", b"x"),)), 0, T0)
    second = reference_record(Record(0, T0, b"key", b"value"), 1, T0)
    yield "nothing", b"", 1
    yield "fewer than counted", good, 2
    yield "more than counted", good + second, 1
    yield "trailing byte", good + b"\x00", 1
    yield "offsets start at 1", second, 1
    yield "offset repeated", good + good, 2
    yield "negative offset delta", reference_record(Record(0, T0, None, b""), -1, T0), 1
    yield "negative size", encode_varint(-6) + good[1:], 1
    yield "size 0", b"\x00", 1
    yield "size too small", encode_varint(len(good) - 2) + good[1:], 1
    yield "size too large", encode_varint(len(good)) + good[1:] + b"\x00", 1
    yield "endless varint", b"\xff" * 12, 1
    # attributes, timestamp delta, offset delta, key length, value length, headers
    for name, body in [
        ("key beyond the end", b"\x00\x00\x00\x7e\x02\x00"),
        ("value beyond the end", b"\x00\x00\x00\x01\x7e\x00"),
        ("header count negative", b"\x00\x00\x00\x01\x01\x01"),
        ("header count too high", b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f"),
        ("header key negative", b"\x00\x00\x00\x01\x01\x02\x01\x01"),
        ("header key beyond the end", b"\x00\x00\x00\x01\x01\x02\x7e\x01"),
        ("header value beyond the end", b"\x00\x00\x00\x01\x01\x02\x00\x7e"),
        ("no headers", b"\x00\x00\x00\x01\x01"),
    ]:
        yield name, encode_varint(len(body)) + body, 1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize(("name", "payload", "count"), list(malformed()), ids=lambda v: str(v)[:30])
def test_malformed_records(name: str, payload: bytes, count: int, codec: Compression) -> None:
    """A fault behind a right CRC is INVALID_RECORD, compressed or not; reading raises it too."""
    plain = batch_of(payload, count)
    buf = recompress(plain, parse_header(plain), codec)
    assert error_of(buf) is ErrorCode.INVALID_RECORD
    if "offset" not in name:
        with pytest.raises(KafkaError) as caught:
            list(iter_records(buf, parse_header(buf)))
        assert caught.value.code is ErrorCode.INVALID_RECORD


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=6))
def test_max_timestamp_of_any_deltas(deltas: list[int]) -> None:
    """The first of the highest timestamps is found, also when all lie before the base."""
    rows = [Record(0, T0 + delta, None, b"") for delta in deltas]
    payload = b"".join(reference_record(row, index, T0) for index, row in enumerate(rows))
    buf = batch_of(payload, len(rows))
    info = validate_records(buf, parse_header(buf))
    assert info.max_timestamp == T0 + max(deltas)
    assert info.offset_of_max_timestamp == deltas.index(max(deltas))


def test_lengths_alone() -> None:
    """The short walk finds records that do not fill the batch."""
    good = reference_record(Record(0, T0, b"key", b"v" * 100), 0, T0)
    check_lengths(batch_of(good, 1), parse_header(batch_of(good, 1)))
    for payload, count in [
        (good, 2),
        (good + good, 1),
        (good + b"\x00", 1),
        (good[:-1], 1),
        (b"\x07" + good[1:], 1),
        (b"\xff" * 8, 1),
    ]:
        buf = batch_of(payload, count)
        with pytest.raises(KafkaError) as caught:
            check_lengths(buf, parse_header(buf))
        assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("count", "delta"), [(0, -1), (-1, -2), (1, 1), (2, 0), (3, -1)])
def test_count_and_last_offset_delta_must_agree(count: int, delta: int) -> None:
    """A record count that is not last_offset_delta + 1, or below 1, is INVALID_RECORD."""
    buf = build_batch([Record(0, T0, None, b"v")])
    struct.pack_into(">i", buf, 57, count)
    struct.pack_into(">i", buf, 23, delta)
    assert error_of(seal(buf)) is ErrorCode.INVALID_RECORD
    with pytest.raises(KafkaError):
        check_client_header(parse_header(buf))


def test_what_clients_may_not_claim() -> None:
    """Control batches, ids without sequences and LogAppendTime are refused from producers."""
    records = [Record(0, T0, None, b"v")]
    check_client_header(parse_header(build_batch(records)))
    ok = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    check_client_header(parse_header(ok))
    refused = [
        (build_batch(records, control=True), ErrorCode.INVALID_RECORD),
        (build_batch(records, producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (build_batch(records, transactional=True), ErrorCode.INVALID_RECORD),
        (
            build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME),
            ErrorCode.INVALID_TIMESTAMP,
        ),
    ]
    for buf, code in refused:
        with pytest.raises(KafkaError) as caught:
            check_client_header(parse_header(buf))
        assert caught.value.code is code


def test_unknown_codec_and_bomb() -> None:
    """Codec numbers 5-7 are UNSUPPORTED_COMPRESSION_TYPE; too much data is MESSAGE_TOO_LARGE."""
    for number in (5, 6, 7):
        assert error_of(batch_of(b"", 1, number)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    records = [Record(0, T0, None, bytes(100_000))]
    for codec in (codec for codec in Compression if codec):
        buf = build_batch(records, compression=codec)
        code = error_of(buf, max_decompressed_bytes=100_000)
        assert code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(KafkaError):
            iter_records(buf, parse_header(buf), max_decompressed_bytes=100_000)
        assert error_of(batch_of(b"junk!", 1, codec)) is ErrorCode.INVALID_RECORD


def test_impossible_timestamp() -> None:
    """A timestamp beyond 64 bits cannot be stored and is INVALID_RECORD."""
    buf = batch_of(reference_record(Record(0, 2**63 - 1, None, b""), 0, 0), 1)
    struct.pack_into(">q", buf, 27, 5)
    assert error_of(seal(buf)) is ErrorCode.INVALID_RECORD


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_damaged_batches_raise_nothing_but_kafka_errors(data: st.DataObject) -> None:
    """Any bytes behind a right CRC are either valid for all readers or a KafkaError."""
    codec = data.draw(st.sampled_from(Compression))
    buf = build_batch(
        [Record(i, T0 + i, b"k", b"v" * 70, (("h", b"x"),)) for i in range(3)], compression=codec
    )
    for _ in range(data.draw(st.integers(1, 3))):
        buf[data.draw(st.integers(21, len(buf) - 1))] = data.draw(st.integers(0, 255))
    seal(buf)
    header = parse_header(buf)
    verify_crc(buf, header)
    try:
        info = validate_records(buf, header, max_decompressed_bytes=10_000)
    except KafkaError:
        info = None
    try:
        records = list(iter_records(buf, header, max_decompressed_bytes=10_000))
    except KafkaError:
        assert info is None
        return
    if info is not None:
        stamps = [record.timestamp for record in records]
        assert info.max_timestamp == max(stamps)
        assert [record.offset for record in records] == list(range(len(records)))


@given(st.binary(max_size=150))
@settings(max_examples=300, deadline=None)
def test_random_bytes_raise_nothing_but_kafka_errors(junk: bytes) -> None:
    """Junk is never taken for a batch and never crashes the reader."""
    for buf in (junk, junk[:16] + b"\x02" + junk[16:]):
        try:
            for header in iter_headers(buf):
                verify_crc(buf, header)
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_header_names_that_are_not_utf8() -> None:
    """A header name of other bytes is read leniently, as Kafka's clients do."""
    body = b"\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x01"
    buf = batch_of(encode_varint(len(body)) + body, 1)
    validate_records(buf, parse_header(buf))
    (record,) = iter_records(buf, parse_header(buf))
    assert record.headers == (("\ufffd\ufffd", None),)
