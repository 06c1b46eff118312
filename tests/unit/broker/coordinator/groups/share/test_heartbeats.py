"""Heartbeats of share groups: who gets what, who is refused and how, which records there are."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.share.description import describe_share_group
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_groups import ShareGroupHeartbeatRequest
from tests.unit.broker.coordinator.groups.consumer.consumer_context import topic_id_of
from tests.unit.broker.coordinator.groups.share.share_context import (
    TOPIC,
    ShareContext,
    assigned,
)

OTHER = topic_id_of("other")


@pytest.fixture
def context() -> ShareContext:
    context = ShareContext()
    context.add_topic("topic", 3)
    return context


# --- partitions ---


def test_partitions_are_given_once_their_states_are_initialized(context: ShareContext) -> None:
    joined = context.share_beat("a", 0, ["topic"])
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 5_000)
    assert assigned(joined) == {}
    (wanted,) = context.wanted
    assert (wanted.group_id, wanted.state_epoch) == ("group", 2)
    assert wanted.start_offsets == {TOPIC: {0: -1, 1: -1, 2: -1}}
    waiting = context.share_beat("a", 2)
    assert (waiting.member_epoch, assigned(waiting)) == (2, None)
    context.initialize_wanted()
    given = context.share_beat("a", 2)
    assert (given.member_epoch, assigned(given)) == (3, {TOPIC: [0, 1, 2]})
    kept = context.share_beat("a", 3)
    assert (kept.member_epoch, assigned(kept)) == (3, None)


def test_a_heartbeat_that_changes_nothing_is_known_as_such(context: ShareContext) -> None:
    """It is answered at once, until a topic, the states or the member ask for a look."""
    epoch = context.share_join("a")
    assert is_unchanged(context, "a", epoch)
    assert not is_unchanged(context, "b", epoch)
    assert not is_unchanged(context, "a", epoch - 1)
    assert not is_unchanged(context, "a", epoch, client_id="another")
    assert not is_unchanged(context, "a", epoch, subscribed_topic_names=["topic"])
    assert not is_unchanged(context, "a", epoch, rack_id="r")
    context.add_topic("topic", 4, first=3)
    assert not is_unchanged(context, "a", epoch)
    epoch = context.share_beat("a", epoch).member_epoch
    assert not is_unchanged(context, "a", epoch), "the new partition has no state yet"
    context.initialize_wanted()
    epoch = context.share_beat("a", epoch).member_epoch
    assert is_unchanged(context, "a", context.share_beat("a", epoch).member_epoch)


def is_unchanged(
    context: ShareContext, member_id: str, epoch: int, client_id: str = "client", **fields: Any
) -> bool:
    request = ShareGroupHeartbeatRequest(
        group_id="group", member_id=member_id, member_epoch=epoch, **fields
    )
    answer = context.shard.share.heartbeat_unchanged(request, client_id, "/127.0.0.1", context.now)
    return answer is not None


def test_the_records_are_in_kafkas_order(context: ShareContext) -> None:
    context.share_beat("a", 0, ["topic"])
    assert context.record_kinds() == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "StatePartitionMetadata",
    ]
    context.initialize_wanted()
    logged = len(context.log)
    context.share_beat("a", 2)
    assert context.record_kinds(logged) == [
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    logged = len(context.log)
    context.share_beat("a", 3)
    assert context.record_kinds(logged) == []
    context.share_beat("a", -1)
    assert context.record_kinds(logged) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "Metadata",
    ]


def test_several_members_share_the_partitions(context: ShareContext) -> None:
    """More members than partitions have one together; who leaves makes room."""
    first = context.share_join("a")
    for member_id in ("b", "c", "d"):
        context.share_beat(member_id, 0, ["topic"])
    target = context.share_group.target.members
    assert {index for part in target.values() for index in part.get(TOPIC, ())} == {0, 1, 2}
    assert all(part.get(TOPIC) for part in target.values())
    again = context.share_beat("a", first)
    assert again.member_epoch == context.share_group.epoch
    context.share_beat("b", -1)
    assert "b" not in context.share_group.members
    assert context.share_beat("a", again.member_epoch).member_epoch == again.member_epoch + 1


def test_the_assignment_waits_for_the_interval(context: ShareContext) -> None:
    """A group's setting; until then members stay in the epoch of the last one (KIP-1263)."""
    context.settings.values["share.assignment.interval.ms"] = 1_000
    context.share_beat("a", 0, ["topic"])
    context.initialize_wanted()
    assert context.share_beat("a", 2).member_epoch == 2
    assert context.share_group.epoch == 3
    context.advance(1_000)
    given = context.share_beat("a", 2)
    assert (given.member_epoch, assigned(given)) == (3, {TOPIC: [0, 1, 2]})


