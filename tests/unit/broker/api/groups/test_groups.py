"""Requests about groups as clients send them: versions, layouts, errors, coordinators."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.kraft_meta.metadata.image import Endpoint
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    AUTHORIZED_OPERATIONS_OMITTED,
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
)
from kraftrio.wire.primitives import ZERO_UUID
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, ask

TOPIC_ID = b"t" * 16
GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.fixture
def broker() -> BrokerStandIn:
    broker = BrokerStandIn()
    broker.metadata.add_topic("topic", TOPIC_ID, 2)
    broker.metadata.add_broker(
        1, Endpoint("PLAINTEXT", "inner", 9092, 0), Endpoint("OUTSIDE", "outer", 19092, 0)
    )
    return broker


def join_request(group_id: str = "group", **kwargs: Any) -> JoinGroupRequest:
    values = {
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"m")],
        **kwargs,
    }
    return JoinGroupRequest(group_id=group_id, **values)


def commit_request(
    *partitions: int, name: str = "topic", topic_id: bytes = ZERO_UUID, **kwargs: Any
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=kwargs.pop("group_id", "group"),
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=p, committed_offset=10 + p)
                    for p in partitions
                ],
            )
        ],
        **kwargs,
    )


def codes(response: Any) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


# --- membership ---


@pytest.mark.parametrize("version", range(10))
def test_whole_life_of_a_member_in_every_version(broker: BrokerStandIn, version: int) -> None:
    """Join, sync, heartbeat and leave work in every version's layout."""
    response = ask(broker, join_request(), version)
    if version >= 4:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.protocol_name == (None if version >= 7 else "")
        response = ask(broker, join_request(member_id=response.member_id), version)
    assert response.error_code == ErrorCode.NONE
    assert (response.protocol_name, response.leader) == ("range", response.member_id)
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    member_id = response.member_id
    sync_version = min(version, 5)
    names: dict[str, Any] = {}
    if sync_version == 5:
        names = {"protocol_type": "consumer", "protocol_name": "range"}
    sync = SyncGroupRequest(group_id="group", generation_id=1, member_id=member_id, **names)
    assert ask(broker, sync, sync_version).error_code == ErrorCode.NONE
    heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id=member_id)
    assert ask(broker, heartbeat, min(version, 4)).error_code == ErrorCode.NONE
    leave_version = min(version, 5)
    if leave_version < 3:
        leave = LeaveGroupRequest(group_id="group", member_id=member_id)
    else:
        members = [MemberIdentity(member_id=member_id)]
        leave = LeaveGroupRequest(group_id="group", members=members)
    assert ask(broker, leave, leave_version).error_code == ErrorCode.NONE
    again = ask(broker, leave, leave_version)
    error = again.members[0].error_code if leave_version >= 3 else again.error_code
    assert error == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_v0_has_the_session_timeout_for_rebalances(broker: BrokerStandIn) -> None:
    """The oldest join has no rebalance timeout of its own."""
    member_id = ask(broker, join_request(session_timeout_ms=7_000), 0).member_id
    group = broker.coordinator.read(
        "group", lambda shard, _now: shard.groups.find("group", ClassicGroup)
    )
    assert group is not None
    assert group.members[member_id].rebalance_timeout_ms == 7_000


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeout_limits(broker: BrokerStandIn, timeout_ms: int) -> None:
    """A session timeout outside of the broker's limits is 26."""
    response = ask(broker, join_request(session_timeout_ms=timeout_ms), 5)
    assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    for fine in (6_000, 1_800_000):
        response = ask(broker, join_request(session_timeout_ms=fine), 5)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_empty_group_id_is_invalid_for_members(broker: BrokerStandIn) -> None:
    """MemberSessions needs a group id (24)."""
    for request, version in (
        (join_request(""), 5),
        (SyncGroupRequest(), 3),
        (HeartbeatRequest(), 3),
        (LeaveGroupRequest(), 3),
        (OffsetDeleteRequest(), 0),
    ):
        assert ask(broker, request, version).error_code == ErrorCode.INVALID_GROUP_ID


