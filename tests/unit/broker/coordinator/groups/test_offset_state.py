"""Committed offsets: commits, fetches, expiry and deletion."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.classic import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_offset_value,
    encode_assignment,
    encode_offset_key,
    encode_subscription,
)
from kraftrio.wire.messages.groups import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.unit.broker.coordinator.groups.group_context import GroupContext

NONE = ErrorCode.NONE
TOPIC_ID, OTHER_ID = b"t" * 16, b"o" * 16
WEEK_MS = 10_080 * 60_000
NO_OFFSET = (-1, -1, "", NONE)


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


def subscription(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(ConsumerProtocolSubscription(topics=list(topics)))),)


def delete_offset(context: GroupContext, topic: str, partition: int = 0) -> ErrorCode:
    request = OffsetDeleteRequest(
        group_id=context.group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
        ],
    )
    response = context.carry_out(context.shard.delete_offsets(request))
    return ErrorCode(response.topics[0].partitions[0].error_code)


def delete_group(context: GroupContext, group_id: str | None = None) -> ErrorCode:
    results = context.carry_out(context.shard.delete_groups([group_id or context.group_id]))
    return ErrorCode(results[0].error_code)


# --- commits ---


def test_commit_by_hand_makes_a_group(context: GroupContext) -> None:
    """A commit without member and generation stores offsets in a group that holds nothing else."""
    assert context.commit_offset(offset=7, metadata="note", leader_epoch=3) == NONE
    assert context.fetch_offset() == (7, 3, "note", NONE)
    assert (context.state, context.group.protocol_type) == ("Empty", None)


def test_commit_without_metadata_and_epoch(context: GroupContext) -> None:
    """Null metadata is stored as empty, an unknown leader epoch as -1."""
    context.commit_offset(offset=7)
    assert context.fetch_offset() == (7, -1, "", NONE)


def test_commit_with_generation_needs_the_group(context: GroupContext) -> None:
    """A generation of a group that does not exist: 22 up to v8, 69 from v9."""
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        with pytest.raises(KafkaError) as caught:
            context.commit_offset(member_id="m", generation_id=1, api_version=version)
        assert caught.value.code == code
    assert context.state == "absent"


def test_commit_by_a_member(context: GroupContext) -> None:
    """A member commits with its generation; anything else is refused."""
    member = context.stable_group()[0]
    assert context.commit_offset(member_id=member, generation_id=1, offset=5) == NONE
    refused: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"member_id": member, "generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "ghost", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            {"member_id": member, "generation_id": 1, "instance_id": "inst"},
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ]
    for kwargs, code in refused:
        with pytest.raises(KafkaError) as caught:
            context.commit_offset(offset=9, **kwargs)
        assert caught.value.code == code
    assert context.fetch_offset()[0] == 5


def test_commit_by_hand_is_allowed_again_in_an_empty_group(context: GroupContext) -> None:
    """When the members are gone an administrator may set offsets."""
    member = context.stable_group()[0]
    context.leave((member, None))
    assert context.commit_offset(offset=3) == NONE


def test_commit_during_the_assignment(context: GroupContext) -> None:
    """While assignments are awaited nobody knows who may commit: 27."""
    member, _ = context.start_member()
    context.advance(0)
    with pytest.raises(KafkaError) as caught:
        context.commit_offset(member_id=member, generation_id=1)
    assert caught.value.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_before_rejoining_is_allowed(context: GroupContext) -> None:
    """A member may commit what it has read before it joins the next generation."""
    leader, follower = context.stable_group(2)
    context.send_join(leader)
    assert context.commit_offset(member_id=follower, generation_id=1) == NONE


def test_commit_prolongs_the_session(context: GroupContext) -> None:
    """A commit shows that the member lives."""
    member = context.stable_group()[0]
    for _ in range(4):
        context.advance(9_000)
        context.commit_offset(member_id=member, generation_id=1)
    assert context.heartbeat(member) == NONE


def test_commit_of_a_fenced_static_member(context: GroupContext) -> None:
    """A replaced static member cannot commit."""
    ticket = context.send_join(instance_id="inst-1")
    context.advance(0)
    old = context.joined(ticket).member_id
    context.send_sync(old, {old: b""}, instance_id="inst-1")
    context.send_join(instance_id="inst-1")
    with pytest.raises(KafkaError) as caught:
        context.commit_offset(member_id=old, generation_id=1, instance_id="inst-1")
    assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID


def test_too_long_metadata_is_refused(context: GroupContext) -> None:
    """A note above offset.metadata.max.bytes fails its partition and stores nothing."""
    assert context.commit_offset(metadata="x" * 4096) == NONE
    assert context.commit_offset(metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert len(context.log) == 1


def test_commit_record_holds_now_and_the_topic_id(context: GroupContext) -> None:
    """The stored timestamp is the broker's; the topic id is kept with the offset."""
    context.commit_offset(offset=4, topic_id=TOPIC_ID)
    key, value = context.log[-1]
    assert key == encode_offset_key("group", "topic", 0)
    assert value is not None
    record = decode_offset_value(value)
    assert record.commit_timestamp == context.now.wall_ms
    assert (record.offset, record.topic_id, record.expire_timestamp) == (4, TOPIC_ID, -1)


