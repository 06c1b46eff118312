"""The admin client on groups of every kind: what is asked, and how answers are read."""

from __future__ import annotations

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import MemberDescription
from kraftrio.clients.errors import GroupIdNotFoundError, UnknownMemberIdError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberResponse,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeNode, fake_cluster


def assigned(*partitions: int) -> ConsumerGroupDescribeAssignment:
    topic = ConsumerGroupDescribeTopicPartitions(topic_name="t", partitions=list(partitions))
    return ConsumerGroupDescribeAssignment(topic_partitions=[topic])


async def test_groups_are_listed_by_states_types_and_protocol_types() -> None:
    """Brokers filter by the first two, the client by the last."""
    asked: list[ListGroupsRequest] = []

    def answer(node: FakeNode, request: ListGroupsRequest) -> ListGroupsResponse:
        asked.append(request)
        kinds = [("c", "consumer", "classic"), ("s", "share", "share"), ("w", "connect", "classic")]
        return ListGroupsResponse(
            groups=[
                ListedGroup(group_id=name, protocol_type=protocol, group_type=kind)
                for name, protocol, kind in kinds
            ]
        )

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.LIST_GROUPS, answer)
        everything = await admin.list_groups(states=["Stable"], types=["classic", "share"])
        assert [(each.group_id, each.type) for each in everything] == [
            ("c", "classic"),
            ("s", "share"),
            ("w", "classic"),
        ]
        assert (asked[0].states_filter, asked[0].types_filter) == (["Stable"], ["classic", "share"])
        shown = await admin.list_groups(protocol_types=["share", "consumer"])
        assert [each.group_id for each in shown] == ["c", "s"]
        assert [each.group_id for each in await admin.list_groups(protocol_types="share")] == ["s"]


async def test_members_of_a_group_of_the_consumer_protocol() -> None:
    """With what they own, what they are to own, and which protocol they speak."""
    member = ConsumerGroupDescribeMember(
        member_id="m",
        instance_id="i",
        rack_id="r",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="t.*",
        assignment=assigned(0),
        target_assignment=assigned(0, 1),
        member_type=0,
    )
    group = ConsumerGroupDescribeDescribedGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[member],
    )
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            lambda node, request: ConsumerGroupDescribeResponse(groups=[group]),
        )
        described = (await admin.describe_groups(["g"]))["g"]
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    assert (described.type, described.state, described.coordinator) == (
        "consumer",
        "Reconciling",
        1,
    )
    assert (described.group_epoch, described.assignment_epoch) == (5, 4)
    assert described.members == (
        MemberDescription(
            "m",
            "i",
            "c",
            "/h",
            frozenset({t0}),
            4,
            frozenset({t0, t1}),
            frozenset({"t"}),
            "t.*",
            "r",
            True,
        ),
    )


@pytest.mark.parametrize("chosen", [["i", "gone"], None])
async def test_members_are_removed(chosen: list[str] | None) -> None:
    """Static ones by their instance ids; all there are, the others by their own ids."""
    asked: list[LeaveGroupRequest] = []

    def leave(node: FakeNode, request: LeaveGroupRequest) -> LeaveGroupResponse:
        asked.append(request)
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID
                    if each.group_instance_id == "gone"
                    else ErrorCode.NONE,
                )
                for each in request.members
            ]
        )

    members = [
        DescribedGroupMember(member_id="m1", group_instance_id="i"),
        DescribedGroupMember(member_id="m2"),
    ]
    group = DescribedGroup(group_id="g", group_state="Stable", members=members)
    unknown = ConsumerGroupDescribeDescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            lambda node, request: ConsumerGroupDescribeResponse(groups=[unknown]),
        )
        cluster.on(
            ApiKey.DESCRIBE_GROUPS, lambda node, request: DescribeGroupsResponse(groups=[group])
        )
        cluster.on(ApiKey.LEAVE_GROUP, leave)
        removed = await admin.remove_members("g", chosen, reason="moved", raise_errors=False)
        sent = [(each.member_id, each.group_instance_id, each.reason) for each in asked[0].members]
        if chosen is None:
            assert sent == [("", "i", "moved"), ("m2", None, "moved")]
            assert dict(removed) == {"i": None, "m2": None}
            group.members = []
            assert not await admin.remove_members("g") and len(asked) == 1
        else:
            assert sent == [("", "i", "moved"), ("", "gone", "moved")]
            assert removed["i"] is None
            assert isinstance(removed.errors["gone"], UnknownMemberIdError)
            with pytest.raises(UnknownMemberIdError):
                await admin.remove_members("g", ["gone"])


async def test_members_of_a_group_that_is_not_there() -> None:
    unknown = ConsumerGroupDescribeDescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    absent = DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            lambda node, request: ConsumerGroupDescribeResponse(groups=[unknown]),
        )
        cluster.on(
            ApiKey.DESCRIBE_GROUPS, lambda node, request: DescribeGroupsResponse(groups=[absent])
        )
        with pytest.raises(GroupIdNotFoundError):
            await admin.remove_members("g")