def test_sync_v5_needs_protocol_type_and_name(broker: BrokerStandIn) -> None:
    """From v5 a sync must say the protocol it is for (23)."""
    incomplete: list[dict[str, Any]] = [
        {},
        {"protocol_type": "consumer"},
        {"protocol_name": "range"},
    ]
    for names in incomplete:
        request = SyncGroupRequest(group_id="group", member_id="m", generation_id=1, **names)
        error = ask(broker, request, 5).error_code
        assert error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_null_client_id_is_empty(broker: BrokerStandIn) -> None:
    """A client without a name gets a member id all the same."""
    response = ask(broker, join_request(), 5, client_id=None)
    assert response.member_id == "-uuid1"


# --- offsets ---


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_every_version(broker: BrokerStandIn, version: int) -> None:
    """A commit by name or by id is stored and may be fetched; each partition has its error."""
    response = ask(
        broker,
        commit_request(0, 5, 1, topic_id=TOPIC_ID if version >= 10 else ZERO_UUID),
        version,
    )
    assert codes(response) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    (topic,) = response.topics
    assert [p.partition_index for p in topic.partitions] == [0, 5, 1]
    assert topic.name == ("topic" if version < 10 else "")
    assert topic.topic_id == (TOPIC_ID if version >= 10 else ZERO_UUID)


@pytest.mark.parametrize("topic_id", [ZERO_UUID, b"x" * 16])
def test_commit_by_unknown_id(broker: BrokerStandIn, topic_id: bytes) -> None:
    """A zero or unknown topic id is 100 and stores nothing."""
    response = ask(broker, commit_request(0, topic_id=topic_id), 10)
    assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert response.topics[0].topic_id == topic_id
    assert not any(log.batches for log in broker.replicas.logs.values())


def test_commit_to_unknown_topic(broker: BrokerStandIn) -> None:
    """A topic that does not exist is 3, without asking the group."""
    response = ask(broker, commit_request(0, name="ghost", member_id="m"), 9)
    assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_refused_commit_fails_every_partition(broker: BrokerStandIn) -> None:
    """An error of the group is reported for each partition that it was asked about."""
    request = commit_request(0, 7, 1, member_id="m", generation_id_or_member_epoch=3)
    illegal = ErrorCode.ILLEGAL_GENERATION
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(ask(broker, request, 8)) == [illegal, unknown, illegal]


def test_commit_with_default_retention(broker: BrokerStandIn) -> None:
    """Retention -1 of the old versions is the broker's own, not an expired offset."""
    assert codes(ask(broker, commit_request(0, retention_time_ms=-1), 2)) == [0]
    broker.timers.advance(1_200_000)
    request = OffsetFetchRequest(
        group_id="group", topics=[OffsetFetchRequestTopic(name="topic", partition_indexes=[0])]
    )
    assert ask(broker, request, 1).topics[0].partitions[0].committed_offset == 10


def test_empty_group_id_may_hold_offsets(broker: BrokerStandIn) -> None:
    """The empty group id works for commits, fetches, describing and deleting."""
    assert codes(ask(broker, commit_request(0, group_id=""), 8)) == [0]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="", topics=None)])
    assert codes(ask(broker, request, 8).groups[0]) == [0]
    described = ask(broker, DescribeGroupsRequest(groups=[""]), 5).groups[0]
    assert (described.error_code, described.group_state) == (0, "Empty")
    assert ask(broker, DeleteGroupsRequest(groups_names=[""]), 2).results[0].error_code == 0


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_of_one_group_in_every_version(broker: BrokerStandIn, version: int) -> None:
    """Up to v7 the offsets stand at the top of the response."""
    ask(broker, commit_request(0, 1), 8)
    request = OffsetFetchRequest(
        group_id="group",
        topics=[OffsetFetchRequestTopic(name="topic", partition_indexes=[1, 3, 0])],
    )
    response = ask(broker, request, version)
    offsets = [(p.partition_index, p.committed_offset) for p in response.topics[0].partitions]
    assert offsets == [(1, 11), (3, -1), (0, 10)]
    assert codes(response) == [0, 0, 0]
    if version >= 2:
        everything = ask(broker, OffsetFetchRequest(group_id="group", topics=None), version)
        assert [t.name for t in everything.topics] == ["topic"]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_fetch_of_several_groups(broker: BrokerStandIn, version: int) -> None:
    """From v8 each group has its own topics and error, in the order asked."""
    ask(broker, commit_request(0), 8)
    topics = [OffsetFetchRequestTopics(name="topic", topic_id=TOPIC_ID, partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="none", topics=topics),
            OffsetFetchRequestGroup(group_id="group", topics=None),
            OffsetFetchRequestGroup(group_id="group", topics=topics),
        ]
    )
    response = ask(broker, request, version)
    assert [g.group_id for g in response.groups] == ["none", "group", "group"]
    offsets = [g.topics[0].partitions[0].committed_offset for g in response.groups]
    assert offsets == [-1, 10, 10]
    ids = {g.topics[0].topic_id for g in response.groups}
    assert ids == ({TOPIC_ID} if version >= 10 else {ZERO_UUID})


