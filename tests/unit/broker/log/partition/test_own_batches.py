"""What is checked in batches that this broker built, and how they are stamped."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.own_batches import check_own_batches, stamp_own_batches
from kraftrio.broker.log.producers.producer_state import AppendOrigin, ProducerStateManager
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records.batch import BatchHeader, iter_headers, verify_crc
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.support.logs import NOW_MS, batch

COORDINATOR = AppendOrigin.COORDINATOR


def check(
    data: bytearray, config: LogConfig, producers: ProducerStateManager | None = None
) -> list[BatchHeader]:
    producers = producers or ProducerStateManager()
    return check_own_batches(data, config, producers, NOW_MS, COORDINATOR, 0).headers


@pytest.mark.parametrize(
    ("data", "config", "code"),
    [
        (bytearray(), LogConfig(), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 90), LogConfig(max_message_bytes=90), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"x" * 90), LogConfig(segment_bytes=90), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_sizes_count(data: bytearray, config: LogConfig, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as error:
        check(data, config)
    assert error.value.code is code


def test_a_marker_of_a_replaced_coordinator_is_refused() -> None:
    producers = ProducerStateManager()
    data = build_end_transaction_batch(7, 0, EndTransactionMarker(True, 5), timestamp=NOW_MS)
    found = check_own_batches(data, LogConfig(), producers, NOW_MS, COORDINATOR, 0)
    (header,), (marker,) = found
    assert marker == EndTransactionMarker(True, 5)
    producers.update(header, 0, NOW_MS, marker=marker)
    late = build_end_transaction_batch(7, 0, EndTransactionMarker(True, 4), timestamp=NOW_MS)
    with pytest.raises(KafkaError) as error:
        check(late, LogConfig(), producers)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_batches_follow_each_other(kind: str) -> None:
    """Offsets from the log's end on, and the append time where the topic asks for it."""
    config = LogConfig(message_timestamp_type=kind)
    data = batch(b"a", b"b") + batch(b"c")
    stamp_own_batches(data, check(data, config), config, NOW_MS + 5, 10, 3)
    headers = list(iter_headers(data))
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(10, 3), (12, 3)]
    for header in headers:
        verify_crc(data, header)
        assert header.max_timestamp == NOW_MS + (5 if config.log_append_time else 0)