# --- fetches ---


def test_fetch_of_the_unknown(context: GroupContext) -> None:
    """A partition without offset, and a group that does not exist, give -1 without error."""
    assert context.fetch_offset() == NO_OFFSET
    context.commit_offset()
    assert context.fetch_offset(partition=1) == NO_OFFSET
    assert context.fetch_offset("other") == NO_OFFSET


def test_fetch_all(context: GroupContext) -> None:
    """Null topics give everything the group has, also what was committed as no offset."""
    context.commit_offset("a", 0, 1)
    context.commit_offset("a", 2, 2)
    context.commit_offset("b", 0, 3)
    context.commit_offset("c", 0, -1)
    assert context.all_offsets() == {("a", 0): 1, ("a", 2): 2, ("b", 0): 3, ("c", 0): -1}


def test_uncommitted_commit_is_not_shown(context: GroupContext) -> None:
    """A plain fetch shows what is committed in the log; a stable one the newest value."""
    context.commit_offset(offset=1)
    context.hold_commits = True
    context.commit_offset(offset=2)
    context.commit_offset(offset=3)
    context.commit_offset("new", offset=1)
    assert context.fetch_offset()[0] == 1
    assert context.fetch_offset(require_stable=True)[0] == 3
    assert context.all_offsets() == {("topic", 0): 1}
    context.shard.on_committed(2)
    assert context.fetch_offset()[0] == 2
    context.commit()
    assert context.fetch_offset()[0] == 3
    assert context.all_offsets() == {("topic", 0): 3, ("new", 0): 1}


def test_uncommitted_deletion_is_not_shown(context: GroupContext) -> None:
    """An offset disappears when its tombstone is committed, not before."""
    context.commit_offset(offset=1)
    context.hold_commits = True
    delete_offset(context, "topic")
    assert context.fetch_offset()[0] == 1
    assert context.all_offsets() == {("topic", 0): 1}
    context.commit()
    assert (context.fetch_offset(), context.all_offsets()) == (NO_OFFSET, {})


def test_offset_of_a_topic_made_again_is_not_shown(context: GroupContext) -> None:
    """An offset committed for another topic of the same name does not apply."""
    context.commit_offset(offset=100, topic_id=TOPIC_ID)
    assert context.fetch_offset(topic_id=TOPIC_ID)[0] == 100
    assert context.fetch_offset()[0] == 100
    assert context.fetch_offset(topic_id=OTHER_ID) == NO_OFFSET


# --- expiry ---


def test_offsets_expire_after_the_group_is_empty(context: GroupContext) -> None:
    """Retention counts from when the group became empty; then the group goes, too."""
    member = context.stable_group()[0]
    context.commit_offset(member_id=member, generation_id=1)
    context.advance(9_999)
    context.leave((member, None))
    context.advance(WEEK_MS - 600_000)
    assert context.all_offsets() == {("topic", 0): 1}
    context.advance(600_000 * 2)
    assert (context.all_offsets(), context.state) == ({}, "absent")
    assert context.log[-1].value is None


