"""Share groups (KIP-932): who may fetch which partitions, and the error for each mistake."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kraftrio.wire.messages.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.conformance.broker_process import KIND, Broker
from tests.conformance.cases.calls import (
    NOT_SERVED_YET,
    create_topic,
    delete_topic,
    wait_for_coordinator,
)
from tests.conformance.cases.members import commit_code, commit_request
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
LEAVES = -1
DEADLINE_S = 20.0


@dataclass
class ShareMember:
    """What one share consumer sends to its coordinator, and what that answered last."""

    client: RawClient
    group: str
    topics: list[str]
    member_id: str
    epoch: int = 0
    assigned: set[int] = field(default_factory=set)

    def heartbeat(self, **fields: Any) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat, and adopt what its answer says; fields are the request's."""
        known = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        response = self.client.call(ShareGroupHeartbeatRequest(**{**known, **fields}))
        assert isinstance(response, ShareGroupHeartbeatResponse)
        if response.error_code == NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                topics = response.assignment.topic_partitions
                self.assigned = {number for topic in topics for number in topic.partitions}
        return response

    def join(self, **fields: Any) -> ShareGroupHeartbeatResponse:
        """The first heartbeat."""
        return self.heartbeat(
            **{"member_epoch": 0, "subscribed_topic_names": self.topics, **fields}
        )

    def leave(self) -> ErrorCode:
        """The last heartbeat."""
        return ErrorCode(self.heartbeat(member_epoch=LEAVES).error_code)


MakeMember = Callable[..., ShareMember]


def settle(*members: ShareMember, partitions: int) -> None:
    """Heartbeat in turns until all partitions are assigned and all have the group's epoch."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        for member in members:
            assert member.heartbeat().error_code == NONE
        described = describe(members[0].client, members[0].group)
        epochs = {
            described.group_epoch,
            described.assignment_epoch,
            *(member.epoch for member in members),
        }
        assigned = set().union(*(member.assigned for member in members))
        if len(epochs) == 1 and len(assigned) == partitions:
            return
        assert time.monotonic() < deadline, (described, members)
        time.sleep(0.1)


@pytest.fixture(scope="module", autouse=True)
def coordinator(broker: Broker) -> None:
    """Have the offsets topic before the first heartbeat."""
    with RawClient(broker.address) as client:
        wait_for_coordinator(client)


@pytest.fixture
def group(unique_group: Callable[[], str]) -> str:
    """The name of the group."""
    return unique_group()


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic of four partitions."""
    return new_topic(partitions=4)


@pytest.fixture
def member(client: RawClient, group: str, topic: str) -> MakeMember:
    """Make members of the group."""
    return lambda member_id="one": ShareMember(client, group, [topic], member_id)


