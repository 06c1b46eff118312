"""Classic members in consumer groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.classic.joins import Client
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.classic import (
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    encode_subscription,
)
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.unit.broker.coordinator.groups.consumer.consumer_context import (
    ConsumerContext,
    Member,
    settle,
    topic_id_of,
)

TOPIC = topic_id_of("topic")


def subscription(*topics: str, owned: tuple[int, ...] = ()) -> bytes:
    parts = [SubscriptionTopicPartition(topic=topics[0], partitions=list(owned))] if owned else []
    return encode_subscription(
        ConsumerProtocolSubscription(topics=list(topics), owned_partitions=parts)
    )


class ClassicMember:
    """A member of the classic protocol that asks again as often as it is told to."""

    def __init__(
        self, context: ConsumerContext, instance_id: str | None = None, topic: str = "topic"
    ) -> None:
        self.context = context
        self.topic = topic
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.partitions: tuple[int, ...] = ()

    def join(self, **kwargs: Any) -> JoinGroupResponse:
        """Join, with what it owns; with the id that it is given, if it is asked to."""
        request = JoinGroupRequest(
            group_id=self.context.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name="range", metadata=subscription(self.topic, owned=self.partitions)
                )
            ],
        )
        for name, value in kwargs.items():
            setattr(request, name, value)
        client = Client("client", "/127.0.0.1", 9)
        ticket = self.context.ticket()
        requests = self.context.shard.classic_requests
        response = self.context.carry_out(requests.join(request, client, ticket, self.context.now))
        response = response or self.context.replies.get(ticket)
        assert isinstance(response, JoinGroupResponse)
        self.member_id = response.member_id
        if response.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            return self.join()
        self.generation_id = response.generation_id
        return response

    def sync(self) -> tuple[int, ...]:
        """Ask what it has."""
        request = SyncGroupRequest(
            group_id=self.context.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        requests = self.context.shard.classic_requests
        response = self.context.carry_out(
            requests.sync(request, self.context.ticket(), self.context.now)
        )
        assert isinstance(response, SyncGroupResponse)
        topics = decode_assignment(response.assignment).assigned_partitions
        self.partitions = tuple(sorted(p for topic in topics for p in topic.partitions))
        return self.partitions

    def beat(self) -> ErrorCode:
        """Send a heartbeat."""
        request = HeartbeatRequest(
            group_id=self.context.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        requests = self.context.shard.classic_requests
        return ErrorCode(requests.heartbeat(request, self.context.now).error_code)

    def follow(self) -> None:
        """Send a heartbeat, and join again if that is what it says."""
        if self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()


@pytest.fixture
def context() -> ConsumerContext:
    context = ConsumerContext()
    context.add_topic("topic", 4)
    return context


def test_a_classic_member_gets_its_part(context: ConsumerContext) -> None:
    """It is told to join again until the other one has given that up."""
    a, b = Member(context, "a"), ClassicMember(context)
    a.beat()
    response = b.join()
    assert (response.generation_id, response.protocol_name, response.leader) == (3, "range", "")
    assert b.sync() == ()
    assert b.beat() is ErrorCode.NONE  # waits: there is nothing to join for yet
    a.beat()
    a.beat()
    assert b.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    b.join()
    assert b.sync() == (2, 3)
    assert b.beat() is ErrorCode.NONE
    assert a.owned == {TOPIC: {0, 1}}


def test_a_classic_member_gives_up_partitions(context: ConsumerContext) -> None:
    """By joining without them."""
    a, b, c = Member(context, "a"), ClassicMember(context), Member(context, "c")
    a.beat()
    b.join()
    b.sync()
    settle(a, rounds=2)
    b.follow()
    settle(c, rounds=1)
    assert b.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.join().generation_id == 3
    assert b.sync() == (2,)
    assert b.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.join().generation_id == 4
    for _ in range(3):
        settle(a, c, rounds=1)
        b.follow()
    assert sorted([*a.owned[TOPIC], *b.partitions, *c.owned[TOPIC]]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": [JoinGroupRequestProtocol(name="range", metadata=b"\0")]},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refused_joins(context: ConsumerContext, fields: dict[str, Any], error: ErrorCode) -> None:
    """Of other types, without protocols, or with bytes that are no subscription."""
    context.join("a")
    with pytest.raises(KafkaError) as refusal:
        ClassicMember(context).join(member_id="b", **fields)
    assert refusal.value.code is error


def test_the_protocol_must_be_common_to_the_classic_members(context: ConsumerContext) -> None:
    """Whatever those of the consumer protocol are."""
    context.join("a")
    ClassicMember(context).join()
    other = [JoinGroupRequestProtocol(name="sticky", metadata=subscription("topic"))]
    with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL"):
        ClassicMember(context).join(member_id="b", protocols=other)


def test_requests_of_other_members_and_generations(context: ConsumerContext) -> None:
    """A member of the consumer protocol is none of the classic one."""
    context.join("a")
    b = ClassicMember(context)
    b.join()
    b.generation_id += 1
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        b.beat()
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        b.sync()
    b.member_id = "a"
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        b.beat()


def test_a_classic_member_that_does_not_come_is_fenced(context: ConsumerContext) -> None:
    """Its own session time-out counts; and its time to ask for its assignment."""
    a, b = Member(context, "a"), ClassicMember(context)
    a.beat()
    b.join()
    context.advance(9_999)
    assert b.member_id in context.consumer_group.members
    context.advance(1)
    assert b.member_id not in context.consumer_group.members


def test_a_classic_member_that_is_told_to_join_has_its_rebalance_timeout(
    context: ConsumerContext,
) -> None:
    """From the first time on that it was asked to."""
    context.settings.values["consumer.session.timeout.ms"] = 10_000_000
    a, b = Member(context, "a"), ClassicMember(context)
    a.beat()
    b.join()
    b.sync()
    settle(a)
    for _ in range(8):
        assert b.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        context.advance(7_000)
    assert b.member_id in context.consumer_group.members
    b.beat()
    context.advance(4_000)
    assert b.member_id not in context.consumer_group.members


def test_members_leave_a_consumer_group_by_leave_group(context: ConsumerContext) -> None:
    """As administrators remove them: static ones by their instance id, of either protocol."""
    context.join("a", instance_id="i")
    context.join("b")
    b = ClassicMember(context)
    b.join()
    outcome = context.shard.classic_requests.leave(
        context.group_id,
        [
            MemberIdentity(member_id="", group_instance_id="i"),
            MemberIdentity(member_id=b.member_id),
            MemberIdentity(member_id="ghost"),
            MemberIdentity(member_id="wrong", group_instance_id="i"),
        ],
        context.now,
    )
    response = context.carry_out(outcome)
    assert [one.error_code for one in response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert list(context.consumer_group.members) == ["b"]


def test_a_static_classic_member_that_comes_back(context: ConsumerContext) -> None:
    """It takes the place of what it was, and keeps its partitions."""
    a, b = Member(context, "a"), ClassicMember(context, "i")
    a.beat()
    b.join()
    b.sync()
    settle(a, rounds=2)
    b.follow()
    had = b.partitions
    back = ClassicMember(context, "i")
    back.join()
    assert back.member_id != b.member_id
    assert back.sync() == had
    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
        b.beat()
