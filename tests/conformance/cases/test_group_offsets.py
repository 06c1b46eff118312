"""Committed offsets, and the administration of groups."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import (
    SETTLE_DEADLINE_S,
    create_topic,
    delete_topic,
    topic_id,
    wait_for_coordinator,
    wait_for_leaders,
)
from tests.conformance.cases.members import (
    alone,
    commit_code,
    commit_request,
    fetch_offset,
    subscription,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module", autouse=True)
def coordinator(broker: Broker) -> None:
    """Have the offsets topic before the first commit."""
    with RawClient(broker.address) as client:
        wait_for_coordinator(client)


# Commit and fetch


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_by_name_in_every_version(
    client: RawClient,
    new_topic: Callable[..., str],
    unique_group: Callable[[], str],
    version: int,
) -> None:
    """From outside of any generation; every version of OffsetFetch returns it."""
    topic, group = new_topic(), unique_group()
    request = commit_request(group, topic, 41, metadata="note")
    request.topics[0].partitions[0].committed_leader_epoch = 3
    assert commit_code(client, request, version) == NONE
    expected_epoch = 3 if version >= 6 else -1
    for fetch_version in range(1, 8):
        asked = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])],
        )
        response = client.call(asked, fetch_version)
        assert response.error_code == NONE
        ((there, missing),) = [one.partitions for one in response.topics]
        assert (there.committed_offset, there.metadata, there.error_code) == (41, "note", NONE)
        assert there.committed_leader_epoch == (expected_epoch if fetch_version >= 5 else -1)
        assert (missing.committed_offset, missing.metadata, missing.error_code) == (-1, "", NONE)
    found = fetch_offset(client, group, topic)
    assert (found.committed_offset, found.committed_leader_epoch) == (41, expected_epoch)


def test_commit_and_fetch_by_topic_id(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """In version 10; no topic has the zero id, nor one that was never given."""
    topic, group = new_topic(), unique_group()
    identity = topic_id(client, topic)
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    for asked, code in (
        (identity, NONE),
        (bytes(16), ErrorCode.UNKNOWN_TOPIC_ID),
        (b"\x05" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ):
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(topic_id=asked, partitions=[part])]
        )
        (answered,) = client.call(request, 10).topics
        assert answered.topic_id == asked
        assert [one.error_code for one in answered.partitions] == [code]
        fetched = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[OffsetFetchRequestTopics(topic_id=asked, partition_indexes=[0])],
                )
            ]
        )
        (found,) = client.call(fetched, 10).groups
        ((answer,),) = [one.partitions for one in found.topics]
        assert answer.error_code == code
        assert answer.committed_offset == (5 if code == NONE else -1)
    assert fetch_offset(client, group, topic).committed_offset == 5


def test_every_offset_of_a_group(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """Null topics ask for all, from version 2 on, also what was committed as no offset (-1)."""
    topics, group = [new_topic(partitions=2) for _ in range(2)], unique_group()
    every = {(topic, 0, offset) for topic, offset in zip(topics, (1, -1), strict=True)}
    every |= {(topic, 1, 2) for topic in topics}
    for topic, partition, offset in every:
        request = commit_request(group, topic, offset, partition)
        assert commit_code(client, request) == NONE
    for version in range(2, 8):
        response = client.call(OffsetFetchRequest(group_id=group, topics=None), version)
        assert {
            (topic.name, one.partition_index, one.committed_offset)
            for topic in response.topics
            for one in topic.partitions
        } == every
        assert client.call(OffsetFetchRequest(group_id=group, topics=[]), version).topics == []
    for version in (8, 9):
        asked = [
            OffsetFetchRequestGroup(group_id=group, topics=None),
            OffsetFetchRequestGroup(group_id=unique_group(), topics=None),
        ]
        first, second = client.call(OffsetFetchRequest(groups=asked), version).groups
        assert sum(len(one.partitions) for one in first.topics) == 4
        assert (second.error_code, second.topics) == (NONE, [])


def test_retention_of_old_versions(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """-1 leaves it to the broker: it does not mean that the commit has expired."""
    topic = new_topic()
    for version in (2, 3, 4):
        group = unique_group()
        request = commit_request(group, topic, 9)
        request.retention_time_ms = -1
        assert commit_code(client, request, version) == NONE
        assert fetch_offset(client, group, topic).committed_offset == 9


def test_what_cannot_be_committed(
    client: RawClient,
    new_topic: Callable[..., str],
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
) -> None:
    """For a partition that does not exist, or with too long metadata; the others are committed."""
    topic, group = new_topic(), unique_group()
    assert commit_code(client, commit_request(group, unique_topic(), 1)) == UNKNOWN
    assert commit_code(client, commit_request(group, topic, 1, partition=5)) == UNKNOWN
    long = commit_request(group, topic, 1, metadata="x" * 5000)
    assert commit_code(client, long) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetch_offset(client, group, topic).committed_offset == -1
    mixed = commit_request(group, topic, 1)
    mixed.topics[0].partitions.append(
        OffsetCommitRequestPartition(partition_index=5, committed_offset=1, committed_metadata=None)
    )
    (answered,) = client.call(mixed, 9).topics
    codes = {one.partition_index: one.error_code for one in answered.partitions}
    assert codes == {0: NONE, 5: UNKNOWN}
    assert fetch_offset(client, group, topic).committed_offset == 1


def test_null_metadata(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """It is an empty string when fetched."""
    topic, group = new_topic(), unique_group()
    assert commit_code(client, commit_request(group, topic, 1, metadata=None)) == NONE
    assert fetch_offset(client, group, topic).metadata == ""


def test_commits_from_outside_an_active_group(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """Are refused while it has members."""
    topic, group = new_topic(), unique_group()
    member = alone(client, group)
    assert member.commit(topic, 3) == NONE
    assert commit_code(client, commit_request(group, topic, 7)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_offset(client, group, topic).committed_offset == 3
    member.leave()
    assert commit_code(client, commit_request(group, topic, 7)) == NONE
    assert fetch_offset(client, group, topic).committed_offset == 7


def test_a_recreated_topic_has_no_commits(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """They went with the old topic, in every group."""
    topic, other, group = new_topic(), new_topic(), unique_group()
    assert commit_code(client, commit_request(group, topic, 100)) == NONE
    assert commit_code(client, commit_request(group, other, 200)) == NONE
    delete_topic(client, topic)
    create_topic(client, topic)
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while fetch_offset(client, group, topic).committed_offset != -1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert fetch_offset(client, group, other).committed_offset == 200


def test_commits_survive_a_crash(make_broker: Callable[..., Broker]) -> None:
    """What was answered is there; the last one for each partition counts."""
    broker = make_broker()
    with RawClient(broker.address) as client:
        topic = create_topic(client, "committed", partitions=3)
        wait_for_coordinator(client)
        for offset in range(10):
            for partition in range(3):
                request = commit_request("crash", topic, offset * 10 + partition, partition)
                assert commit_code(client, request) == NONE
    broker.kill9()
    broker.start()
    with RawClient(broker.address) as client:
        wait_for_leaders(client, topic, 3)
        wait_for_coordinator(client)
        found = [fetch_offset(client, "crash", topic, one).committed_offset for one in range(3)]
        assert found == [90, 91, 92]


# Administration


def listed(
    client: RawClient, group: str, version: int = 5, **filters: list[str]
) -> ListedGroup | None:
    response = client.call(ListGroupsRequest(**filters), version)
    assert response.error_code == NONE
    found = [one for one in response.groups if one.group_id == group]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(
    client: RawClient,
    new_topic: Callable[..., str],
    unique_group: Callable[[], str],
    version: int,
) -> None:
    """Also those that only store offsets: they have no protocol type."""
    only_offsets, active = unique_group(), unique_group()
    assert commit_code(client, commit_request(only_offsets, new_topic(), 1)) == NONE
    alone(client, active)
    found = listed(client, only_offsets, version)
    assert found is not None
    assert found.protocol_type == ""
    assert found.group_state == ("Empty" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")
    found = listed(client, active, version)
    assert found is not None
    assert found.protocol_type == "consumer"
    assert found.group_state == ("Stable" if version >= 4 else "")


def test_groups_are_listed_by_state_and_type(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """Without regard to capitals; unknown states and types fit none."""
    group = unique_group()
    assert commit_code(client, commit_request(group, new_topic(), 1)) == NONE
    assert listed(client, group, states_filter=["Empty", "Stable"]) is not None
    assert listed(client, group, states_filter=["empty"]) is not None
    assert listed(client, group, states_filter=["Stable"]) is None
    assert listed(client, group, states_filter=["Nonsense"]) is None
    assert listed(client, group, types_filter=["Classic"]) is not None
    assert listed(client, group, types_filter=["consumer"]) is None


@pytest.mark.parametrize("version", range(7))
def test_describing_an_unknown_group(
    client: RawClient, unique_group: Callable[[], str], version: int
) -> None:
    """It is dead, without an error, and not found from version 6 on."""
    (found,) = client.call(DescribeGroupsRequest(groups=[unique_group()]), version).groups
    assert found.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    assert (found.group_state, found.members) == ("Dead", [])


def test_consumer_group_describe_of_other_groups(
    client: RawClient, unique_group: Callable[[], str]
) -> None:
    """Tools ask it first, for any group, and go on to DescribeGroups upon this code."""
    group = unique_group()
    alone(client, group)
    for version in (0, 1):
        asked = ConsumerGroupDescribeRequest(group_ids=[group, unique_group()])
        found = client.call(asked, version).groups
        assert [one.error_code for one in found] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


def test_groups_are_deleted(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """Not while they have members; with them go their offsets."""
    topic, empty, active = new_topic(), unique_group(), unique_group()
    assert commit_code(client, commit_request(empty, topic, 1)) == NONE
    member = alone(client, active)
    for version, expected in ((0, NONE), (1, ErrorCode.GROUP_ID_NOT_FOUND)):
        asked = DeleteGroupsRequest(groups_names=[empty, active, "no-such-group"])
        results = {one.group_id: one.error_code for one in client.call(asked, version).results}
        assert results == {
            empty: expected,
            active: ErrorCode.NON_EMPTY_GROUP,
            "no-such-group": ErrorCode.GROUP_ID_NOT_FOUND,
        }
    assert fetch_offset(client, empty, topic).committed_offset == -1
    assert listed(client, empty) is None
    assert member.heartbeat() == NONE


def delete_offsets(client: RawClient, group: str, *topics: str) -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for topic in topics
        ],
    )
    response = client.call(request)
    assert isinstance(response, OffsetDeleteResponse)
    return response


def test_offsets_are_deleted(
    client: RawClient,
    new_topic: Callable[..., str],
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
) -> None:
    """Of topics that the group does not subscribe to."""
    used, unused, group = new_topic(), new_topic(), unique_group()
    member = alone(client, group, protocols=(("range", subscription(used)),))
    for topic in (used, unused):
        assert member.commit(topic, 4) == NONE
    missing = unique_topic()
    response = delete_offsets(client, group, used, unused, missing)
    assert response.error_code == NONE
    codes = {one.name: one.partitions[0].error_code for one in response.topics}
    assert codes == {used: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, unused: NONE, missing: UNKNOWN}
    assert fetch_offset(client, group, used).committed_offset == 4
    assert fetch_offset(client, group, unused).committed_offset == -1
    unknown = delete_offsets(client, unique_group(), used)
    assert (unknown.error_code, unknown.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    member.leave()
    response = delete_offsets(client, group, used)
    assert [one.partitions[0].error_code for one in response.topics] == [NONE]


def test_the_empty_group_id(client: RawClient, new_topic: Callable[..., str]) -> None:
    """It may store offsets and be described and deleted, but nobody may join it."""
    topic = new_topic()
    assert commit_code(client, commit_request("", topic, 8)) == NONE
    assert fetch_offset(client, "", topic).committed_offset == 8
    (found,) = client.call(DescribeGroupsRequest(groups=[""]), 5).groups
    assert (found.error_code, found.group_state) == (NONE, "Empty")
    (deleted,) = client.call(DeleteGroupsRequest(groups_names=[""])).results
    assert deleted.error_code == NONE
    assert fetch_offset(client, "", topic).committed_offset == -1
