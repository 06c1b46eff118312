"""Offsets that are committed within transactions: who may, and when they count (KIP-447)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.classic.records import group_tombstone
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.broker.coordinator.outcome import ProducerOfBatch
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.unit.broker.coordinator.groups.group_context import GroupContext

NONE = ErrorCode.NONE
PRODUCER, OTHER_PRODUCER = ProducerOfBatch(77, 3), ProducerOfBatch(78, 0)
TOPIC_ID, OTHER_ID = b"t" * 16, b"o" * 16
WEEK_MS = 10_080 * 60_000
NO_OFFSET = (-1, -1, "", NONE)
UNSTABLE = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


def refusal(context: GroupContext, **kwargs: Any) -> ErrorCode:
    """Why a transactional commit is refused whole."""
    with pytest.raises(KafkaError) as caught:
        context.commit_offset(producer=PRODUCER, **kwargs)
    return caught.value.code


def delete_offset(context: GroupContext, topic: str) -> ErrorCode:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(
        group_id=context.group_id,
        topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)],
    )
    response = context.carry_out(context.shard.delete_offsets(request))
    return ErrorCode(response.topics[0].partitions[0].error_code)


# --- who may commit ---


def test_a_commit_by_a_member_is_checked_as_a_plain_one(context: GroupContext) -> None:
    """Zombies of an earlier generation, strangers, and replaced static members are refused."""
    ticket = context.send_join(instance_id="inst-1")
    context.advance(0)
    old = context.joined(ticket).member_id
    context.send_sync(old, {old: b""}, instance_id="inst-1")
    context.send_join(instance_id="inst-1")
    (member,) = context.group.members
    assert refusal(context, member_id=member, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(context, member_id=member, generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(context, member_id="ghost", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(context, member_id="", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    fenced = refusal(context, member_id=old, generation_id=1, instance_id="inst-1")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    unknown = refusal(context, member_id=member, generation_id=1, instance_id="inst-2")
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID
    assert not context.producers
    right: dict[str, Any] = {"member_id": member, "generation_id": 1, "instance_id": "inst-1"}
    assert context.commit_offset(producer=PRODUCER, **right) == NONE


def test_a_commit_without_a_member_is_taken_by_any_group(context: GroupContext) -> None:
    """Clients before version 3 say nothing of a member; a group that is missing is made."""
    assert context.commit_offset(producer=PRODUCER) == NONE
    assert context.state == "Empty"
    context.stable_group()
    assert context.commit_offset(producer=PRODUCER) == NONE


def test_a_generation_of_a_group_that_is_missing_is_illegal(context: GroupContext) -> None:
    """In every version; nothing is made or written."""
    code = refusal(context, member_id="m", generation_id=0, api_version=5)
    assert code == ErrorCode.ILLEGAL_GENERATION
    assert (context.state, context.log) == ("absent", [])


def test_a_group_may_rebalance_while_a_member_commits(context: GroupContext) -> None:
    """Neither who has yet to join again nor who awaits its assignment gets an error."""
    leader, follower = context.stable_group(2)
    context.send_join(leader)
    assert context.state == "PreparingRebalance"
    by_follower: dict[str, Any] = {"member_id": follower, "producer": PRODUCER}
    assert context.commit_offset(generation_id=1, **by_follower) == NONE
    context.send_join(follower)
    context.advance(0)
    assert context.state == "CompletingRebalance"
    assert context.commit_offset(generation_id=2, **by_follower) == NONE


def test_a_commit_does_not_prolong_the_session(context: GroupContext) -> None:
    """It comes from the producer, which says nothing about the consumer."""
    member = context.stable_group()[0]
    context.advance(9_000)
    context.commit_offset(member_id=member, generation_id=1, producer=PRODUCER)
    context.advance(9_000)
    assert context.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_too_long_metadata_is_refused(context: GroupContext) -> None:
    """Without a record, so without a pending offset."""
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert context.commit_offset(metadata="x" * 4097, producer=PRODUCER) == too_large
    assert context.commit_offset(metadata="x" * 4096, producer=PRODUCER) == NONE
    assert context.producers == {0: PRODUCER.producer_id}


# --- when offsets count ---


@pytest.mark.parametrize(("commit", "offset"), [(True, 9), (False, 1)])
def test_an_offset_waits_for_the_end_of_its_transaction(
    context: GroupContext, commit: bool, offset: int
) -> None:
    """It is unstable until then, also for who loads the log, and counts only if committed."""
    context.commit_offset(offset=1)
    context.commit_offset(offset=9, producer=PRODUCER)
    for shown in (context, context.reload()):
        assert shown.fetch_offset()[0] == 1
        assert shown.fetch_offset(require_stable=True) == UNSTABLE
    context.end_transaction(OTHER_PRODUCER.producer_id, commit=True)
    assert context.fetch_offset(require_stable=True) == UNSTABLE
    context.end_transaction(PRODUCER.producer_id, commit=commit)
    for shown in (context, context.reload()):
        assert shown.fetch_offset()[0] == offset
        assert shown.fetch_offset(require_stable=True)[0] == offset


def test_an_offset_is_shown_once_its_marker_is_committed(context: GroupContext) -> None:
    """Until then the leader may change to one that lacks the marker."""
    context.commit_offset(offset=1)
    context.commit_offset(offset=9, producer=PRODUCER)
    context.hold_commits = True
    context.end_transaction(PRODUCER.producer_id, commit=True)
    assert context.fetch_offset()[0] == 1
    assert context.fetch_offset(require_stable=True)[0] == 9  # answered after the commit
    context.commit()
    assert context.fetch_offset()[0] == 9


def test_the_first_offset_of_a_group_shows_nothing_before_it_counts(context: GroupContext) -> None:
    """The group is there, without offsets; kafka-consumer-groups shows it so."""
    context.commit_offset(offset=9, producer=PRODUCER)
    assert (context.state, context.all_offsets()) == ("Empty", {})
    assert context.fetch_offset() == NO_OFFSET
    assert context.fetch_offset(require_stable=True) == UNSTABLE
    context.end_transaction(PRODUCER.producer_id, commit=True)
    assert context.all_offsets() == {("topic", 0): 9}


def test_what_was_written_last_counts(context: GroupContext) -> None:
    """A plain commit behind a pending one stays in force; so does a later transaction's."""
    context.commit_offset(offset=9, producer=PRODUCER)
    context.commit_offset(offset=20)
    context.end_transaction(PRODUCER.producer_id, commit=True)
    assert context.fetch_offset()[0] == 20
    context.commit_offset(offset=30, producer=PRODUCER)
    context.commit_offset(offset=31, producer=OTHER_PRODUCER)
    context.end_transaction(OTHER_PRODUCER.producer_id, commit=True)
    context.end_transaction(PRODUCER.producer_id, commit=True)
    assert context.fetch_offset()[0] == 31


