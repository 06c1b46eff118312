"""What a leader refuses, with Kafka's error for each, and what it changes in a batch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.append_validation import (
    RecordValidationError,
    validate_client_batch,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records.batch import (
    Compression,
    Record,
    TimestampType,
    build_batch,
    parse_header,
    verify_crc,
)
from tests.support.logs import NOW_MS, TOPIC_PARTITION, LogContext, batch, records_of

HOUR_MS = 3_600_000


def validate(data: bytearray, **config: Any) -> tuple[bytes, int]:
    valid = validate_client_batch(
        data,
        LogConfig(**config),
        TOPIC_PARTITION,
        NOW_MS,
    )
    verify_crc(valid.data, parse_header(valid.data))
    return bytes(valid.data), valid.header.max_timestamp


def recrc(data: bytearray) -> bytearray:
    """Make the checksum right again after a change."""
    from crc32c import crc32c

    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def patched(position: int, layout: str, value: int) -> bytearray:
    data = batch(b"a", b"b")
    struct.pack_into(layout, data, position, value)
    return recrc(data)


def flipped() -> bytearray:
    data = batch(b"a")
    data[-1] ^= 1
    return data


REFUSED: dict[str, tuple[Callable[[], bytearray], ErrorCode]] = {
    "nothing": (bytearray, ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "cut": (lambda: batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
    "header only in part": (lambda: batch(b"a")[:30], ErrorCode.INVALID_RECORD),
    "flipped bit": (flipped, ErrorCode.CORRUPT_MESSAGE),
    "base offset": (lambda: batch(b"a", base_offset=3), ErrorCode.INVALID_RECORD),
    "old format": (lambda: patched(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "control batch": (lambda: patched(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "record count": (lambda: patched(57, ">i", 3), ErrorCode.INVALID_RECORD),
    "no records": (lambda: patched(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "last offset delta": (lambda: patched(23, ">i", 5), ErrorCode.INVALID_RECORD),
    "negative sequence": (
        lambda: batch(b"a", producer_id=4, producer_epoch=0, sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "claims LogAppendTime": (lambda: patched(21, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
    "unknown codec": (lambda: patched(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_batches_leave_the_log_alone(name: str) -> None:
    """Each fault has Kafka's error code, and nothing is written."""
    make, code = REFUSED[name]
    context = LogContext()
    with pytest.raises(KafkaError) as error:
        context.append_bytes(make())
    assert error.value.code is code
    assert context.log.log_end_offset == 0
    assert context.append(b"good").base_offset == 0


@pytest.mark.parametrize("epoch", [-1, 0, 99])
def test_leader_epoch_of_clients_is_replaced(epoch: int) -> None:
    """What a client writes there does not matter; the stored batch has the leader's."""
    context = LogContext()
    context.leader_epoch = 7
    context.append(b"a", leader_epoch=epoch)
    read = context.log.read(0, 1, max_offset=1, min_one_batch=True)
    header = parse_header(read.records)
    assert (header.base_offset, header.partition_leader_epoch) == (0, 7)
    verify_crc(read.records, header)


def test_size_is_compared_as_sent_and_by_the_config_of_now() -> None:
    """max.message.bytes counts the compressed batch and takes effect at once."""
    context = LogContext(max_message_bytes=2000)
    assert context.append(b"x" * 1900).base_offset == 0
    with pytest.raises(KafkaError) as error:
        context.append(b"x" * 2000)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert context.append(b"x" * 100_000, compression=Compression.GZIP).base_offset == 1
    context.log.set_config(LogConfig(max_message_bytes=3000))
    assert context.append(b"x" * 2000).base_offset == 2


def test_batch_larger_than_a_segment() -> None:
    context = LogContext(segment_bytes=1000)
    with pytest.raises(KafkaError) as error:
        context.append(b"x" * 1000)
    assert error.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_all_records_without_key_are_named() -> None:
    """A compacted topic refuses the batch and names each bad record."""
    data = build_batch([Record(0, NOW_MS, key, b"v") for key in (None, b"k", None)])
    with pytest.raises(RecordValidationError) as error:
        validate(data, cleanup_policy="compact")
    assert error.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.value.record_errors] == [0, 2]
    assert error.value.message
    validate(data, cleanup_policy="delete")


