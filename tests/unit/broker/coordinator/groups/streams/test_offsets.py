"""Offsets of streams groups in their shard: who may commit them, when they and the group expire."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup
from kraftrio.kraft_meta.metadata.image import PartitionImage, TopicImage
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopology,
)
from tests.unit.broker.coordinator.groups.group_context import GroupContext
from tests.unit.broker.coordinator.groups.streams.streams_context import SENDER

TOPIC_ID = b"i" * 16
WEEK_MS = 10_080 * 60_000
CHECK_MS = 600_000
SESSION_MS = 45_000


@pytest.fixture
def context() -> GroupContext:
    """A shard with a streams group of one member that reads `in`."""
    context = GroupContext()
    partition = PartitionImage((1,), (1,), 1, 0, 0)
    topic = TopicImage("in", TOPIC_ID, Map({0: partition, 1: partition}))
    image = context.metadata.image
    context.metadata.image = replace(
        image,
        topics_by_name=image.topics_by_name.set("in", topic),
        topics_by_id=image.topics_by_id.set(TOPIC_ID, topic),
    )
    source = StreamsGroupHeartbeatRequestSubtopology(subtopology_id="0", source_topics=["in"])
    beat(
        context,
        0,
        rebalance_timeout_ms=1000,
        topology=StreamsGroupHeartbeatRequestTopology(subtopologies=[source]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    return context


def beat(context: GroupContext, epoch: int, **fields: object) -> None:
    """Have the member heartbeat."""
    request = StreamsGroupHeartbeatRequest(
        group_id=context.group_id,
        member_id="m",
        member_epoch=epoch,
        **fields,  # type: ignore[arg-type]
    )
    outcome = context.shard.streams.heartbeat(request, SENDER, context.now)
    answer = context.carry_out(outcome)
    assert answer.response.error_code is ErrorCode.NONE, answer.response


def group_of(context: GroupContext) -> StreamsGroup:
    """The group under test."""
    group = context.shard.groups.find(context.group_id, StreamsGroup)
    assert group is not None
    return group


def check(context: GroupContext, epoch: int, *partitions: tuple[bytes, int]) -> ErrorCode:
    """Whether the member may commit offsets of partitions."""
    return group_of(context).check_commit("m", None, epoch, api_version=9, partitions=partitions)


def test_commits_of_an_earlier_epoch(context: GroupContext) -> None:
    """They count for tasks that the member has had since then, given up or not."""
    beat(context, 2, rack_id="r")  # to epoch 3, with the tasks of epoch 2
    assert check(context, 3, (TOPIC_ID, 0)) is ErrorCode.NONE
    assert check(context, 2, (TOPIC_ID, 0), (TOPIC_ID, 1)) is ErrorCode.NONE
    assert check(context, 1, (TOPIC_ID, 0)) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(context, 4, (TOPIC_ID, 0)) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(context, 2, (TOPIC_ID, 0), (TOPIC_ID, 2)) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(context, 2, (b"x" * 16, 0)) is ErrorCode.STALE_MEMBER_EPOCH


def test_transactional_commits(context: GroupContext) -> None:
    """A producer that does not say for which member it commits is let through; one that does is
    answered for another epoch with a code that it knows."""
    group = group_of(context)
    assert group.check_commit("", None, -1, transactional=True) is ErrorCode.NONE
    assert group.check_commit("m", None, 2, transactional=True) is ErrorCode.NONE
    assert group.check_commit("m", None, 3, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert group.check_commit("x", None, 2, transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_commit("m", None, 2, api_version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_offsets_stay_while_tasks_read_the_topic(context: GroupContext) -> None:
    """Others expire; once the group is empty all do, and the group goes with them."""
    group = group_of(context)
    assert not group.may_expire_offsets("in")
    assert group.may_expire_offsets("other")
    beat(context, -1)
    context.commit_offset("in", 0)
    context.advance(WEEK_MS - CHECK_MS)
    assert context.state == "Empty"
    context.advance(2 * CHECK_MS)
    assert context.state == "absent"
    assert context.all_offsets() == {}
    assert context.reload().state == "absent"


def test_a_group_survives_its_coordinator(context: GroupContext) -> None:
    """Members, tasks and epochs are there after a load; topics are looked at again."""
    context.commit_offset("in", 1, member_id="m", generation_id=2)
    before = group_of(context)
    loaded = context.reload()
    after = group_of(loaded)
    assert after is not before
    assert dict(after.members) == dict(before.members)
    assert (after.epoch, after.target.epoch, after.state) == (2, 2, before.state)
    beat(loaded, 2)
    assert after.epoch == 2
    assert after.configured is not None
    loaded.advance(SESSION_MS)
    assert loaded.state == "Empty"
