"""States of share partitions as their group knows them: altered, deleted, and in between."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.share.state_progress import StateProgress
from kraftrio.broker.coordinator.groups.share.states import Deletion
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.groups.consumer.consumer_context import topic_id_of
from tests.unit.broker.coordinator.groups.share.share_context import TOPIC, ShareContext

OTHER = topic_id_of("other")
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def context() -> ShareContext:
    """A group that had a member, and has states of one topic."""
    context = ShareContext()
    context.add_topic("topic", 2)
    context.add_topic("other", 1)
    context.share_join("a")
    context.share_beat("a", -1)
    return context


def states(context: ShareContext) -> StateProgress:
    found = context.share_group.states
    assert found is not None
    return found


def begin(context: ShareContext, *topics: str) -> Deletion:
    deletion = context.carry_out(context.shard.share.states.begin_deletion("group", topics))
    assert isinstance(deletion, Deletion)
    return deletion


def test_offsets_are_altered(context: ShareContext) -> None:
    """In the group's epoch; each partition has an answer of its own."""
    topics, wanted = context.alter({"topic": {0: 5, 2: 1, -1: 1}, "other": {0: 7}})
    assert [topic.topic_id for topic in topics] == [TOPIC, OTHER]
    assert [[one.error_code for one in topic.partitions] for topic in topics] == [
        [NONE, UNKNOWN, UNKNOWN],
        [NONE],
    ]
    assert wanted.state_epoch == context.share_group.epoch
    assert wanted.start_offsets == {TOPIC: {0: 5}, OTHER: {0: 7}}
    assert set(states(context).initializing) == {TOPIC, OTHER}
    context.wanted.append(wanted)
    context.initialize_wanted()
    assert states(context).initializing == {}
    assert states(context).initialized_partitions == {
        TOPIC: frozenset({0, 1}),
        OTHER: frozenset({0}),
    }


def test_altering_makes_a_group() -> None:
    context = ShareContext()
    context.add_topic("topic", 1)
    _, wanted = context.alter({"topic": {0: 5}})
    assert wanted.state_epoch == 1
    assert context.share_group.state_name == "Empty"
    other = ShareContext()
    topics, _ = other.alter({"unknown": {0: 5}})
    assert [one.error_code for one in topics[0].partitions] == [UNKNOWN]
    assert other.shard.groups.get("group") is None


def test_only_a_group_without_members_is_altered(context: ShareContext) -> None:
    context.share_join("a")
    for change in (
        lambda: context.alter({"topic": {0: 5}}),
        lambda: begin(context, "topic"),
        lambda: context.shard.share.states.begin_deletion_of_group("group", context.now),
    ):
        with pytest.raises(KafkaError) as caught:
            change()
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        assert caught.value.message == "The group is not empty."


def test_offsets_are_deleted_topic_by_topic(context: ShareContext) -> None:
    deletion = begin(context, "topic", "other", "unknown")
    assert deletion.partitions == {TOPIC: frozenset({0, 1})}
    assert [(one.topic_name, one.error_code, one.error_message) for one in deletion.refused] == [
        ("other", UNKNOWN, "There is no offset information to delete."),
        ("unknown", UNKNOWN, "This server does not host this topic-partition."),
    ]
    assert (states(context).initialized, states(context).deleting) == ({}, {TOPIC})
    again = begin(context, "topic")  # the first one's answer was lost
    assert again.partitions == {TOPIC: frozenset({0, 1})}
    context.carry_out(context.shard.share.states.end_deletion("group", [TOPIC]))
    assert states(context).deleting == frozenset()
    assert begin(context, "topic").refused[0].error_code is UNKNOWN


def test_what_is_deleted_may_be_initialized_again(context: ShareContext) -> None:
    begin(context, "topic")
    context.share_join("a")
    assert states(context).deleting == frozenset()
    assert states(context).initialized_partitions == {TOPIC: frozenset({0, 1})}


def test_all_states_of_a_group_are_deleted_before_it(context: ShareContext) -> None:
    """Those that are being initialized, too, and those whose deletion was not finished."""
    context.alter({"other": {0: 7}})
    begin(context, "topic")
    for _ in range(2):
        outcome = context.shard.share.states.begin_deletion_of_group("group", context.now)
        assert context.carry_out(outcome) == {TOPIC: frozenset({0, 1}), OTHER: frozenset({0})}
        assert states(context) == StateProgress(deleting=frozenset({TOPIC, OTHER}))
    (result,) = context.carry_out(context.shard.delete_groups(["group"]))
    assert result.error_code is NONE
    assert context.record_kinds()[-3:] == [
        "-TargetAssignmentMetadata",
        "-StatePartitionMetadata",
        "-Metadata",
    ]
    assert context.shard.groups.get("group") is None


def test_other_groups_have_no_states_to_delete(context: ShareContext) -> None:
    for group_id in ("unknown", "consumers"):
        outcome = context.shard.share.states.begin_deletion_of_group(group_id, context.now)
        assert (outcome.records, outcome.response) == ([], {})
    with pytest.raises(KafkaError) as caught:
        context.shard.share.states.begin_deletion("unknown", ["topic"])
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert caught.value.message == "Group unknown not found."


def test_answers_about_a_group_that_is_gone_change_nothing(context: ShareContext) -> None:
    partitions = {TOPIC: frozenset({0})}
    group_states = context.shard.share.states
    for outcome in (
        group_states.initialized("unknown", partitions, context.now),
        group_states.not_initialized("unknown", partitions, context.now),
        group_states.end_deletion("unknown", [TOPIC]),
    ):
        assert outcome.records == []
    assert group_states.partitions("unknown") == {}
