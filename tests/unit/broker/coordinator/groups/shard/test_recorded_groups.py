"""Partitions of `__consumer_offsets` as Apache Kafka wrote them: replayed, and written again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.groups.classic.records import group_from_record, group_value
from kraftrio.broker.coordinator.groups.consumer.records import group_records, member_tombstones
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.groups.shard.kinds import group_kinds
from kraftrio.broker.coordinator.outcome import Now
from kraftrio.broker.coordinator.share_initializer import ShareStateInitializer
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.messages.group_records.classic import (
    decode_assignment,
    decode_group_value,
    decode_offset_value,
    decode_subscription,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from kraftrio.wire.messages.group_records.keys import (
    ConsumerGroupCurrentMemberAssignmentKey,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_key,
)
from kraftrio.wire.messages.groups import OffsetFetchRequestGroup
from kraftrio.wire.primitives import ZERO_UUID, uuid_from_text
from kraftrio.wire.records.batch import Record, build_batch, iter_headers, iter_records
from kraftrio.wire.records.control import read_end_transaction_marker
from tests.unit.broker.coordinator.broker_stand_in import NoShareCoordinators
from tests.unit.broker.coordinator.groups.group_context import Properties, Settings

LOGS = Path(__file__).resolve().parents[5] / "data" / "log-dirs"
PLAIN_ID = uuid_from_text("nhZEL7knQ9mPkpKCbIc_pA")
NOW = Now(0.0, 1_795_818_100_000)


def read_log(partition: int) -> bytes:
    return (LOGS / f"__consumer_offsets-{partition}" / "00000000000000000000.log").read_bytes()


def records(partition: int) -> Iterator[Record]:
    data = read_log(partition)
    for header in iter_headers(data):
        if not header.is_control:
            yield from iter_records(data, header)


def _new_shard() -> GroupShard:
    properties = Properties()
    initializer = ShareStateInitializer(NoShareCoordinators())
    kinds = group_kinds(
        properties, Settings(), lambda: "uuid", lambda: "id", MetadataCache(), initializer
    )
    return GroupShard(properties, kinds)


def replay(partition: int, end_offset: int = 1 << 62) -> GroupShard:
    shard = _new_shard()
    data = read_log(partition)
    for header in iter_headers(data):
        if header.base_offset >= end_offset:
            break
        if header.is_control:
            marker = read_end_transaction_marker(data, header)
            assert marker is not None
            shard.replay_end_transaction(
                header.producer_id, header.next_offset, NOW, commit=marker.commit
            )
            continue
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iter_records(data, header):
            assert record.key is not None
            shard.replay(record.offset, record.key, record.value, NOW, producer_id=producer_id)
    return shard


def offsets(shard: GroupShard, group_id: str) -> dict[tuple[str, int], tuple[int, int, str | None]]:
    request = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    response = shard.fetch_offsets(request, require_stable=True)
    return {
        (topic.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch, p.metadata)
        for topic in response.topics
        for p in topic.partitions
    }


def test_groups_and_offsets_of_a_recorded_partition() -> None:
    """The groups, their states, generations and offsets are what the clients left behind."""
    shard = replay(0)
    groups = shard.groups.all_of(ClassicGroup)
    assert {g.group_id: (g.state.value, g.generation_id) for g in groups} == {
        "group-txn": ("Empty", 2),
        "group-classic": ("Empty", 4),
        "group-static": ("Stable", 1),
        "group-simple": ("Empty", 0),
    }
    consumer = shard.groups.find("group-consumer", ConsumerGroup)
    assert consumer is not None
    assert (consumer.state_name, consumer.epoch, consumer.target.epoch) == ("Empty", 3, 2)
    assert offsets(shard, "group-txn") == {("plain", 1): (5, 0, "")}
    assert offsets(shard, "group-classic") == {
        ("plain", 0): (7, -1, ""),
        ("plain", 1): (3, -1, "some metadata\0"),
    }
    assert offsets(shard, "group-simple") == {("plain", 0): (2, -1, "")}


def test_static_member_of_a_recorded_group() -> None:
    """The static member that stayed is there with all it had, and its session runs."""
    shard = replay(0)
    group = shard.groups.find("group-static", ClassicGroup)
    assert group is not None
    (member,) = group.members.values()
    assert member.group_instance_id == "inst-1"
    assert group.roster.leader_id == member.member_id == group.roster.static_members["inst-1"]
    assert (member.client_id, member.client_host) == ("cli-group-static", "/127.0.0.1")
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (300_000, 45_000)
    assert decode_subscription(member.metadata("range")).topics == ["plain"]
    (assigned,) = decode_assignment(member.assignment).assigned_partitions
    assert (assigned.topic, assigned.partitions) == ("plain", [0, 1])
    assert group.subscribed_topics == frozenset({"plain"})
    shard.on_loaded(NOW)
    shard.on_deadline(Now(45_000.0, NOW.wall_ms + 45_000))
    assert group.state is GroupState.EMPTY


def test_members_of_a_recorded_consumer_group() -> None:
    """What Apache Kafka wrote of them is read, and written again the same to the byte."""
    shard = replay(0, end_offset=19)
    group = shard.groups.find("group-consumer", ConsumerGroup)
    assert group is not None
    (member,) = group.members.values()
    assert (member.client_id, member.client_host) == ("cli-group-consumer", "/127.0.0.1")
    assert (member.member_epoch, member.previous_member_epoch) == (2, 0)
    assert member.subscribed_topic_names == frozenset({"plain"})
    assert (member.rebalance_timeout_ms, member.classic) == (300_000, None)
    assert member.assigned == {PLAIN_ID: {0: 2, 1: 2}}
    assert (group.state_name, group.target.timestamp_ms) == ("Stable", 0x1A21F18A784)
    written = {record.key: record.value for record in records(0) if 14 <= record.offset <= 18}
    assert dict(group_records(group)) == written


def test_what_a_recorded_consumer_group_leaves_behind() -> None:
    """A member's tombstones are Apache Kafka's, in its order."""
    recorded = [(record.key, record.value) for record in records(0) if 21 <= record.offset <= 23]
    member_id = decode_key(recorded[0][0] or b"")
    assert isinstance(member_id, ConsumerGroupCurrentMemberAssignmentKey)
    assert member_tombstones("group-consumer", member_id.member_id) == recorded


def test_transactional_offset_of_a_recorded_partition() -> None:
    """Before its marker the transactional commit is pending, after it committed."""
    assert offsets(replay(0, end_offset=3), "group-txn") == {}
    assert offsets(replay(0, end_offset=4), "group-txn") == {("plain", 1): (5, 0, "")}


def test_deleted_and_foreign_groups() -> None:
    """Tombstones take a group away; a share group comes from its own records."""
    before = replay(1, end_offset=1)
    assert offsets(before, "group-deleted") == {("plain", 0): (2, -1, "")}
    after = replay(1)
    assert {group.group_id: group.group_type for group in after.groups} == {"share-g": "share"}
    assert offsets(after, "group-deleted") == {}


def test_topic_ids_of_recorded_offsets() -> None:
    """Offsets that clients committed carry the topic's id, transactional ones none."""
    shard = replay(0)
    simple = shard.offsets.get(OffsetKey("group-simple", "plain", 0))
    transactional = shard.offsets.get(OffsetKey("group-txn", "plain", 1))
    assert simple is not None
    assert transactional is not None
    assert (simple.topic_id, transactional.topic_id) == (PLAIN_ID, ZERO_UUID)


