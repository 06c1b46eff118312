"""Groups that change their protocol while they are in use, and those that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    decode_assignment,
    encode_assignment,
)
from tests.unit.broker.coordinator.groups.consumer.consumer_context import (
    ConsumerContext,
    Member,
    assigned,
    settle,
    topic_id_of,
)
from tests.unit.broker.coordinator.groups.consumer.test_classic_members import (
    ClassicMember,
    subscription,
)

TOPIC = topic_id_of("topic")
PROTOCOLS = (("range", subscription("topic")),)


@pytest.fixture
def context() -> ConsumerContext:
    context = ConsumerContext()
    context.add_topic("topic", 4)
    return context


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    topic = AssignmentTopicPartition(topic="topic", partitions=list(partitions))
    return encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=user_data)
    )


def classic_group(context: ConsumerContext, *assignments: bytes) -> list[str]:
    """Make a stable classic group of members that have these assignments; return their ids."""
    members = [context.start_member(protocols=PROTOCOLS) for _ in assignments]
    context.advance(0)
    ids = [member_id for member_id, _ in members]
    leader = context.joined(members[0][1]).leader
    for member_id in [*(one for one in ids if one != leader), leader]:
        given = dict(zip(ids, assignments, strict=True)) if member_id == leader else {}
        context.send_sync(member_id, given)
    assert context.state == "Stable"
    return ids


def reloaded(context: ConsumerContext) -> ConsumerContext:
    """Another broker takes over: what its shard has made of the log."""
    other = ConsumerContext(
        context.properties, context.group_id, metadata=context.metadata, settings=context.settings
    )
    for offset, (key, value) in enumerate(context.log):
        other.shard.replay(offset, key, value, context.now)
    other.carry_out(other.shard.on_loaded(other.now))
    return other


def test_a_stable_classic_group_is_upgraded(context: ConsumerContext) -> None:
    """Its members stay with what they have, and give up what the new one is to get."""
    first, second = classic_group(context, assignment(0, 1), assignment(2, 3))
    response = context.join("new")
    group = context.consumer_group
    assert response.member_epoch == group.epoch == 2
    assert assigned(response) == {}
    classic = group.members[first]
    assert (classic.member_epoch, classic.assigned) == (1, {TOPIC: {0: 1, 1: 1}})
    assert classic.classic is not None
    assert group.classic_member_count == 2
    a = ClassicMember(context)
    a.member_id, a.generation_id, a.partitions = first, 1, (0, 1)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert repr(reloaded(context).consumer_group) == repr(group)
    assert second in group.members


def test_members_that_are_parked_are_told_to_rejoin(context: ConsumerContext) -> None:
    """As the classic group that they wait in is gone."""
    first, _second = classic_group(context, assignment(0, 1), assignment(2, 3))
    parked = context.send_join(first, protocols=(("range", subscription("topic", "x")),))
    context.join("new")
    assert context.joined(parked).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert context.joined(parked).member_id == first


def test_an_upgrade_that_cannot_be_stored_leaves_the_classic_group(
    context: ConsumerContext,
) -> None:
    """With its members; it is tried again with the next heartbeat."""
    ids = classic_group(context, assignment(0, 1, 2, 3))
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    context.join("new")
    assert set(context.group.members) == set(ids)
    context.append_error = ErrorCode.NONE
    context.join("new")
    assert set(context.consumer_group.members) == {*ids, "new"}


UPGRADE = "Cannot upgrade classic group group to consumer group because "


@pytest.mark.parametrize(
    ("properties", "members", "message"),
    [
        (
            {"group_consumer_migration_policy": "downgrade"},
            (assignment(0),),
            UPGRADE + "online upgrade is disabled.",
        ),
        (
            {"group_consumer_max_size": 1},
            (assignment(0), assignment(1)),
            UPGRADE + "the group size exceeds the consumer group maximum size.",
        ),
        (
            {},
            (assignment(0, user_data=b"mine"),),
            UPGRADE + "an unsupported custom assignor is in use. Please refer to the documentation "
            "or switch to a default assignor before re-attempting the upgrade.",
        ),
        (
            {},
            (b"\0",),
            UPGRADE + "the embedded consumer protocol is malformed.",
        ),
    ],
)
def test_upgrades_that_are_refused(
    properties: dict[str, Any], members: tuple[bytes, ...], message: str
) -> None:
    """With GROUP_ID_NOT_FOUND; the classic group goes on."""
    context = ConsumerContext()
    context.properties = replace(context.properties, **properties)
    context = ConsumerContext(context.properties)
    context.add_topic("topic", 4)
    ids = classic_group(context, *members)
    assert context.refused("new", 0, topics=["topic"], owned={}, rebalance_timeout_ms=1) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        message,
    )
    assert context.heartbeat(ids[0]) is ErrorCode.NONE


def test_a_group_of_another_protocol_type_is_no_consumer_group(context: ConsumerContext) -> None:
    """Nor is any classic group to a member that does not join."""
    context.start_member(protocol_type="connect", protocols=(("default", b""),))
    code, message = context.refused("new", 0, topics=["topic"], owned={}, rebalance_timeout_ms=1)
    assert code is ErrorCode.GROUP_ID_NOT_FOUND
    assert message == UPGRADE + "the group does not use the consumer embedded protocol."
    assert context.refused("new", 5) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group group is not a consumer group.",
    )


@pytest.mark.parametrize("leaves", [True, False])
def test_a_group_is_downgraded_when_its_last_consumer_member_goes(
    context: ConsumerContext, leaves: bool
) -> None:
    """By itself, or since its session ends: the classic members rejoin, nothing is lost."""
    a, b = Member(context, "a"), ClassicMember(context)
    a.beat()
    b.join()
    b.sync()
    settle(a, rounds=2)
    b.follow()
    context.commit_offset(member_id="a", generation_id=a.epoch, topic_id=TOPIC)
    if leaves:
        a.leave()
    else:
        for _ in range(5):
            context.advance(9_000)
            b.beat()
    group = context.shard.groups.find("group", ClassicGroup)
    assert group is not None
    assert (group.state_name, group.generation_id) == ("PreparingRebalance", 3)
    assert list(group.members) == [b.member_id]
    topics = decode_assignment(group.members[b.member_id].assignment).assigned_partitions
    assert [(topic.topic, topic.partitions) for topic in topics] == [("topic", [2, 3])]
    assert b.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert context.fetch_offset(topic_id=TOPIC)[0] == 1
    other = reloaded(context)
    assert (other.group.state_name, other.group.generation_id) == ("Stable", 3)
    assert list(other.group.members) == [b.member_id]


def test_a_downgrade_that_cannot_be_stored_is_tried_again(context: ConsumerContext) -> None:
    """The consumer group stays as it is meanwhile."""
    a, b = Member(context, "a"), ClassicMember(context)
    a.beat()
    b.join()
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(5):
        context.advance(9_000)
        b.beat()
    assert "a" in context.consumer_group.members
    context.append_error = ErrorCode.NONE
    context.advance(500)
    assert list(context.group.members) == [b.member_id]


def test_downgrades_may_be_turned_off() -> None:
    """The group of classic members stays a consumer group."""
    context = ConsumerContext(
        replace(ConsumerContext().properties, group_consumer_migration_policy="upgrade")
    )
    context.add_topic("topic", 4)
    a, b = Member(context, "a"), ClassicMember(context)
    a.beat()
    b.join()
    a.leave()
    assert list(context.consumer_group.members) == [b.member_id]


@pytest.mark.parametrize("rebalances", [True, False])
def test_a_static_classic_member_that_replaces_the_last_consumer_member_downgrades(
    context: ConsumerContext, rebalances: bool
) -> None:
    """It keeps the partitions; the group rebalances if its target was not the newest."""
    a, b = Member(context, "a", instance_id="i"), ClassicMember(context, "j")
    a.beat()
    b.join()
    b.sync()
    settle(a, rounds=2)
    b.follow()
    a.leave(-2)
    if rebalances:
        context.add_topic("topic", 6, first=4)
    back = ClassicMember(context, "i")
    response = back.join()
    group = context.group
    assert set(group.members) == {back.member_id, b.member_id}
    expected = "PreparingRebalance" if rebalances else "Stable"
    assert group.state_name == expected
    assert response.error_code is ErrorCode.NONE
    assert set(reloaded(context).group.members) == {back.member_id, b.member_id}
    if not rebalances:
        topics = decode_assignment(group.members[back.member_id].assignment).assigned_partitions
        assert [topic.partitions for topic in topics] == [[0, 1]]


def test_groups_without_members_change_their_kind_unasked(context: ConsumerContext) -> None:
    """Either way, with their offsets."""
    context.commit_offset(topic_id=TOPIC)
    a = Member(context, "a")
    a.beat()
    assert a.owned == {TOPIC: {0, 1, 2, 3}}
    a.leave()
    assert context.state == "Empty"
    member = ClassicMember(context)
    assert context.fetch_offset(topic_id=TOPIC)[0] == 1
    context.new_member_id(protocols=PROTOCOLS)
    assert context.group.roster.pending_join_members
    other = reloaded(context)
    assert other.group.state_name == "Empty"
    assert other.fetch_offset(topic_id=TOPIC)[0] == 1
    assert member.member_id == ""


def test_a_classic_joiner_that_cannot_be_stored_leaves_the_consumer_group(
    context: ConsumerContext,
) -> None:
    """As it was, without members."""
    a = Member(context, "a")
    a.beat()
    a.leave()
    epoch = context.consumer_group.epoch
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    ticket = context.send_join(instance_id="i", protocols=PROTOCOLS)
    assert context.joined(ticket).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert context.consumer_group.epoch == epoch
