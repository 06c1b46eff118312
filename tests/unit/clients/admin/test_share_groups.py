"""The admin client on share groups: what is asked, and how answers are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import ShareMemberDescription, SharePartitionOffset
from kraftrio.clients.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    UnknownTopicOrPartitionError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    ShareGroupDescribeAssignment,
    ShareGroupDescribeDescribedGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import fake_cluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def scripted(asked: list[Any], *responses: Any) -> Callable[[Any, Any], Any]:
    """Answer with these, one after the other, the last one again and again."""
    left = list(responses)

    def answer(node: Any, request: Any) -> Any:
        asked.append(request)
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


async def test_described() -> None:
    """A coordinator that moves is found; groups of other kinds count as unknown."""
    topics = [ShareGroupDescribeTopicPartitions(topic_name="t", partitions=[0, 1])]
    member = ShareGroupDescribeMember(
        member_id="m",
        rack_id="r",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        assignment=ShareGroupDescribeAssignment(topic_partitions=topics),
    )
    group = ShareGroupDescribeDescribedGroup(
        group_id="g",
        group_state="Stable",
        group_epoch=3,
        assignment_epoch=3,
        assignor_name="simple",
        members=[member],
    )
    moved = ShareGroupDescribeDescribedGroup(error_code=ErrorCode.NOT_COORDINATOR)
    unknown = ShareGroupDescribeDescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    answers = [ShareGroupDescribeResponse(groups=[each]) for each in (moved, group, unknown)]
    asked: list[Any] = []
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.SHARE_GROUP_DESCRIBE, scripted(asked, *answers))
        described = await admin.share_groups.describe(["g", "other"], raise_errors=False)
    assert [each.group_ids for each in asked] == [["g"], ["g"], ["other"]]
    assert isinstance(described.errors["other"], GroupIdNotFoundError)
    found = described["g"]
    assert (found.state, found.assignor, found.coordinator) == ("Stable", "simple", 1)
    assert found.members == (
        ShareMemberDescription("m", 3, "c", "/h", frozenset({"t"}), frozenset({T0, T1}), "r"),
    )


async def test_offsets_are_listed() -> None:
    """Of all partitions that were read, or of some; -1 is what is not known."""
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=0, start_offset=7, leader_epoch=2, lag=5
        ),
        DescribeShareGroupOffsetsResponsePartition(partition_index=1, start_offset=-1),
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=2, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=3, start_offset=0, leader_epoch=-1, lag=-1
        ),
    ]
    topics = [DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=partitions)]
    group = DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=topics)
    absent = DescribeShareGroupOffsetsResponseGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    answers = [DescribeShareGroupOffsetsResponse(groups=[each]) for each in (group, group, absent)]
    asked: list[Any] = []
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, scripted(asked, *answers))
        listed = await admin.share_groups.list_offsets("g", raise_errors=False)
        assert listed[T0] == SharePartitionOffset(7, 2, 5) and listed[T1] is None
        assert listed[TopicPartition("t", 3)] == SharePartitionOffset(0, None, None)
        assert list(listed.errors) == [TopicPartition("t", 2)]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.share_groups.list_offsets("g", [U0, T1, T0])
        with pytest.raises(GroupIdNotFoundError):
            await admin.share_groups.list_offsets("g")
    assert asked[0].groups[0].topics is None
    named = [(topic.topic_name, topic.partitions) for topic in asked[1].groups[0].topics]
    assert named == [("t", [0, 1]), ("u", [0])]


async def test_offsets_are_altered() -> None:
    topics = [
        AlterShareGroupOffsetsResponseTopic(
            topic_name="t",
            partitions=[
                AlterShareGroupOffsetsResponsePartition(partition_index=0),
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=1,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="not there",
                ),
            ],
        )
    ]
    answers = [
        AlterShareGroupOffsetsResponse(responses=topics),
        AlterShareGroupOffsetsResponse(error_code=ErrorCode.NON_EMPTY_GROUP),
    ]
    asked: list[Any] = []
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.ALTER_SHARE_GROUP_OFFSETS, scripted(asked, *answers))
        alter = admin.share_groups.alter_offsets
        altered = await alter("g", {T0: 5, T1: 6}, raise_errors=False)
        assert altered[T0] is None and str(altered.errors[T1]) == "not there"
        with pytest.raises(GroupNotEmptyError):
            await alter("g", {T0: 5})
        with pytest.raises(ValueError, match="an offset must not be negative"):
            await alter("g", {T0: -1})
    [topic] = asked[0].topics
    assert [(each.partition_index, each.start_offset) for each in topic.partitions] == [
        (0, 5),
        (1, 6),
    ]


async def test_offsets_are_deleted() -> None:
    topics = [
        DeleteShareGroupOffsetsResponseTopic(topic_name="t"),
        DeleteShareGroupOffsetsResponseTopic(
            topic_name="u", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
    ]
    answers = [
        DeleteShareGroupOffsetsResponse(responses=topics),
        DeleteShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    asked: list[Any] = []
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DELETE_SHARE_GROUP_OFFSETS, scripted(asked, *answers))
        deleted = await admin.share_groups.delete_offsets("g", ["t", "u"], raise_errors=False)
        assert deleted["t"] is None and list(deleted.errors) == ["u"]
        with pytest.raises(GroupIdNotFoundError):
            await admin.share_groups.delete_offsets("g", ["t"])
    assert [topic.topic_name for topic in asked[0].topics] == ["t", "u"]