@pytest.mark.parametrize("partition", [0, 1])
def test_classic_records_are_written_as_kafka_writes_them(partition: int) -> None:
    """Each key and value, read and written again, is the same to the byte."""
    count = 0
    for record in records(partition):
        assert record.key is not None
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey):
            assert encode_offset_key(key.group, key.topic, key.partition) == record.key
            if record.value is not None:
                assert encode_offset_value(decode_offset_value(record.value)) == record.value
        elif isinstance(key, GroupMetadataKey):
            assert encode_group_key(key.group) == record.key
            if record.value is not None:
                assert encode_group_value(decode_group_value(record.value)) == record.value
        else:
            continue
        count += 1
    assert count == {0: 19, 1: 3}[partition]


def test_state_is_written_as_kafka_writes_it() -> None:
    """A group or offset that was replayed and is stored again gives the recorded bytes."""
    for record in records(0):
        assert record.key is not None
        key = decode_key(record.key)
        if isinstance(key, GroupMetadataKey) and record.value is not None:
            group = group_from_record(key.group, decode_group_value(record.value))
            assert encode_group_value(group_value(group)) == record.value
        elif isinstance(key, OffsetCommitKey) and record.value is not None:
            shard = _new_shard()
            shard.replay(record.offset, record.key, record.value, NOW)
            offset = shard.offsets.get(OffsetKey(key.group, key.topic, key.partition))
            assert offset is not None
            assert encode_offset_value(offset.to_record()) == record.value


def test_batches_are_built_as_kafka_builds_them() -> None:
    """The coordinator's batch of a recorded record is the recorded batch to the byte."""
    data = read_log(0)
    compared = 0
    for header in iter_headers(data):
        if header.is_transactional or header.is_control:
            continue
        batch = build_batch(
            list(iter_records(data, header)),
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            base_sequence=0,
        )
        assert batch == data[header.position : header.position + header.size_bytes]
        compared += 1
    assert compared == 20