def settled(client: RawClient, group: str, *topics: str) -> dict[tuple[str, int], int]:
    """Wait until every partition of these topics has a state; return their start offsets."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        offsets = start_offsets(client, group)
        if {topic for topic, _ in offsets} >= set(topics):
            return offsets
        assert time.monotonic() < deadline, offsets
        time.sleep(0.1)


def start_offsets(client: RawClient, group: str) -> dict[tuple[str, int], int]:
    """Return the start offsets of a group."""
    about = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (described,) = client.call(DescribeShareGroupOffsetsRequest(groups=[about])).groups
    assert described.error_code == NONE
    return {
        (topic.topic_name, partition.partition_index): partition.start_offset
        for topic in described.topics
        for partition in topic.partitions
    }


def alter(client: RawClient, group: str, **offsets: dict[int, int]) -> Any:
    """Set start offsets: topic={partition: offset}."""
    return client.call(
        AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=number, start_offset=offset
                        )
                        for number, offset in partitions.items()
                    ],
                )
                for name, partitions in offsets.items()
            ],
        )
    )


def delete_offsets(client: RawClient, group: str, *topics: str) -> Any:
    """Delete the states of topics."""
    about = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return client.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=about))


def describe(client: RawClient, group: str) -> Any:
    """Describe one group."""
    (described,) = client.call(ShareGroupDescribeRequest(group_ids=[group])).groups
    return described


def delete_group(client: RawClient, group: str) -> ErrorCode:
    """Delete one group."""
    (result,) = client.call(DeleteGroupsRequest(groups_names=[group])).results
    return ErrorCode(result.error_code)


# Members


def test_a_member_alone_is_given_every_partition(member: MakeMember) -> None:
    """As soon as the states of the partitions are there."""
    one = member()
    response = one.join()
    assert (response.error_code, response.member_id) == (NONE, "one")
    assert response.heartbeat_interval_ms == 5000
    settle(one, partitions=4)
    assert one.assigned == {0, 1, 2, 3}
    epoch = one.epoch
    assert one.heartbeat().assignment is None
    assert one.epoch == epoch


def test_members_share_partitions(member: MakeMember) -> None:
    """Two members have two of four each; of more members than partitions each has some."""
    members = [member(f"member-{number}") for number in range(2)]
    for one in members:
        one.join()
    settle(*members, partitions=4)
    assert [len(one.assigned) for one in members] == [2, 2]
    members += [member(f"member-{number}") for number in range(2, 7)]
    for one in members[2:]:
        one.join()
    settle(*members, partitions=4)
    assert {len(one.assigned) for one in members} <= {1, 2}


def test_a_member_that_leaves_gives_up_its_partitions(member: MakeMember) -> None:
    """The other has them all at the next epoch."""
    first, second = member("first"), member("second")
    first.join()
    second.join()
    settle(first, second, partitions=4)
    assert second.leave() == NONE
    assert second.epoch == LEAVES
    settle(first, partitions=4)
    assert first.assigned == {0, 1, 2, 3}


def test_members_that_are_not_there(member: MakeMember) -> None:
    """They may neither send heartbeats nor leave."""
    assert member().heartbeat(member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert member().leave() == ErrorCode.GROUP_ID_NOT_FOUND
    member().join()
    stranger = member("stranger")
    assert stranger.heartbeat(member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_of_heartbeats(member: MakeMember) -> None:
    """The epoch before this one is accepted, since an answer may be lost; others are fenced."""
    one = member()
    one.join()
    settle(one, partitions=4)
    before = one.epoch
    assert before > 1
    other = member("other")
    other.join()
    settle(one, other, partitions=4)
    epoch = one.epoch
    assert one.heartbeat(member_epoch=before).member_epoch == epoch
    for wrong in (epoch + 1, before - 1):
        assert one.heartbeat(member_epoch=wrong).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_id": ""}, None),
        ({"member_id": "x" * 37}, None),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_heartbeats_that_are_refused(
    member: MakeMember, fields: dict[str, object], message: str | None
) -> None:
    """And no member joins by them."""
    response = member().join(**fields)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message == message
    assert member().heartbeat(member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_other_kinds_of_groups(client: RawClient, member: MakeMember, group: str) -> None:
    """No consumer joins a share group."""
    member().join()
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=1_000,
        member_id="", protocol_type="consumer", protocols=[],
    )  # fmt: skip
    assert client.call(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("member_id", "epoch"), [(None, -1), ("stranger", 7), ("", 0)])
def test_committed_offsets_are_those_of_a_group_that_is_not_there(
    client: RawClient, member: MakeMember, group: str, topic: str, member_id: str | None, epoch: int
) -> None:
    """Nobody commits any, and who asks for them gets none."""
    member().join()
    assert commit_code(client, commit_request(group, topic, 1)) == ErrorCode.GROUP_ID_NOT_FOUND
    named = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    for topics in (named, None):
        asked = OffsetFetchRequestGroup(
            group_id=group, member_id=member_id, member_epoch=epoch, topics=topics
        )
        (found,) = client.call(OffsetFetchRequest(groups=[asked]), 9).groups
        assert found.error_code == NONE
        offsets = [one.committed_offset for each in found.topics for one in each.partitions]
        assert offsets == ([] if topics is None else [-1])


def test_a_topic_that_is_gone_is_an_error_of_its_own(client: RawClient, group: str) -> None:
    """Not of the whole request, as in Apache Kafka 4.3.1, which then serves the session no more."""
    partition = ShareFetchPartition(partition_index=0, acknowledgement_batches=[])
    topic = ShareFetchTopic(topic_id=uuid.uuid4().bytes, partitions=[partition])
    response = client.call(
        ShareFetchRequest(
            group_id=group,
            member_id="d4PmAXIQRKCUwCG--EJ5sQ",
            share_session_epoch=0,
            max_wait_ms=500,
            min_bytes=1,
            max_records=10,
            batch_size=10,
            topics=[topic],
        )
    )
    if KIND == "apache":
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        return
    assert response.error_code == NONE
    (found,) = response.responses
    assert found.topic_id == topic.topic_id
    assert [one.error_code for one in found.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


# Administrators


def test_describing_and_listing(
    client: RawClient, member: MakeMember, group: str, topic: str
) -> None:
    """A group is empty or stable, and its members are described with all they have."""
    assert describe(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    one = member()
    one.join()
    settle(one, partitions=4)
    described = describe(client, group)
    assert (described.error_code, described.group_state) == (NONE, "Stable")
    assert described.group_epoch == described.assignment_epoch == one.epoch
    assert described.assignor_name == "simple"
    (only,) = described.members
    assert (only.member_id, only.member_epoch, only.rack_id) == ("one", one.epoch, None)
    assert only.subscribed_topic_names == [topic]
    (partitions,) = only.assignment.topic_partitions
    assert (partitions.topic_name, sorted(partitions.partitions)) == (topic, [0, 1, 2, 3])
    listed = client.call(ListGroupsRequest(types_filter=["share"], states_filter=["Stable"]))
    (found,) = (found for found in listed.groups if found.group_id == group)
    assert (found.group_type, found.protocol_type) == ("share", "share")
    one.leave()
    assert describe(client, group).group_state == "Empty"


def test_a_group_is_deleted_once_it_is_empty(
    client: RawClient, member: MakeMember, group: str, topic: str
) -> None:
    """Its states go with it."""
    one = member()
    one.join()
    settle(one, partitions=4)
    settled(client, group, topic)
    assert delete_group(client, group) == ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert delete_group(client, group) == NONE
    assert delete_group(client, group) == ErrorCode.GROUP_ID_NOT_FOUND


# Offsets


def test_offsets_of_a_group_with_members_stay(
    client: RawClient, member: MakeMember, group: str, topic: str
) -> None:
    """They belong to its members."""
    one = member()
    one.join()
    settle(one, partitions=4)
    for response in (alter(client, group, **{topic: {0: 5}}), delete_offsets(client, group, topic)):
        assert response.error_code == ErrorCode.NON_EMPTY_GROUP
        assert response.responses == []


def test_offsets_are_set_and_deleted(
    client: RawClient, member: MakeMember, group: str, topic: str
) -> None:
    """Partition by partition, and topic by topic."""
    one = member()
    one.join()
    settle(one, partitions=4)
    assert settled(client, group, topic) == dict.fromkeys(((topic, at) for at in range(4)), -1)
    one.leave()
    response = alter(client, group, **{topic: {0: 5, 7: 5}, "none": {0: 5}})
    codes = {
        (result.topic_name, partition.partition_index): partition.error_code
        for result in response.responses
        for partition in result.partitions
    }
    assert response.error_code == NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {(topic, 0): NONE, (topic, 7): unknown, ("none", 0): unknown}
    assert start_offsets(client, group)[topic, 0] == 5
    results = delete_offsets(client, group, topic, "none").responses
    assert {result.topic_name: result.error_code for result in results} == {
        topic: NONE,
        "none": unknown,
    }
    assert start_offsets(client, group) == {}


def test_offsets_make_a_group(client: RawClient, group: str, topic: str) -> None:
    """Setting them needs no group; deleting them does."""
    deleted = delete_offsets(client, group, topic)
    assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    deadline = time.monotonic() + DEADLINE_S
    while (code := alter(client, group, **{topic: {1: 7}}).error_code) != NONE:
        assert code in NOT_SERVED_YET and time.monotonic() < deadline
        time.sleep(0.1)
    assert describe(client, group).group_state == "Empty"
    assert start_offsets(client, group)[topic, 1] == 7


def test_start_offsets_go_with_their_topic(client: RawClient, group: str, topic: str) -> None:
    """A topic that is made again under the name has none in any share group."""
    deadline = time.monotonic() + DEADLINE_S
    while (code := alter(client, group, **{topic: {0: 100}}).error_code) != NONE:
        assert code in NOT_SERVED_YET and time.monotonic() < deadline
        time.sleep(0.1)
    assert start_offsets(client, group)[topic, 0] == 100
    delete_topic(client, topic)
    while start_offsets(client, group):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    create_topic(client, topic, partitions=4)
    assert start_offsets(client, group) == {}


def test_offsets_of_no_group(client: RawClient) -> None:
    """A group without a name is none."""
    assert alter(client, "").error_code == ErrorCode.INVALID_GROUP_ID
    assert delete_offsets(client, "").error_code == ErrorCode.INVALID_GROUP_ID
