"""Records of `__transaction_state`: those that Apache Kafka wrote, read and written again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.broker.coordinator.transactions.records import (
    read_transaction,
    read_transaction_key,
    transaction_key,
    transaction_record,
    transaction_tombstone,
)
from kraftrio.broker.coordinator.transactions.state import TransactionMetadata, TransactionState
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, iter_headers, iter_records

LOGS = Path(__file__).resolve().parents[4] / "data" / "log-dirs"

ONGOING = TransactionMetadata(
    "app-1",
    ProducerIdentity(5, 3, 2, 5, -1),
    60_000,
    TransactionState.ONGOING,
    frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)}),
    start_ms=1_000,
    last_update_ms=2_000,
    client_version=2,
)


def recorded(partition: int) -> Iterator[Record]:
    log = LOGS / f"__transaction_state-{partition}" / "00000000000000000000.log"
    data = log.read_bytes()
    for header in iter_headers(data):
        yield from iter_records(data, header)


@pytest.mark.parametrize("partition", [0, 1])
def test_records_of_apache_kafka_are_written_again_to_the_byte(partition: int) -> None:
    """Kafka orders topics by their hashes; where there is one topic, the order is the same."""
    count = 0
    for record in recorded(partition):
        assert record.key is not None and record.value is not None
        transactional_id = read_transaction_key(record.key)
        transaction = read_transaction(transactional_id, record.value)
        again = transaction_record(transaction, 2)
        assert again.key == record.key
        if len({each.topic for each in transaction.partitions}) < 2:
            assert again.value == record.value
        else:
            assert len(again.value or b"") == len(record.value)
        count += 1
    assert count > 5


def test_recorded_ids_are_read_as_the_dump_shows_them() -> None:
    """A producer that was fenced with an open transaction, as `kafka-dump-log` prints it."""
    transactions = [
        read_transaction(read_transaction_key(record.key or b""), record.value or b"")
        for record in recorded(0)
    ]
    states = [transaction.state.wire_name for transaction in transactions[11:15]]
    assert states == ["Ongoing", "PrepareAbort", "CompleteAbort", "Empty"]
    fenced = transactions[12]
    assert fenced.producer[:2] == (1, 1)
    assert (fenced.producer.previous_id, fenced.producer.next_id) == (1, -1)
    assert fenced.partitions == {TopicPartition("txn", 0)}
    assert (fenced.timeout_ms, fenced.client_version) == (60_000, 2)
    assert (fenced.start_ms, fenced.last_update_ms) == (1795818037962, 1795818038042)
    assert transactions[14].start_ms == -1


@pytest.mark.parametrize("state", [state for state in TransactionState if state.value < 6])
def test_every_state_is_kept(state: TransactionState) -> None:
    """All but the last epoch, which the log has no room for."""
    partitions = frozenset() if state is TransactionState.EMPTY else ONGOING.partitions
    transaction = replace(ONGOING, state=state, partitions=partitions)
    key, value = transaction_record(transaction, 2)
    assert read_transaction_key(key) == "app-1"
    assert value is not None
    kept = replace(transaction, producer=transaction.producer._replace(last_epoch=-1))
    assert read_transaction("app-1", value) == kept


def test_version_0_has_no_room_for_what_came_with_kip_890() -> None:
    ending = replace(
        ONGOING,
        state=TransactionState.PREPARE_COMMIT,
        producer=ONGOING.producer._replace(next_id=77),
    )
    value_0 = transaction_record(ending, 0).value or b""
    value_1 = transaction_record(ending, 1).value or b""
    assert (value_0[:2], value_1[:2]) == (b"\0\0", b"\0\1")
    assert read_transaction("app-1", value_1).producer.next_id == 77
    read = read_transaction("app-1", value_0)
    assert (read.producer.next_id, read.producer.previous_id, read.client_version) == (-1, -1, 0)


def test_topics_are_written_in_the_same_order_in_every_process() -> None:
    """Sets have an order of their own under each hash seed."""
    value = transaction_record(ONGOING, 2).value or b""
    assert value.index(b"\x02a") < value.index(b"\x02b")


def test_tombstone_has_the_key_of_the_id() -> None:
    assert transaction_tombstone("app-1") == (transaction_key("app-1"), None)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b"", "without a version"),
        (b"\x00\x01\x00\x01x", "unknown type 1"),
        (b"\x00\x00\x00\x09x", "truncated"),
    ],
)
def test_keys_that_cannot_be_read_are_refused(key: bytes, reason: str) -> None:
    """The loader passes over them (`loading`, rule 3)."""
    with pytest.raises(RemoteProtocolError, match=reason):
        read_transaction_key(key)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0", "without a version"),
        (b"\x00\x02" + bytes(60), "unknown version 2"),
        (b"\xff\xff" + bytes(60), "unknown version -1"),
        (b"\x00\x01" + bytes(10), "malformed"),
        # status 9, then 6 (Dead), which no coordinator writes
        (b"\x00\x00" + bytes(14) + b"\x09" + bytes(4 + 16), "unknown state 9"),
        (b"\x00\x00" + bytes(14) + b"\x06" + bytes(4 + 16), "unknown state 6"),
    ],
)
def test_values_that_cannot_be_read_are_refused(value: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        read_transaction("app-1", value)