def test_fetch_by_unknown_id(broker: BrokerStandIn) -> None:
    """An unknown topic id is 100 for its partitions; others are answered."""
    ask(broker, commit_request(0), 8)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="group",
                topics=[
                    OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0]),
                    OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[0]),
                ],
            )
        ]
    )
    by_id = {t.topic_id: t.partitions[0] for t in ask(broker, request, 10).groups[0].topics}
    assert by_id[b"x" * 16].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert by_id[TOPIC_ID].committed_offset == 10


def test_fetch_all_by_id_leaves_deleted_topics_out(broker: BrokerStandIn) -> None:
    """A topic without an id any more cannot be named in v10."""
    ask(broker, commit_request(0), 8)
    broker.metadata.remove_topic("topic")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)])
    assert ask(broker, request, 10).groups[0].topics == []
    assert len(ask(broker, request, 9).groups[0].topics) == 1


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
def test_fetch_from_another_broker(version: int) -> None:
    """16 stands at the partitions in v0-1, at the top up to v7, and in the group from v8."""
    broker = BrokerStandIn(lead=False)
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="topic", partition_indexes=[0])]
        response = ask(broker, OffsetFetchRequest(group_id="group", topics=topics), version)
        errors = codes(response) if version < 2 else [response.error_code]
        assert version < 2 or response.topics == []
    else:
        group = OffsetFetchRequestGroup(group_id="group", topics=None)
        response = ask(broker, OffsetFetchRequest(groups=[group]), version)
        errors = [response.groups[0].error_code]
    assert errors == [ErrorCode.NOT_COORDINATOR]


