"""Streams groups beside other kinds, and what administrators and offsets ask of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
)
from kraftrio.wire.messages.streams_groups import StreamsGroupDescribeRequest
from tests.conformance.cases.calls import SETTLE_DEADLINE_S, create_topic, delete_topic
from tests.conformance.cases.members import alone
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.test_streams_traces import WireScript
from tests.conformance.cases.transactional import TransactionalProducer, wait_for_transactions

EPOCHS_VERSION = 9  # of OffsetCommit and OffsetFetch: by member epoch


class Group(WireScript):
    """A group whose topic `in` has two partitions."""

    def __init__(self, client: RawClient, group_id: str) -> None:
        super().__init__(client)
        self._name = group_id
        self.client = client
        self.do("group", "topic in 2")

    def new_group_id(self) -> str:
        return self._name

    def do(self, *commands: str) -> list[str]:
        """Run commands; return the answer to the last one."""
        return [list(self.run(command)) for command in commands][-1]

    @property
    def topic(self) -> str:
        return f"{self._name}-in"

    def commit(self, version: int, member_id: str = "", epoch: int = -1) -> ErrorCode:
        """Commit offset 1 of the first partition."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=self._name,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        code: ErrorCode = self.client.call(request, version).topics[0].partitions[0].error_code
        return code

    def fetch(self, member_id: str | None = None, epoch: int = -1) -> tuple[ErrorCode, int]:
        """Fetch the offset of the first partition."""
        topic = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])
        asked = OffsetFetchRequestGroup(
            group_id=self._name, member_id=member_id, member_epoch=epoch, topics=[topic]
        )
        (group,) = self.client.call(OffsetFetchRequest(groups=[asked]), EPOCHS_VERSION).groups
        if group.error_code is not ErrorCode.NONE:
            return group.error_code, -1
        return group.error_code, group.topics[0].partitions[0].committed_offset

    def join_classic(self) -> Any:
        """Join as a member of the classic protocol, without an id."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=self._name,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return self.client.call(request, 9)

    def listed(self) -> tuple[str, str, str] | None:
        """The state, type and protocol type of the group, as it is listed."""
        request = ListGroupsRequest(types_filter=["Streams"])
        for one in self.client.call(request, 5).groups:
            if one.group_id == self._name:
                return one.group_state, one.group_type, one.protocol_type
        return None


@pytest.fixture
def group(client: RawClient, unique_group: Callable[[], str]) -> Group:
    """A group that does not exist yet."""
    return Group(client, unique_group())


def test_a_group_of_offsets_becomes_a_streams_group(group: Group) -> None:
    """With its offsets."""
    assert group.commit(8) is ErrorCode.NONE
    assert group.do("join a stateless")[0].startswith("epoch 2 ")
    assert group.fetch("a", 2) == (ErrorCode.NONE, 1)
    assert group.listed() == ("Stable", "streams", "streams")


def test_members_of_other_protocols_stay_apart(group: Group) -> None:
    """A streams group with members takes none of another protocol, nor the other way round."""
    group.do("join a stateless")
    assert group.join_classic().error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=group.group_id,
        member_id="c",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[group.topic],
        topic_partitions=[],
    )
    refused = group.client.call(heartbeat, 1)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group.group_id} is not a consumer group.",
    )
    for request, version in (
        (HeartbeatRequest(group_id=group.group_id, member_id="a", generation_id=2), 4),
        (SyncGroupRequest(group_id=group.group_id, member_id="a", generation_id=2), 3),
    ):
        assert group.client.call(request, version).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    leave = LeaveGroupRequest(group_id=group.group_id, members=[MemberIdentity(member_id="a")])
    (left,) = group.client.call(leave, 5).members
    assert left.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    (described,) = group.client.call(DescribeGroupsRequest(groups=[group.group_id]), 6).groups
    assert described.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == f"Group {group.group_id} is not a classic group."
    assert group.do("beat a")[0].startswith("epoch 2 ")


def test_a_classic_group_with_members_does_not_become_a_streams_group(
    group: Group, bootstrap: str
) -> None:
    """A streams member is refused, and the classic one notices nothing; once empty, it does."""
    with RawClient(bootstrap) as client:
        member = alone(client, group.group_id)
        assert group.do("join a stateless") == [
            "GROUP_ID_NOT_FOUND: Group GROUP is not a streams group."
        ]
        assert member.heartbeat() == ErrorCode.NONE
        member.leave()
        assert group.do("join a stateless")[0].startswith("epoch 2 ")


def test_an_empty_streams_group_becomes_a_classic_group(group: Group) -> None:
    """Its offsets stay."""
    group.do("join a stateless")
    assert group.commit(EPOCHS_VERSION, "a", 2) is ErrorCode.NONE
    group.do("leave a")
    assert group.listed() == ("Empty", "streams", "streams")
    assert group.join_classic().error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert group.listed() is None
    assert group.fetch() == (ErrorCode.NONE, 1)
    (described,) = group.client.call(StreamsGroupDescribeRequest(group_ids=[group.group_id])).groups
    assert described.error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_by_member_epoch(group: Group) -> None:
    """A member fetches and commits in its epoch, in the versions that have one."""
    group.do("join a stateless")
    assert group.fetch("a", 2) == (ErrorCode.NONE, -1)
    assert group.fetch("a", 1)[0] is ErrorCode.STALE_MEMBER_EPOCH
    assert group.fetch("nobody", 2)[0] is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.fetch() == (ErrorCode.NONE, -1)
    assert group.commit(8, "a", 2) is ErrorCode.UNSUPPORTED_VERSION
    assert group.commit(EPOCHS_VERSION, "a", 2) is ErrorCode.NONE
    assert group.commit(EPOCHS_VERSION) is ErrorCode.UNKNOWN_MEMBER_ID
    group.do("leave a")
    assert group.commit(EPOCHS_VERSION) is ErrorCode.NONE


def test_offsets_in_transactions(group: Group, unique_name: Callable[[str], str]) -> None:
    """By member, if the producer names one; the error for another epoch does not end a producer."""
    group.do("join a stateless")
    wait_for_transactions(group.client)
    producer = TransactionalProducer(group.client, unique_name("id")).init()

    def commit(member_id: str, epoch: int) -> ErrorCode:
        return producer.commit_offset(
            group.group_id, group.topic, 1, member_id=member_id, generation_id=epoch
        )

    assert commit("a", 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit("a", 3) is ErrorCode.ILLEGAL_GENERATION
    assert commit("nobody", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("a", 2) is ErrorCode.NONE
    assert commit("", -1) is ErrorCode.NONE
    producer.end(commit=True)


def test_offsets_go_with_their_topic(group: Group) -> None:
    """A topic made again under the name begins without commits, with members or without."""
    group.do("join a stateless")
    assert group.commit(EPOCHS_VERSION, "a", 2) is ErrorCode.NONE
    assert group.fetch() == (ErrorCode.NONE, 1)
    delete_topic(group.client, group.topic)
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while group.fetch() != (ErrorCode.NONE, -1):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    create_topic(group.client, group.topic, partitions=2)
    assert group.fetch() == (ErrorCode.NONE, -1)


def test_deletion(group: Group) -> None:
    """A group with members is not deleted, nor are offsets that they read; later both are."""
    group.do("join a stateless")
    assert group.commit(EPOCHS_VERSION, "a", 2) is ErrorCode.NONE
    partition = OffsetDeleteRequestPartition(partition_index=0)
    offsets = OffsetDeleteRequest(
        group_id=group.group_id,
        topics=[OffsetDeleteRequestTopic(name=group.topic, partitions=[partition])],
    )
    whole = DeleteGroupsRequest(groups_names=[group.group_id])

    def delete_offset() -> ErrorCode:
        answer = group.client.call(offsets, 0)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    assert delete_offset() is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert group.client.call(whole, 2).results[0].error_code is ErrorCode.NON_EMPTY_GROUP
    group.do("leave a")
    assert delete_offset() is ErrorCode.NONE
    assert group.fetch() == (ErrorCode.NONE, -1)
    assert group.client.call(whole, 2).results[0].error_code is ErrorCode.NONE
    assert group.do("describe") == ["GROUP_ID_NOT_FOUND: Group GROUP not found."]
    assert group.do("join a stateless")[0].startswith("epoch 2 ")
