"""Consumer groups (KIP-848): who owns what at which epoch, and what each mistake is answered."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import DeleteTopicsRequest
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatTopicPartitions,
    DeleteGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import create_topic, wait_for_coordinator
from tests.conformance.cases.consumer_member import LEAVES_AS_STATIC, ConsumerMember, settle
from tests.conformance.cases.members import Member, subscription
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
PARTITIONS = 6

MakeMember = Callable[..., ConsumerMember]


@pytest.fixture(scope="module", autouse=True)
def coordinator(broker: Broker) -> None:
    """Have the offsets topic before the first heartbeat."""
    with RawClient(broker.address) as client:
        wait_for_coordinator(client)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic of six partitions."""
    return new_topic(partitions=PARTITIONS)


@pytest.fixture
def member(client: RawClient, unique_group: Callable[[], str], topic: str) -> MakeMember:
    """Make members of one group; each has an id of its own."""
    group = unique_group()
    return lambda **fields: ConsumerMember(client, group, [topic], **fields)


# Owners


def test_owned_partitions_cannot_be_told_when_joining(member: MakeMember, topic: str) -> None:
    """Who joins owns nothing; and it must say so."""
    owned = [ConsumerGroupHeartbeatTopicPartitions(topic_id=bytes(15) + b"x", partitions=[0])]
    for partitions in (None, owned):
        response = member().join(topic_partitions=partitions)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        wanted = "TopicPartitions must be empty when (re-)joining."
        assert response.error_message == wanted


def test_a_partition_is_given_once_its_owner_let_it_go(member: MakeMember) -> None:
    """Until then its next owner waits, and the owner stays at its epoch."""
    first, second = member(), member()
    first.join()
    settle(first, partitions=PARTITIONS)
    epoch = first.epoch
    second.join()
    deadline = time.monotonic() + 20
    while first.count == PARTITIONS:  # an answer says what to revoke, once the target is computed
        assert first.heartbeat().error_code == NONE
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (first.count, first.epoch) == (PARTITIONS // 2, epoch)
    for _ in range(3):
        assert second.heartbeat().error_code == NONE
        assert second.count == 0
        assert first.heartbeat().member_epoch == epoch
    settle(first, second, partitions=PARTITIONS)
    assert (first.count, second.count) == (PARTITIONS // 2, PARTITIONS // 2)
    assert first.epoch > epoch


def test_a_static_member_keeps_what_it_has_over_a_restart(member: MakeMember) -> None:
    """Its partitions wait for it, and come back at the epoch of the group; others keep theirs."""
    first, second = member(instance="one"), member(instance="two")
    first.join()
    second.join()
    settle(first, second, partitions=PARTITIONS)
    owned = first.assigned
    assert first.leave(LEAVES_AS_STATIC).error_code == NONE
    again = member(instance="one")
    assert again.join().error_code == NONE
    assert again.assigned == owned
    assert second.heartbeat().assignment is None
    settle(again, second, partitions=PARTITIONS)
    assert again.assigned == owned
    assert first.heartbeat(member_epoch=again.epoch).error_code in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    )


def test_an_instance_that_is_there_is_not_replaced(member: MakeMember) -> None:
    """Two consumers of one instance id: the later one is refused while the other is a member."""
    member(instance="one").join()
    response = member(instance="one").join()
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID


# Epochs


def test_epochs_of_commits_and_fetches(member: MakeMember, topic: str) -> None:
    """An epoch that is over is stale; a member that is not known is told so."""
    first = member()
    first.join()
    settle(first, partitions=PARTITIONS)
    assert first.commit_code(topic) == NONE
    assert first.fetch_code(topic) == NONE
    for epoch in (first.epoch - 1, first.epoch + 1):
        assert first.commit_code(topic, epoch) == ErrorCode.STALE_MEMBER_EPOCH
        assert first.fetch_code(topic, epoch) == ErrorCode.STALE_MEMBER_EPOCH
    stranger = member(epoch=first.epoch)
    assert stranger.commit_code(topic) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.fetch_code(topic) == ErrorCode.UNKNOWN_MEMBER_ID
    # Before version 9 clients know of no epochs.
    assert first.commit_code(topic, first.epoch + 1, version=8) == ErrorCode.UNSUPPORTED_VERSION


def test_epochs_of_heartbeats(member: MakeMember) -> None:
    """Epochs that were never given, and older ones with other partitions, are fenced."""
    first = member()
    first.join()
    settle(first, partitions=PARTITIONS)
    response = first.heartbeat(member_epoch=first.epoch + 1)
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert response.error_message == (
        f"The consumer group member has a greater member epoch ({first.epoch + 1}) than the one"
        f" known by the group coordinator ({first.epoch}). The member must abandon all its"
        " partitions and rejoin."
    )
    assert first.heartbeat().error_code == NONE
    stranger = member(epoch=1)
    assert stranger.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Requests


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (
            {"rebalance_timeout_ms": -1},
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"subscribed_topic_names": None},
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining.",
        ),
        (
            {"server_assignor": "sticky"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
        (
            {"subscribed_topic_names": None, "subscribed_topic_regex": "a{2,1}["},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `a{2,1}[` is not a valid regular expression: invalid repeat"
            " count.",
        ),
        (
            {"subscribed_topic_names": None, "subscribed_topic_regex": "(a"},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing ).",
        ),
    ],
)
def test_refused_joins(
    member: MakeMember, fields: dict[str, object], code: ErrorCode, message: str
) -> None:
    """With Kafka's code and sentence, and without a group left behind."""
    one = member()
    response = one.join(**fields)
    assert (response.error_code, response.error_message) == (code, message)
    listed = one.client.call(ListGroupsRequest(), 5).groups
    assert one.group not in [group.group_id for group in listed]


