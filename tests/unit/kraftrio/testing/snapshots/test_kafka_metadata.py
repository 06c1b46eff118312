"""Apache Kafka's metadata log: what a recorded one says, and what newer or damaged ones are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftrio.testing.snapshots.errors import SnapshotError
from kraftrio.testing.snapshots.kafka_metadata import (
    ConfigRecord,
    KafkaMetadata,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    read_metadata,
)
from kraftrio.wire.codec.message import encode
from kraftrio.wire.primitives import uuid_from_text

RECORDED = Path(__file__).resolve().parents[4] / "data" / "log-dirs" / "__cluster_metadata-0"
LOG = "00000000000000000000.log"
SNAPSHOT = "00000000000000000093-0000000001.checkpoint"
TOPIC_ID = bytes(range(16))


@pytest.fixture
def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in RECORDED.iterdir()}


def _value(type_id: int, version: int, record: object) -> bytes:
    return bytes([1, type_id, version]) + encode(record, version)


def test_a_recorded_log(files: dict[str, bytes]) -> None:
    """With its snapshot and without: the log has all of it. Deleted topics are gone."""
    found = read_metadata(files)
    assert found.topic_ids["plain"] == uuid_from_text("nhZEL7knQ9mPkpKCbIc_pA")
    assert "todelete" not in found.topic_ids
    assert found.partition_counts[found.topic_ids["plain"]] == 2
    assert found.configs[2, "compacted"]["cleanup.policy"] == "compact"
    assert found.next_producer_id == 2000
    del files[SNAPSHOT]
    assert read_metadata(files) == found


def test_what_is_taken_back() -> None:
    metadata = KafkaMetadata()
    metadata.replay(_value(2, 0, TopicRecord(name="orders", topic_id=TOPIC_ID)))
    metadata.replay(_value(3, 2, PartitionRecord(partition_id=1, topic_id=TOPIC_ID)))
    assert metadata.partition_counts == {TOPIC_ID: 2}
    for value in ("7", None):
        record = ConfigRecord(resource_type=2, resource_name="orders", name="a", value=value)
        metadata.replay(_value(4, 0, record))
    assert metadata.configs == {(2, "orders"): {}}
    metadata.replay(_value(9, 0, RemoveTopicRecord(topic_id=TOPIC_ID)))
    metadata.replay(bytes([1, 17, 0, 0]))  # of brokers
    assert metadata.topic_ids == {}


def test_a_newer_version() -> None:
    with pytest.raises(SnapshotError, match="TopicRecord version 7 of a newer Apache Kafka; this"):
        KafkaMetadata().replay(bytes([1, 2, 7]))


def test_a_damaged_log(files: dict[str, bytes]) -> None:
    """A tail that is torn is none; a bit that is flipped is, in the log as in the snapshot."""
    whole = files[LOG]
    read_metadata({**files, LOG: whole[:-5]})
    for name in (LOG, SNAPSHOT):
        flipped = bytearray(files[name])
        flipped[flipped.index(b"plain")] ^= 1
        with pytest.raises(SnapshotError, match="has a damaged metadata log: "):
            read_metadata({**files, name: bytes(flipped)})