# --- deletion and expiry ---


def test_a_deleted_offset_is_not_brought_back(context: GroupContext) -> None:
    """The tombstone drops the pending value, too."""
    context.commit_offset(producer=PRODUCER)
    assert delete_offset(context, "topic") == NONE
    assert context.log[-1].value is None
    assert context.fetch_offset(require_stable=True) == NO_OFFSET
    context.end_transaction(PRODUCER.producer_id, commit=True)
    for shown in (context, context.reload()):
        assert shown.all_offsets() == {}


def test_a_deleted_group_takes_its_pending_offsets_along(context: GroupContext) -> None:
    """Deleted by hand it goes, as in Kafka; the transaction's end makes neither again."""
    context.commit_offset(offset=1)
    context.commit_offset(offset=9, producer=PRODUCER)
    context.commit_offset("other", offset=9, producer=PRODUCER)
    before = len(context.log)
    (result,) = context.carry_out(context.shard.delete_groups([context.group_id]))
    assert result.error_code == NONE
    assert [value for _, value in context.log[before:]] == [None] * 3
    assert context.state == "absent"
    context.end_transaction(PRODUCER.producer_id, commit=True)
    for shown in (context, context.reload()):
        assert (shown.state, shown.all_offsets()) == ("absent", {})


@pytest.mark.parametrize("commit", [True, False])
def test_nothing_that_a_transaction_holds_back_expires(context: GroupContext, commit: bool) -> None:
    """Neither a group without other offsets, nor an old offset; both do once it has ended."""
    context.commit_offset("old", offset=1)
    context.commit_offset("old", offset=2, producer=PRODUCER)
    context.advance(WEEK_MS + 1_200_000)
    assert context.all_offsets() == {("old", 0): 1}
    delete_offset(context, "old")
    context.commit_offset("new", offset=3, producer=PRODUCER)
    context.advance(WEEK_MS + 1_200_000)
    assert (context.state, context.all_offsets()) == ("Empty", {})
    context.end_transaction(PRODUCER.producer_id, commit=commit)
    assert context.all_offsets() == ({("new", 0): 3} if commit else {})
    context.advance(1_200_000)
    assert (context.state, context.all_offsets()) == ("absent", {})


def test_the_retention_counts_from_the_record(context: GroupContext) -> None:
    """Not from the end of the transaction."""
    context.commit_offset(producer=PRODUCER)
    context.advance(WEEK_MS / 2)
    context.end_transaction(PRODUCER.producer_id, commit=True)
    context.advance(WEEK_MS / 2 - 1_200_000)
    assert context.all_offsets() == {("topic", 0): 1}
    context.advance(2_400_000)
    assert context.state == "absent"


def test_a_deleted_topic_takes_its_pending_offsets_along(context: GroupContext) -> None:
    """But not those of a topic that was made again under its name meanwhile."""
    context.commit_offset("topic", 0, topic_id=TOPIC_ID, producer=PRODUCER)
    context.commit_offset("topic", 1, topic_id=OTHER_ID, producer=PRODUCER)
    context.commit_offset("topic", 2, topic_id=TOPIC_ID, producer=OTHER_PRODUCER)
    context.commit_offset("other", 0, topic_id=OTHER_ID, producer=OTHER_PRODUCER)
    context.carry_out(context.shard.on_topics_deleted({"topic": TOPIC_ID}))
    for producer in (PRODUCER, OTHER_PRODUCER):
        context.end_transaction(producer.producer_id, commit=True)
    for shown in (context, context.reload()):
        assert shown.all_offsets() == {("topic", 1): 1, ("other", 0): 1}


def test_offsets_that_count_have_a_group(context: GroupContext) -> None:
    """Where a log has a tombstone of the group, but not of what was pending then."""
    context.commit_offset(producer=PRODUCER)
    tombstone = group_tombstone(context.group_id)
    context.log.append(tombstone)
    context.shard.replay(len(context.log) - 1, *tombstone, context.now)
    assert context.state == "absent"
    context.end_transaction(PRODUCER.producer_id, commit=True)
    for shown in (context, context.reload()):
        assert (shown.state, shown.all_offsets()) == ("Empty", {("topic", 0): 1})
        shown.advance(WEEK_MS + 1_200_000)
        assert shown.state == "absent"


def test_the_end_of_an_unknown_transaction(context: GroupContext) -> None:
    """Changes nothing."""
    context.commit_offset(offset=1)
    context.end_transaction(99, commit=True)
    assert context.shard.offsets.get(OffsetKey("group", "topic", 0)) is not None
    assert context.fetch_offset()[0] == 1