def test_groups_of_the_other_protocol(member: MakeMember, topic: str) -> None:
    """A classic member whose protocols are not a consumer's cannot join, nor the other way."""
    first = member()
    first.join()
    foreign = Member(first.client, first.group, protocol_type="connect")
    foreign.protocols = (("default", b""),)
    assert foreign.try_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    classic = Member(first.client, f"{first.group}-connect", protocol_type="connect")
    classic.protocols = (("default", b""),)
    classic.join()
    newcomer = member()
    newcomer.group = classic.group
    assert newcomer.join().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_broker_names_members_as_java_does(member: MakeMember, topic: str) -> None:
    """A uuid in base64 that no tool takes for an option: of old clients, and of classic ones."""
    one = member(member_id="")
    named = one.join(version=0)
    classic = Member(one.client, one.group)
    classic.protocols = (("range", subscription(topic)),)
    classic.get_member_id()
    for member_id in (named.member_id, classic.member_id):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", member_id or "")


def test_patterns_are_resolved_by_the_broker(
    member: MakeMember, client: RawClient, topic: str
) -> None:
    """A member gets the partitions of the topics that match as a whole."""
    create_topic(client, f"{topic}-not", partitions=1)
    first = member()
    first.join(subscribed_topic_names=None, subscribed_topic_regex=f"(?i){topic.upper()}|no.such")
    settle(first, partitions=PARTITIONS)
    assert len(first.assigned) == 1


# Administration


def test_listed_and_deleted(member: MakeMember, client: RawClient) -> None:
    """With its kind and state, under any case of them; deleted once it is empty."""
    first = member()
    first.join()
    settle(first, partitions=PARTITIONS)

    def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str]]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        return [
            (one.protocol_type, one.group_state, one.group_type)
            for one in client.call(request, 5).groups
            if one.group_id == first.group
        ]

    assert listed([], []) == [("consumer", "Stable", "consumer")]
    assert listed([" STABLE "], ["Consumer", "share"]) == [("consumer", "Stable", "consumer")]
    assert listed(["Empty", "assigning"], []) == listed([], ["classic"]) == []
    assert listed([], ["no such"]) == listed(["no such"], []) == []

    def delete() -> ErrorCode:
        response = client.call(DeleteGroupsRequest(groups_names=[first.group]), 2)
        return ErrorCode(response.results[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    assert first.leave().error_code == NONE
    assert listed(["Empty"], ["consumer"]) == [("consumer", "Empty", "consumer")]
    assert delete() == NONE
    assert listed([], []) == []
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_go_with_their_topic(
    member: MakeMember, client: RawClient, new_topic: Callable[..., str], topic: str
) -> None:
    """A topic that is made again under the name begins without commits."""
    first = member()
    first.join()
    settle(first, partitions=PARTITIONS)
    assert first.commit_code(topic, offset=100) == NONE
    client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    group = OffsetFetchRequestGroup(
        group_id=first.group,
        topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    deadline = time.monotonic() + 20
    while True:
        (found,) = client.call(OffsetFetchRequest(groups=[group]), 8).groups
        if found.topics[0].partitions[0].committed_offset == -1:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    create_topic(client, topic, partitions=PARTITIONS)
    (found,) = client.call(OffsetFetchRequest(groups=[group]), 8).groups
    assert found.topics[0].partitions[0].committed_offset == -1