def test_offsets_of_a_live_group_stay_while_subscribed(context: GroupContext) -> None:
    """A live group loses only offsets of topics that nobody in it reads any more."""
    member = context.stable_group(protocols=subscription("read"), session_timeout_ms=1_800_000)[0]
    context.commit_offset("read", member_id=member, generation_id=1)
    context.commit_offset("left", member_id=member, generation_id=1)
    for _ in range(WEEK_MS // 600_000 + 2):
        context.advance(600_000)
        assert context.heartbeat(member) == NONE
    assert context.all_offsets() == {("read", 0): 1}


def test_simple_group_expires_by_commit_time(context: GroupContext) -> None:
    """Without members each offset counts from its own commit."""
    context.commit_offset("old")
    context.advance(WEEK_MS / 2)
    context.commit_offset("new")
    context.advance(WEEK_MS / 2 + 600_000)
    assert context.all_offsets() == {("new", 0): 1}
    context.advance(WEEK_MS / 2 + 600_000)
    assert context.state == "absent"


def test_explicit_retention_of_old_clients(context: GroupContext) -> None:
    """OffsetCommit v2-4 may set its own retention; -1 means the broker's, not expired."""
    context.commit_offset("own", retention_time_ms=1_000, api_version=4)
    context.commit_offset("default", retention_time_ms=-1, api_version=4)
    value = context.log[0].value
    assert value is not None
    assert decode_offset_value(value).expire_timestamp == context.now.wall_ms + 1_000
    assert context.fetch_offset("default")[0] == 1
    context.advance(600_000)
    assert context.all_offsets() == {("default", 0): 1}


def test_empty_group_without_offsets_is_removed(context: GroupContext) -> None:
    """An empty group that holds nothing is forgotten, unless a pending member will join."""
    member = context.stable_group()[0]
    context.leave((member, None))
    pending = context.new_member_id(session_timeout_ms=1_800_000)
    context.advance(600_000)
    assert context.state == "Empty"
    context.leave((pending, None))
    context.advance(600_000)
    assert context.state == "absent"


# --- deletion ---


def test_topic_deletion_removes_its_offsets(context: GroupContext) -> None:
    """A deleted topic takes its offsets along in every group; other topics keep theirs."""
    context.commit_offset("gone", 0, 100, topic_id=TOPIC_ID)
    context.commit_offset("gone", 1, 100)
    context.commit_offset("kept", 0, 5)
    context.carry_out(context.shard.on_topics_deleted({"gone": TOPIC_ID}))
    assert context.all_offsets() == {("kept", 0): 5}
    assert context.fetch_offset("gone") == NO_OFFSET
    assert context.reload().all_offsets() == {("kept", 0): 5}


def test_topic_deletion_spares_the_next_topic_of_the_name(context: GroupContext) -> None:
    """Offsets that were committed for the new topic already are not the deleted one's."""
    context.commit_offset("again", 0, 3, topic_id=OTHER_ID)
    context.carry_out(context.shard.on_topics_deleted({"again": TOPIC_ID}))
    assert context.all_offsets() == {("again", 0): 3}


def test_offset_delete(context: GroupContext) -> None:
    """Topics that members read keep their offsets (86); others lose them."""
    member = context.stable_group(protocols=subscription("read"))[0]
    context.commit_offset("read", member_id=member, generation_id=1)
    context.commit_offset("left", member_id=member, generation_id=1)
    assert delete_offset(context, "read") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offset(context, "left") == NONE
    assert delete_offset(context, "never") == NONE
    assert context.all_offsets() == {("read", 0): 1}
    context.leave((member, None))
    assert delete_offset(context, "read") == NONE


def test_offset_delete_with_unreadable_subscriptions(context: GroupContext) -> None:
    """If the members' subscriptions cannot be read, every topic may be one of theirs."""
    context.stable_group(protocols=[("range", b"\x00")])
    assert delete_offset(context, "any") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offset_delete_errors(context: GroupContext) -> None:
    """Unknown group 69; a live group of another protocol type 68."""
    with pytest.raises(KafkaError) as caught:
        delete_offset(context, "topic")
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    connect = GroupContext()
    connect.start_member(protocol_type="connect")
    with pytest.raises(KafkaError) as caught:
        delete_offset(connect, "topic")
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP


def test_delete_groups(context: GroupContext) -> None:
    """An empty group goes with its offsets; an active one is 68, an unknown one 69."""
    assert delete_group(context, "ghost") == ErrorCode.GROUP_ID_NOT_FOUND
    member = context.stable_group()[0]
    context.commit_offset(member_id=member, generation_id=1)
    assert delete_group(context) == ErrorCode.NON_EMPTY_GROUP
    context.leave((member, None))
    assert delete_group(context) == NONE
    assert (context.state, context.all_offsets()) == ("absent", {})
    assert context.reload().state == "absent"
    assert delete_group(context) == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_lives_again_after_deletion(context: GroupContext) -> None:
    """A deleted group's name may be used at once, from generation 1."""
    context.leave((context.stable_group()[0], None))
    delete_group(context)
    _, ticket = context.start_member()
    context.advance(0)
    assert context.joined(ticket).generation_id == 1


# --- records ---


def test_old_value_versions_are_read(context: GroupContext) -> None:
    """Values as old brokers wrote them (v0 without epoch, v3 with) are read."""
    key = encode_offset_key("group", "topic", 0)
    v0 = bytes.fromhex("0000" + "0000000000000007" + "0001" + "6e" + "0000018bcfe56800")
    context.shard.replay(0, key, v0, context.now)
    assert context.fetch_offset() == (7, -1, "n", NONE)
    v3 = bytes.fromhex("0003" + "0000000000000008" + "00000005" + "0000" + "0000018bcfe56800")
    context.shard.replay(1, key, v3, context.now)
    assert context.fetch_offset() == (8, 5, "", NONE)


def test_assignment_bytes_are_the_consumer_protocols() -> None:
    """The declared consumer protocol writes what Java clients write for an assignment."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[AssignmentTopicPartition(topic="t1", partitions=[0, 1, 2])]
    )
    expected = "0003000000010002743100000003000000000000000100000002ffffffff"
    assert encode_assignment(assignment).hex() == expected
