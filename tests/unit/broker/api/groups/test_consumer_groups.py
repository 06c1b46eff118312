"""Requests about consumer groups, over the wire's bytes: heartbeats and descriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.consumer_groups import MAX_TOPICS
from kraftrio.kraft_meta.metadata.image import GROUP_VERSION
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kraftrio.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, ask

TOPIC_ID = b"t" * 16


@pytest.fixture
def broker() -> BrokerStandIn:
    broker = BrokerStandIn()
    broker.metadata.set_feature(GROUP_VERSION, 1)
    broker.metadata.add_topic("topic", TOPIC_ID, 4)
    return broker


def heartbeat(member_id: str = "m", epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        fields = {
            "subscribed_topic_names": ["topic"],
            "topic_partitions": [],
            "rebalance_timeout_ms": 60_000,
        } | fields
    return ConsumerGroupHeartbeatRequest(
        group_id="group", member_id=member_id, member_epoch=epoch, **fields
    )


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_stays(broker: BrokerStandIn, version: int) -> None:
    """Its later heartbeats are answered without the assignment."""
    joined = ask(broker, heartbeat(), version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "m", 2)
    assert joined.heartbeat_interval_ms == 5_000
    (topic,) = joined.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (TOPIC_ID, [0, 1, 2, 3])
    stayed = ask(broker, heartbeat(epoch=2), version)
    assert (stayed.error_code, stayed.member_epoch, stayed.assignment) == (ErrorCode.NONE, 2, None)


def test_refusals_have_kafkas_message(broker: BrokerStandIn) -> None:
    """Of the request, of its epoch, and of a broker that is not the coordinator."""
    invalid = ask(broker, heartbeat(rebalance_timeout_ms=-1), 1)
    assert (invalid.error_code, invalid.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "RebalanceTimeoutMs must be provided in first request.",
    )
    assignor = ask(broker, heartbeat(server_assignor="best"), 1)
    assert (assignor.error_code, assignor.error_message) == (
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor best is not supported. Supported assignors: uniform, range.",
    )
    absent = ask(broker, heartbeat(epoch=5), 1)
    assert (absent.error_code, absent.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Consumer group group not found.",
    )
    ask(broker, heartbeat(), 1)
    fenced = ask(broker, heartbeat(epoch=7), 1)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert fenced.error_message.startswith("The consumer group member has a greater member epoch")
    elsewhere = BrokerStandIn(lead=False)
    elsewhere.metadata.set_feature(GROUP_VERSION, 1)
    assert ask(elsewhere, heartbeat(), 1).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("protocols", [("classic",), ("classic", "consumer")])
def test_the_protocol_may_be_off(broker: BrokerStandIn, protocols: tuple[str, ...]) -> None:
    """By the broker's settings, or by the level of the cluster's feature."""
    if protocols == ("classic",):
        broker.properties = replace(
            broker.properties, group_coordinator_rebalance_protocols=protocols
        )
    else:
        broker.metadata.set_feature(GROUP_VERSION, 0)
    broker.start()
    assert ask(broker, heartbeat(), 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    (described,) = ask(broker, ConsumerGroupDescribeRequest(group_ids=["group"]), 1).groups
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_requests_that_name_too_much(broker: BrokerStandIn) -> None:
    """What is large is read in slices; what is too large is refused, with no effect."""
    names = [f"t{index}" for index in range(MAX_TOPICS)]
    assert ask(broker, heartbeat("large", subscribed_topic_names=names), 1).member_epoch == 2
    refused = ask(broker, heartbeat(subscribed_topic_names=[*names, "topic"]), 1)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"The request names {MAX_TOPICS + 1} topics, more than {MAX_TOPICS}.",
    )
    owned = [
        ConsumerGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=list(range(60_000)))
        for _ in range(2)
    ]
    refused = ask(broker, heartbeat("large", 2, topic_partitions=owned), 1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    few = ask(broker, heartbeat("large", 2, topic_partitions=owned[:1]), 1)
    assert few.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described(broker: BrokerStandIn, version: int) -> None:
    """With its members, what they have and are to have."""
    ask(broker, heartbeat(instance_id="i", rack_id="r", server_assignor="range"), 1)
    request = ConsumerGroupDescribeRequest(
        group_ids=["group", "", "ghost"], include_authorized_operations=True
    )
    group, nameless, ghost = ask(broker, request, version).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "range")
    assert (group.group_epoch, group.assignment_epoch) == (2, 2)
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.subscribed_topic_names == ["topic"]
    assert member.member_type == (1 if version else -1)
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name) == (TOPIC_ID, "topic")
        assert topic.partitions == [0, 1, 2, 3]
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert (ghost.error_code, ghost.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group ghost not found.",
    )


def test_groups_of_other_kinds_are_not_described(broker: BrokerStandIn) -> None:
    """Tools then ask DescribeGroups."""
    ask(broker, commit(-1, ""), 9)
    (described,) = ask(broker, ConsumerGroupDescribeRequest(group_ids=["group"]), 1).groups
    assert (described.error_code, described.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group group is not a consumer group.",
    )


def commit(epoch: int, member_id: str, partition: int = 0) -> OffsetCommitRequest:
    offset = OffsetCommitRequestPartition(partition_index=partition, committed_offset=3)
    return OffsetCommitRequest(
        group_id="group",
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="topic", topic_id=TOPIC_ID, partitions=[offset])],
    )


@pytest.mark.parametrize(
    ("epoch", "member_id", "version", "error"),
    [
        (2, "m", 9, ErrorCode.NONE),
        (2, "m", 8, ErrorCode.UNSUPPORTED_VERSION),
        (3, "m", 9, ErrorCode.STALE_MEMBER_EPOCH),
        (1, "m", 9, ErrorCode.STALE_MEMBER_EPOCH),
        (2, "ghost", 9, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_by_member_epoch(
    broker: BrokerStandIn, epoch: int, member_id: str, version: int, error: ErrorCode
) -> None:
    """A member of the group commits in the epoch that it is in."""
    ask(broker, heartbeat(), 1)
    (topic,) = ask(broker, commit(epoch, member_id), version).topics
    assert [one.error_code for one in topic.partitions] == [error]


def test_a_commit_in_an_epoch_that_is_over(broker: BrokerStandIn) -> None:
    """Counts for partitions that the member had then and has still, or is giving up."""
    ask(broker, heartbeat(), 1)
    ask(broker, heartbeat("n"), 1)
    owned = [ConsumerGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
    ask(broker, heartbeat(epoch=2), 1)
    assert ask(broker, heartbeat(epoch=2, topic_partitions=owned), 1).member_epoch == 3
    for partition, error in ((0, ErrorCode.NONE), (2, ErrorCode.STALE_MEMBER_EPOCH)):
        (topic,) = ask(broker, commit(2, "m", partition), 9).topics
        assert topic.partitions[0].error_code == error
    ask(broker, heartbeat("n", 3), 1)
    (topic,) = ask(broker, commit(2, "n", 2), 9).topics
    assert topic.partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("epoch", "member_id", "error"),
    [
        (2, "m", ErrorCode.NONE),
        (-1, None, ErrorCode.NONE),
        (1, "m", ErrorCode.STALE_MEMBER_EPOCH),
        (2, "ghost", ErrorCode.UNKNOWN_MEMBER_ID),
        (2, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("require_stable", [True, False])
def test_fetches_by_member_epoch(
    broker: BrokerStandIn,
    epoch: int,
    member_id: str | None,
    error: ErrorCode,
    require_stable: bool,
) -> None:
    """A member that was fenced does not begin to read."""
    ask(broker, heartbeat(), 1)
    ask(broker, commit(2, "m"), 9)
    group = OffsetFetchRequestGroup(
        group_id="group",
        member_id=member_id,
        member_epoch=epoch,
        topics=[OffsetFetchRequestTopics(name="topic", partition_indexes=[0])],
    )
    request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
    (fetched,) = ask(broker, request, 9).groups
    assert fetched.error_code == error
    if error is ErrorCode.NONE:
        assert fetched.topics[0].partitions[0].committed_offset == 3


@pytest.mark.parametrize(
    ("epoch", "member_id", "error"),
    [
        (2, "m", ErrorCode.NONE),
        (-1, "", ErrorCode.NONE),
        (1, "m", ErrorCode.ILLEGAL_GENERATION),
        (3, "m", ErrorCode.ILLEGAL_GENERATION),
        (2, "ghost", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_within_transactions_by_member_epoch(
    broker: BrokerStandIn, epoch: int, member_id: str, error: ErrorCode
) -> None:
    """Producers know of generations only: a stale epoch is an illegal one to them."""
    ask(broker, heartbeat(), 1)
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="group",
        producer_id=7,
        producer_epoch=0,
        generation_id=epoch,
        member_id=member_id,
        topics=[TxnOffsetCommitRequestTopic(name="topic", partitions=[offset])],
    )
    (topic,) = ask(broker, request, 5).topics
    assert [one.error_code for one in topic.partitions] == [error]


def test_an_answer_waits_for_the_records_behind_it(broker: BrokerStandIn) -> None:
    """Also of requests before: what is not committed may belong to another member after all."""
    broker.replicas.auto_commit = False
    joined = broker.call(heartbeat(), 1)
    assert isinstance(joined, Deferred)
    assert not joined.done
    again = broker.call(
        heartbeat(
            epoch=2,
            subscribed_topic_names=["topic"],
            topic_partitions=[],
            rebalance_timeout_ms=60_000,
        ),
        1,
    )
    assert isinstance(again, Deferred), "it has the member's assignment"
    assert not again.done
    plain: Any = broker.call(heartbeat(epoch=2), 1)
    assert (plain.error_code, plain.assignment) == (ErrorCode.NONE, None)
    partition = broker.coordinator.partition_for("group")
    broker.replicas.commit(TopicPartition(CONSUMER_OFFSETS, partition))
    for answer in (joined, again):
        assert answer.value.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]


def test_an_answer_whose_records_are_not_committed(broker: BrokerStandIn) -> None:
    """In time, or at all: the member asks for its coordinator again."""
    broker.replicas.auto_commit = False
    joined = broker.call(heartbeat(), 1)
    broker.timers.advance(broker.properties.offsets_commit_timeout_ms)
    assert isinstance(joined, Deferred)
    assert joined.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.replicas.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused: Any = broker.call(heartbeat("n"), 1)
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
