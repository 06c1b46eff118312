"""Records of `__share_group_state`, byte by byte, and what cannot be read.

The bytes are those of Apache Kafka 4.3 for the same states.
"""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.share_state.records import (
    read_record,
    snapshot_record,
    tombstone,
    update_record,
)
from kraftrio.broker.coordinator.share_state.state import ShareSnapshot, Update
from kraftrio.broker.share_state import SharePartitionKey, ShareStateBatch
from kraftrio.wire.errors import RemoteProtocolError

KEY = SharePartitionKey("g", bytes(range(16)), 3)
KEY_FIELDS = "0001 67" + "000102030405060708090a0b0c0d0e0f" + "00000003"
BATCHES = (ShareStateBatch(10, 19, 2, 1), ShareStateBatch(20, 20, 0, 2))
BATCH_FIELDS = (
    "03000000000000000a 0000000000000013 02 0001 000000000000000014 0000000000000014 00 0002 00"
)
SNAPSHOT = ShareSnapshot(1, 2, 5, 10, 7, BATCHES, 1000, 2000)
SNAPSHOT_VALUE = (
    "0000 00000001 00000002 00000005 000000000000000a"
    "00000000000003e8 00000000000007d0" + BATCH_FIELDS + "01 00 04 00000007"
)
UPDATE = Update(1, 5, -1, -1, BATCHES)
UPDATE_VALUE = "0000 00000001 00000005 ffffffffffffffff" + BATCH_FIELDS + "00"


def test_a_snapshot() -> None:
    record = snapshot_record(KEY, SNAPSHOT)
    assert record.key == bytes.fromhex("0000" + KEY_FIELDS)
    assert record.value == bytes.fromhex(SNAPSHOT_VALUE)
    assert read_record(*record) == (KEY, SNAPSHOT)


def test_an_update() -> None:
    """Without a count, which is a tagged field."""
    record = update_record(KEY, UPDATE)
    assert record.key == bytes.fromhex("0001" + KEY_FIELDS)
    assert record.value == bytes.fromhex(UPDATE_VALUE)
    assert read_record(*record) == (KEY, UPDATE)


def test_a_tombstone() -> None:
    record = tombstone(KEY)
    assert (record.key, record.value) == (bytes.fromhex("0000" + KEY_FIELDS), None)
    assert read_record(*record) == (KEY, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", SNAPSHOT_VALUE),
        ("0000", SNAPSHOT_VALUE),
        ("0000" + KEY_FIELDS, "0001" + SNAPSHOT_VALUE[4:]),
        ("0000" + KEY_FIELDS, "00"),
        ("0000" + KEY_FIELDS, SNAPSHOT_VALUE[:-4]),
        ("0001" + KEY_FIELDS, "ffff" + UPDATE_VALUE[4:]),
        ("0001" + KEY_FIELDS, None),
    ],
)
def test_damaged_records_are_refused(key: str, value: str | None) -> None:
    with pytest.raises(RemoteProtocolError):
        read_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_a_record_type_of_a_newer_kafka_is_passed_over() -> None:
    assert read_record(bytes.fromhex("0002" + KEY_FIELDS), b"") is None