def test_a_member_that_subscribes_to_something_else(context: ShareContext) -> None:
    context.add_topic("other", 1)
    epoch = context.share_join("a")
    moved = context.share_beat("a", epoch, ["other"])
    assert assigned(moved) == {}
    (wanted,) = context.wanted
    assert wanted.start_offsets == {OTHER: {0: -1}}
    context.initialize_wanted()
    assert assigned(context.share_beat("a", moved.member_epoch)) == {OTHER: [0]}


def test_new_partitions_are_initialized_and_given(context: ShareContext) -> None:
    epoch = context.share_join("a")
    context.add_topic("topic", 5, first=3)
    bumped = context.share_beat("a", epoch)
    assert (bumped.member_epoch, assigned(bumped)) == (epoch + 1, None)
    (wanted,) = context.wanted
    assert wanted.start_offsets == {TOPIC: {3: -1, 4: -1}}
    context.initialize_wanted()
    assert assigned(context.share_beat("a", epoch + 1)) == {TOPIC: [0, 1, 2, 3, 4]}


def test_a_topic_that_is_not_there_yet(context: ShareContext) -> None:
    context.share_beat("a", 0, ["later"])
    assert context.wanted == []
    context.add_topic("later", 1)
    context.share_beat("a", 2)
    assert [one.start_offsets for one in context.wanted] == [{topic_id_of("later"): {0: -1}}]


def test_a_deleted_topic_is_forgotten(context: ShareContext) -> None:
    epoch = context.share_join("a")
    context.remove_topic("topic")
    context.carry_out(context.shard.on_topics_deleted({"topic": TOPIC}))
    assert context.share_group.states is not None
    assert context.share_group.states.initialized == {}
    response = context.share_beat("a", epoch)
    assert (response.member_epoch, assigned(response)) == (epoch + 1, {})
    context.add_topic("topic", 1)  # another one, though its id is the same here
    context.share_beat("a", epoch + 1)
    assert [one.start_offsets for one in context.wanted] == [{TOPIC: {0: -1}}]


# --- initialization that fails, or is lost ---


def test_what_could_not_be_initialized_is_asked_for_by_the_next_heartbeat(
    context: ShareContext,
) -> None:
    context.share_beat("a", 0, ["topic"])
    context.wanted.clear()
    partitions = {TOPIC: frozenset({0, 2})}
    context.carry_out(context.shard.share.states.not_initialized("group", partitions, context.now))
    context.share_beat("a", 2)
    assert [one.start_offsets for one in context.wanted] == [{TOPIC: {0: -1, 2: -1}}]


def test_what_is_lost_is_asked_for_again_after_a_while(context: ShareContext) -> None:
    context.share_beat("a", 0, ["topic"])
    context.wanted.clear()
    context.advance(29_999)
    context.share_beat("a", 2)
    assert context.wanted == []
    context.advance(1)
    context.share_beat("a", 2)
    assert len(context.wanted) == 1


def test_states_are_asked_for_once_that_is_committed(context: ShareContext) -> None:
    context.hold_commits = True
    context.share_beat("a", 0, ["topic"])
    assert context.wanted == []
    context.commit()
    assert len(context.wanted) == 1
    context.wanted.clear()
    context.advance(30_000)
    context.share_beat("a", 2)
    context.fail_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert context.wanted == []


# --- refusals ---


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "rack_id", "message"),
    [
        (" ", 0, ["topic"], None, "MemberId can't be empty."),
        ("a", 0, ["topic"], " ", "RackId can't be empty."),
        ("a", 0, None, None, "SubscribedTopicNames must be set in first request."),
        ("a", 0, [], None, "SubscribedTopicNames must be set in first request."),
        ("a", -2, None, None, "MemberEpoch is invalid."),
    ],
)
def test_what_no_group_would_take(
    context: ShareContext,
    member_id: str,
    epoch: int,
    topics: list[str] | None,
    rack_id: str | None,
    message: str,
) -> None:
    refused = context.share_refused(member_id, epoch, topics, rack_id=rack_id)
    assert refused == (ErrorCode.INVALID_REQUEST, message)