def test_offset_delete_by_metadata(broker: BrokerStandIn) -> None:
    """Unknown topics and partitions are 3; the rest is the group's to say; order is kept."""
    ask(broker, commit_request(0, 1), 8)

    def topic(name: str, *partitions: int) -> OffsetDeleteRequestTopic:
        return OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
        )

    request = OffsetDeleteRequest(
        group_id="group", topics=[topic("ghost", 0), topic("topic", 9, 0)]
    )
    response = ask(broker, request, 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (response.error_code, codes(response)) == (0, [unknown, unknown, 0])
    everything = OffsetFetchRequest(group_id="group", topics=None)
    left = ask(broker, everything, 7).topics[0].partitions
    assert [p.partition_index for p in left] == [1]
    request.group_id = "ghost"
    for topics in (request.topics, request.topics[:1], []):
        request.topics = topics
        response = ask(broker, request, 0)
        assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


# --- administration ---


@pytest.mark.parametrize("version", range(7))
def test_describe_groups_in_every_version(broker: BrokerStandIn, version: int) -> None:
    """Known and unknown groups are described in the order asked."""
    ask(broker, commit_request(0), 8)
    request = DescribeGroupsRequest(
        groups=["ghost", "group"], include_authorized_operations=version >= 3
    )
    ghost, group = ask(broker, request, version).groups
    assert (ghost.group_id, ghost.group_state) == ("ghost", "Dead")
    assert ghost.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert (group.group_state, group.error_code) == ("Empty", 0)
    assert group.authorized_operations == (3400 if version >= 3 else -(2**31))


def test_authorized_operations_only_when_asked(broker: BrokerStandIn) -> None:
    """The operations are the marker for "not asked" unless asked for, also of a Dead group."""
    ask(broker, commit_request(0), 8)
    for is_asked, operations in ((False, AUTHORIZED_OPERATIONS_OMITTED), (True, 3400)):
        request = DescribeGroupsRequest(
            groups=["group", "ghost"], include_authorized_operations=is_asked
        )
        described = ask(broker, request, 5).groups
        assert [group.authorized_operations for group in described] == [operations, operations]


@pytest.mark.parametrize("version", range(6))
def test_list_groups_in_every_version(broker: BrokerStandIn, version: int) -> None:
    """All shards' groups are listed; states and types from the versions that know them."""
    for group_id in ("a", "b", "c"):
        ask(broker, commit_request(0, group_id=group_id), 8)
    response = ask(broker, ListGroupsRequest(), version)
    assert sorted(g.group_id for g in response.groups) == ["a", "b", "c"]
    assert {g.group_state for g in response.groups} == {"Empty" if version >= 4 else ""}
    assert {g.group_type for g in response.groups} == {"classic" if version >= 5 else ""}
    if version >= 4:
        assert ask(broker, ListGroupsRequest(states_filter=["Stable"]), version).groups == []


@pytest.mark.parametrize(
    ("states", "types", "count"),
    [
        ([" EMPTY "], [], 1),
        (["no such"], [], 0),
        (["NotReady", "assigning", "reconciling"], [], 0),
        ([], ["Classic", "share"], 1),
        ([], ["consumer", "share", "streams"], 0),
        ([], ["no such"], 0),
        ([], [" classic"], 0),
    ],
)
def test_list_groups_by_state_and_type(
    broker: BrokerStandIn, states: list[str], types: list[str], count: int
) -> None:
    """Names of states and kinds that are not there choose nothing, as in Kafka."""
    ask(broker, commit_request(0), 8)
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    assert len(ask(broker, request, 5).groups) == count


def test_list_groups_while_loading(broker: BrokerStandIn) -> None:
    """A list that would lack a loading shard's groups is 14 instead."""
    ask(broker, commit_request(0), 8)
    broker.start()
    for partition in range(4):
        broker.coordinator.elect(partition, 1)
    response = ask(broker, ListGroupsRequest(), 5)
    assert (response.error_code, response.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


def test_delete_groups_of_several_shards(broker: BrokerStandIn) -> None:
    """Each group has its own result, whichever shard it is in."""
    for group_id in ("a", "b", "c"):
        ask(broker, commit_request(0, group_id=group_id), 8)
    request = DeleteGroupsRequest(groups_names=["a", "ghost", "c", "a"])
    results = ask(broker, request, 2).results
    assert len(results) == 3, "a group named twice is deleted once"
    assert {r.group_id: r.error_code for r in results} == {
        "a": 0,
        "ghost": ErrorCode.GROUP_ID_NOT_FOUND,
        "c": 0,
    }
    assert [g.group_id for g in ask(broker, ListGroupsRequest(), 5).groups] == ["b"]


def test_a_commit_that_fits_into_no_batch_is_refused_for_all_that_exists(
    broker: BrokerStandIn,
) -> None:
    """UNKNOWN_SERVER_ERROR, as Kafka; the group is not asked, what does not exist is reported."""
    *known, unknown = codes(ask(broker, commit_request(*[0] * 24_001, 99), 8))
    assert set(known) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(known) == 24_001
    assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_long_fetch_finds_what_a_short_one_finds(broker: BrokerStandIn) -> None:
    """Offsets that are there, and -1 for all others, in the order of the request."""
    assert codes(ask(broker, commit_request(0), 8)) == [0]
    indexes = [*range(5, 1000), 0, *range(1000, 1200)]
    request = OffsetFetchRequest(
        group_id="group",
        topics=[OffsetFetchRequestTopic(name="topic", partition_indexes=indexes)],
    )
    (topic,) = ask(broker, request, 7).topics
    found = {one.partition_index: one.committed_offset for one in topic.partitions}
    assert list(found) == indexes
    assert {index for index, offset in found.items() if offset != -1} == {0}
    assert found[0] == 10
