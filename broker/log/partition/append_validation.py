"""What a leader checks and changes in a client's batch before it is appended (Kafka's
LogValidator).

Pure: takes the bytes and the topic's config, and returns the bytes to append and their header. A
batch that is refused (KafkaError) is left as it was. The order of checks is Kafka's, because it
decides which error a client sees. Only `partition_log` calls it.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from kraftrio.broker.log.log_config import LONG_MAX, LogConfig
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    check_client_header,
    iter_records,
    parse_header,
    recompress,
    set_log_append_time,
    set_max_timestamp,
    validate_records,
    verify_crc,
)

_MAX_RECORD_ERRORS = 1000
_SHOWN_RECORD_ERRORS = 3


class RecordValidationError(KafkaError):
    """The batch is refused because of some of its records.

    `record_errors` has their indexes in the batch, and the reason for each.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class ValidBatch(NamedTuple):
    """The bytes to append (a new buffer if the batch was recompressed)."""

    data: bytearray | memoryview
    header: BatchHeader


def validate_client_batch(
    records: bytearray | memoryview,
    config: LogConfig,
    topic_partition: TopicPartition,
    now_ms: int,
) -> ValidBatch:
    """Check the one batch of a Produce request for one partition, and set its timestamps.

    Raises:
        KafkaError: the batch is refused; RecordValidationError: because of some of its records.
    """
    size = len(records)
    if not size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request needs one record batch")
    if size < BATCH_OVERHEAD:  # also a message set of an old client, which is just as invalid
        raise KafkaError(ErrorCode.INVALID_RECORD, "the batch is incomplete")
    header = parse_header(records)
    if header.size_bytes != size:
        if header.size_bytes > size:  # not CORRUPT_MESSAGE, which producers retry
            raise KafkaError(ErrorCode.INVALID_RECORD, "the batch is incomplete")
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a Produce request may have only one batch per partition"
        )
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a produced batch should be 0, but it is {header.base_offset}",
        )
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    verify_crc(records, header)
    check_client_header(header)
    info = validate_records(
        records,
        header,
        require_keys=config.compact,
        max_decompressed_bytes=config.max_decompressed_batch_bytes,
    )
    if info.key_errors or not config.log_append_time:
        _check_records(records, config, topic_partition, now_ms, header, info.max_timestamp,
                       info.key_errors)  # fmt: skip
    data = records
    target = config.target_compression
    if target is not None and header.compression is not target:
        data = recompress(
            records,
            header,
            target,
            level=config.compression_level,
            max_decompressed_bytes=config.max_decompressed_batch_bytes,
        )
        header = parse_header(data)
        if header.size_bytes > config.max_message_bytes:
            raise _too_large(header.size_bytes, config)
    if config.log_append_time:
        set_log_append_time(data, header, now_ms)
    elif header.max_timestamp != info.max_timestamp:
        set_max_timestamp(data, header, info.max_timestamp)
    return ValidBatch(data, header)


def _too_large(size: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {size} bytes, more than max.message.bytes of {config.max_message_bytes}",
    )


def check_fits_segment(size: int, config: LogConfig) -> None:
    """Refuse a batch that no segment can hold (KafkaError)."""
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size} bytes, more than segment.bytes of {config.segment_bytes}",
        )


def _check_records(
    records: bytearray | memoryview,
    config: LogConfig,
    topic_partition: TopicPartition,
    now_ms: int,
    header: BatchHeader,
    max_timestamp: int,
    key_errors: list[int],
) -> None:
    """Refuse records without keys in a compacted topic, and timestamps out of range.

    A batch that seems good is decoded only if `message.timestamp.before.max.ms` is set.
    """
    latest = now_ms + config.message_timestamp_after_max_ms
    before = config.message_timestamp_before_max_ms
    if not key_errors and before == LONG_MAX and max_timestamp <= latest:
        return
    earliest = now_ms - before
    time_errors: list[tuple[int, str]] = []
    if not config.log_append_time:
        for index, record in enumerate(iter_records(records, header)):
            timestamp = record.timestamp
            if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                time_errors.append(
                    (
                        index,
                        f"Timestamp {timestamp} of message with offset {index} is out of range. "
                        f"The timestamp should be within [{earliest}, {latest}]",
                    )
                )
    if time_errors:
        _reject(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            time_errors,
        )
    if key_errors:
        reason = (
            "Compacted topic cannot accept message without key "
            f"in topic partition {topic_partition}"
        )
        _reject(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(key_errors)} record errors "
            "in total, and only showing the first three errors at most: "
            f"[{_first(key_errors, reason)}]",
            [(index, reason) for index in key_errors],
        )


def _first(indexes: list[int], reason: str) -> str:
    shown = indexes[:_SHOWN_RECORD_ERRORS]
    return ", ".join(f"RecordError(batchIndex={index}, message='{reason}')" for index in shown)


def _reject(code: ErrorCode, message: str, errors: list[tuple[int, str]]) -> NoReturn:
    raise RecordValidationError(code, message, errors[:_MAX_RECORD_ERRORS])