def test_a_group_without_an_id_is_refused() -> None:
    context = ShareContext(group_id="")
    assert context.share_refused("a", 0, ["topic"]) == (
        ErrorCode.INVALID_REQUEST,
        "GroupId can't be empty.",
    )


def test_groups_that_are_not_there(context: ShareContext) -> None:
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    assert context.share_refused("a", 1) == (not_found, "Share group group not found.")
    assert context.share_refused("a", -1) == (not_found, "Group group not found.")
    context.join("consumer")
    for epoch, topics in ((0, ["topic"]), (1, None), (-1, None)):
        refused = context.share_refused("a", epoch, topics)
        assert refused == (not_found, "Group group is not a share group.")


def test_unknown_members_and_epochs(context: ShareContext) -> None:
    context.share_join("a")
    unknown = (ErrorCode.UNKNOWN_MEMBER_ID, "Member b is not a member of group group.")
    assert context.share_refused("b", 1) == unknown
    assert context.share_refused("b", -1) == unknown
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    assert context.share_refused("a", 4) == (
        fenced,
        "The share group member has a greater member epoch (4) than the one known by the group "
        "coordinator (3). The member must abandon all its partitions and rejoin.",
    )
    assert context.share_beat("a", 2).member_epoch == 3  # whose answer may have been lost
    context.add_topic("topic", 4, first=3)
    context.share_beat("a", 3)
    assert context.share_refused("a", 2) == (
        fenced,
        "The share group member has a smaller member epoch (2) than the one known by the group "
        "coordinator (4), and it does not match the previous member epoch (3). The member must "
        "abandon all its partitions and rejoin.",
    )


def test_a_member_may_join_again(context: ShareContext) -> None:
    """It keeps its place, and is answered with what it has."""
    epoch = context.share_join("a")
    again = context.share_beat("a", 0, ["topic"])
    assert (again.member_epoch, assigned(again)) == (epoch, {TOPIC: [0, 1, 2]})
    assert len(context.share_group.members) == 1


def test_a_full_group_takes_its_members_only(context: ShareContext) -> None:
    context.properties.group_share_max_size = 1
    epoch = context.share_join("a")
    assert context.share_refused("b", 0, ["topic"]) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 1 members.",
    )
    assert context.share_beat("a", epoch).error_code is ErrorCode.NONE


# --- sessions and failovers ---


def test_a_silent_member_is_removed(context: ShareContext) -> None:
    epoch = context.share_join("a")
    context.share_beat("b", 0, ["topic"])
    context.advance(44_000)
    context.share_beat("a", epoch)
    context.advance(1_000)
    assert list(context.share_group.members) == ["a"]
    context.advance(44_000)
    assert context.share_group.state_name == "Empty"


def test_a_removal_that_could_not_be_stored_is_tried_again(context: ShareContext) -> None:
    context.share_join("a")
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    context.advance(45_000)
    assert list(context.share_group.members) == ["a"]
    context.append_error = ErrorCode.NONE
    context.advance(500)
    assert context.share_group.state_name == "Empty"


def test_a_failed_append_leaves_nothing(context: ShareContext) -> None:
    context.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    context.share_beat("a", 0, ["topic"])
    assert context.shard.groups.get("group") is None
    assert context.wanted == []
    context.append_error = ErrorCode.NONE
    assert context.share_join("a") == 3


def test_another_coordinator_goes_on(context: ShareContext) -> None:
    first = context.share_join("a")
    second = context.share_beat("b", 0, ["topic"]).member_epoch
    other = context.reload()
    assert isinstance(other, ShareContext)
    assert other.share_group.members == context.share_group.members
    assert other.share_beat("b", second).member_epoch == second
    given = other.share_beat("a", first)
    assert (given.member_epoch, assigned(given)) == (second, {TOPIC: [1, 2]})
    other.advance(45_000)
    assert other.share_group.state_name == "Empty"


def test_a_description(context: ShareContext) -> None:
    epoch = context.share_join("a")
    described = describe_share_group(context.share_group, "simple", context.metadata)
    assert (described.group_state, described.group_epoch) == ("Stable", epoch)
    assert (described.assignment_epoch, described.assignor_name) == (epoch, "simple")
    (member,) = described.members
    assert (member.member_id, member.member_epoch) == ("a", epoch)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.subscribed_topic_names == ["topic"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (TOPIC, "topic", [0, 1, 2])
    context.remove_topic("topic")
    described = describe_share_group(context.share_group, "simple", context.metadata)
    assert described.members[0].assignment.topic_partitions == []