def test_bad_timestamp_wins_over_missing_key() -> None:
    data = build_batch([Record(0, NOW_MS, None, b"v"), Record(0, NOW_MS + 2 * HOUR_MS, b"k", b"v")])
    with pytest.raises(RecordValidationError) as error:
        validate(data, cleanup_policy="compact")
    assert error.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.value.record_errors] == [1]


@pytest.mark.parametrize(
    ("timestamps", "bad"),
    [
        ([NOW_MS + HOUR_MS], []),
        ([NOW_MS, NOW_MS + HOUR_MS + 1], [1]),
        ([NOW_MS - HOUR_MS, NOW_MS - HOUR_MS - 1, NOW_MS], [1]),
        ([-1, NOW_MS], []),
        ([0, NOW_MS], [0]),
    ],
)
def test_timestamp_bounds(timestamps: list[int], bad: list[int]) -> None:
    """Records too old or too far ahead are refused by name; "no timestamp" is none of them."""
    data = batch(*[b"v"] * len(timestamps), timestamps=timestamps)
    config = {"message_timestamp_before_max_ms": HOUR_MS}
    if not bad:
        validate(data, **config)
        return
    with pytest.raises(RecordValidationError) as error:
        validate(data, **config)
    assert error.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.value.record_errors] == bad


def test_old_records_are_fine_by_default() -> None:
    _, max_timestamp = validate(batch(b"v", timestamps=[1]))
    assert max_timestamp == 1


def test_wrong_max_timestamp_is_corrected() -> None:
    """The stored header has the records' true maximum, as producers without it need."""
    data = batch(b"a", b"b", timestamps=[NOW_MS + 5, NOW_MS])
    struct.pack_into(">q", data, 35, -1)
    _, max_timestamp = validate(recrc(data))
    assert max_timestamp == NOW_MS + 5


def test_log_append_time() -> None:
    """Every record shows the broker's time, whatever the client wrote."""
    context = LogContext(message_timestamp_type="LogAppendTime")
    context.now_ms = NOW_MS + 77
    info = context.append(b"a", b"b", timestamps=[5, NOW_MS + 9 * HOUR_MS])
    assert info.log_append_time_ms == NOW_MS + 77
    read = context.log.read(0, 1, max_offset=2, min_one_batch=True)
    header = parse_header(read.records)
    verify_crc(read.records, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in records_of(read.records)} == {NOW_MS + 77}


def test_create_time_reports_no_append_time() -> None:
    assert LogContext().append(b"a").log_append_time_ms == -1


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", list(Compression))
def test_compression_type_of_the_topic(target: str, source: Compression) -> None:
    """Batches are stored in the topic's codec; `producer` leaves them as they came."""
    data = batch(*[b"value %d" % i for i in range(20)], compression=source, producer_id=3,
                 producer_epoch=1, sequence=4)  # fmt: skip
    before = bytes(data)
    stored, _ = validate(data, compression_type=target)
    header = parse_header(stored)
    wanted = {"uncompressed": "NONE"}.get(target, target.upper())
    assert header.compression is Compression[wanted]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 4)
    assert records_of(stored) == records_of(before)
    if header.compression is source:
        assert stored == before
    kept, _ = validate(bytearray(before), compression_type="producer")
    assert kept == before


def test_recompressed_batch_must_fit_too() -> None:
    """The limit also holds for what is going to be stored."""
    data = batch(b"x" * 10_000, compression=Compression.GZIP)
    with pytest.raises(KafkaError) as error:
        validate(data, compression_type="uncompressed", max_message_bytes=5000)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_decompresses_to_more_than_the_broker_allows_is_refused() -> None:
    """Nothing of it is written, and the next batch is."""
    context = LogContext(max_decompressed_batch_bytes=10_000)
    bomb = build_batch([Record(0, NOW_MS, None, bytes(20_000))], compression=Compression.ZSTD)
    with pytest.raises(KafkaError) as error:
        context.log.append_as_leader(bomb, 0, NOW_MS)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert context.append(b"a").base_offset == 0
