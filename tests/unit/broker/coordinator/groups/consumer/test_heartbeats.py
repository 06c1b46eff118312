"""Heartbeats of consumer groups: joins, steps to the target, static members, leaving."""

from __future__ import annotations

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_context import (
    ConsumerContext,
    Member,
    assigned,
    settle,
    topic_id_of,
)

TOPIC = topic_id_of("topic")


@pytest.fixture
def context() -> ConsumerContext:
    context = ConsumerContext()
    context.add_topic("topic", 4)
    return context


def test_the_first_member_gets_everything(context: ConsumerContext) -> None:
    """At once: nobody has to give anything up."""
    response = context.join("a")
    assert (response.member_id, response.member_epoch) == ("a", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert assigned(response) == {TOPIC: {0, 1, 2, 3}}
    assert context.state == "Stable"


def test_partitions_move_once_they_are_given_up(context: ConsumerContext) -> None:
    """The new member waits for them, and the old one stays in its epoch until then."""
    a, b = Member(context, "a"), Member(context, "b")
    a.beat()
    b.beat()
    assert (b.epoch, b.owned) == (3, {})
    assert context.state == "Reconciling"
    a.beat()
    assert (a.epoch, a.owned) == (2, {TOPIC: {0, 1}})
    b.beat()
    assert b.owned == {}
    a.beat()
    assert (a.epoch, a.owned) == (3, {TOPIC: {0, 1}})
    b.beat()
    assert (b.epoch, b.owned) == (3, {TOPIC: {2, 3}})
    assert context.state == "Stable"


def test_a_heartbeat_that_changes_nothing_appends_nothing(context: ConsumerContext) -> None:
    """And has no assignment."""
    context.join("a")
    logged = len(context.log)
    response = context.beat("a", 2)
    assert (response.member_epoch, response.assignment) == (2, None)
    assert response.heartbeat_interval_ms == 5_000
    assert len(context.log) == logged


def test_a_full_request_is_answered_with_the_assignment(context: ConsumerContext) -> None:
    """As a client sends it that has lost an answer."""
    context.join("a")
    response = context.beat(
        "a", 2, topics=["topic"], owned={TOPIC: {0}}, rebalance_timeout_ms=60_000
    )
    assert assigned(response) == {TOPIC: {0, 1, 2, 3}}


def test_the_broker_makes_the_id_in_version_0(context: ConsumerContext) -> None:
    """Since version 1 the client does, and an empty one is refused."""
    assert context.join("", api_version=0).member_id == "id1"
    assert context.refused("", 0, topics=["topic"], owned={}, rebalance_timeout_ms=1) == (
        ErrorCode.INVALID_REQUEST,
        "MemberId can't be empty.",
    )


def test_a_member_whose_session_ends_is_fenced(context: ConsumerContext) -> None:
    """Its partitions go to the others with their next heartbeats."""
    a, b = Member(context, "a"), Member(context, "b")
    settle(a, b)
    context.advance(30_000)
    b.beat()
    context.advance(20_000)
    assert list(context.consumer_group.members) == ["b"]
    settle(b)
    assert b.owned == {TOPIC: {0, 1, 2, 3}}
    a.beat()
    assert a.errors == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_who_does_not_give_up_partitions_in_time_is_fenced(context: ConsumerContext) -> None:
    """Though it sends heartbeats, with what it still owns."""
    context.settings.values["consumer.session.timeout.ms"] = 1_000_000
    a, b = Member(context, "a"), Member(context, "b")
    a.beat()
    b.beat()
    response = context.beat("a", 2)
    assert assigned(response) == {TOPIC: {0, 1}}
    context.advance(59_999)
    context.beat("a", 2, owned={TOPIC: {0, 1, 2, 3}})
    assert set(context.consumer_group.members) == {"a", "b"}
    context.advance(1)
    assert set(context.consumer_group.members) == {"b"}


def test_who_was_not_told_to_give_up_partitions_is_not_fenced_for_it(
    context: ConsumerContext,
) -> None:
    """As the record of that could not be appended, and then the other member had left."""
    context.settings.values["consumer.session.timeout.ms"] = 1_000_000
    a, b = Member(context, "a"), Member(context, "b")
    a.beat()
    b.beat()
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    context.beat("a", 2)
    context.append_error = ErrorCode.NONE
    b.leave()
    context.advance(60_000)
    assert set(context.consumer_group.members) == {"a"}


def test_topics_are_looked_at_again_if_that_could_not_be_stored(context: ConsumerContext) -> None:
    """The new partitions are assigned with the heartbeat after that."""
    a = Member(context, "a")
    a.beat()
    context.add_topic("topic", 6, first=4)
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    context.beat("a", 2)
    context.append_error = ErrorCode.NONE
    a.beat()
    assert a.owned == {TOPIC: {0, 1, 2, 3, 4, 5}}


def test_a_static_member_that_comes_back_keeps_what_it_had(context: ConsumerContext) -> None:
    """Under another id, and the others are not disturbed; the former id is fenced."""
    a, b = Member(context, "a", instance_id="i"), Member(context, "b")
    settle(a, b)
    had, epoch = a.owned, context.consumer_group.epoch
    a.leave(-2)
    assert context.consumer_group.members["a"].member_epoch == -2
    back = Member(context, "a2", instance_id="i")
    settle(back, b)
    assert (back.owned, context.consumer_group.epoch) == (had, epoch)
    assert set(context.consumer_group.members) == {"a2", "b"}
    assert context.refused("a", epoch, instance_id="i")[0] is ErrorCode.FENCED_INSTANCE_ID


def test_the_instance_id_of_a_member_that_lives_is_not_released(context: ConsumerContext) -> None:
    """Two processes with one instance id do not take it from each other."""
    context.join("a", instance_id="i")
    assert context.refused(
        "b", 0, topics=["topic"], owned={}, rebalance_timeout_ms=1, instance_id="i"
    ) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member b with instance id i cannot join the group because the instance id is "
        "owned by a member.",
    )


def test_a_member_that_leaves_is_gone_at_once(context: ConsumerContext) -> None:
    """The others get its partitions."""
    a, b = Member(context, "a"), Member(context, "b")
    settle(a, b)
    a.leave()
    settle(b)
    assert b.owned == {TOPIC: {0, 1, 2, 3}}
    b.leave()
    assert context.state == "Empty"


def test_new_partitions_are_assigned_with_the_next_heartbeat(context: ConsumerContext) -> None:
    """Of a topic that grows, is made, or is deleted."""
    a = Member(context, "a", topics=("topic", "later"))
    a.beat()
    context.add_topic("topic", 6, first=4)
    a.beat()
    assert a.owned == {TOPIC: {0, 1, 2, 3, 4, 5}}
    context.add_topic("later", 1)
    a.beat()
    assert a.owned[topic_id_of("later")] == {0}
    context.remove_topic("topic")
    settle(a, rounds=2)
    assert a.owned == {topic_id_of("later"): {0}}


def test_assignments_are_computed_no_sooner_than_the_interval_allows(
    context: ConsumerContext,
) -> None:
    """Who joins meanwhile is in the group, and gets its part with a later heartbeat (KIP-1263)."""
    context.settings.values["consumer.assignment.interval.ms"] = 1_000
    a, b = Member(context, "a"), Member(context, "b")
    a.beat()
    b.beat()
    assert (b.epoch, context.state) == (2, "Assigning")
    context.advance(999)
    settle(a, b)
    assert a.owned == {TOPIC: {0, 1, 2, 3}}
    context.advance(1)
    settle(a, b)
    assert (len(a.partitions), len(b.partitions)) == (2, 2)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_coordinator_that_knows_fewer_partitions(context: ConsumerContext, assignor: str) -> None:
    """The one before knew of newer metadata; what is not known here is not assigned."""
    older = context.metadata.image
    context.add_topic("topic", 6, first=4)
    a = Member(context, "a", topics=("topic", "later"))
    a.beat()
    assert a.owned == {TOPIC: {0, 1, 2, 3, 4, 5}}
    context.metadata.image = older
    response = context.join("b", server_assignor=assignor)
    assert response.error_code == ErrorCode.NONE
    targets = context.consumer_group.target.members
    assert targets["a"][TOPIC] | targets["b"][TOPIC] == {0, 1, 2, 3}


def test_the_state_after_a_failover_is_the_one_before(context: ConsumerContext) -> None:
    """Sessions begin again."""
    a, b = Member(context, "a"), Member(context, "b")
    settle(a, b)
    other = ConsumerContext(context.properties, metadata=context.metadata)
    for offset, (key, value) in enumerate(context.log):
        other.shard.replay(offset, key, value, context.now)
    other.carry_out(other.shard.on_loaded(other.now))
    assert repr(other.consumer_group) == repr(context.consumer_group)
    assert other.consumer_group.members == context.consumer_group.members
    other.advance(45_000)
    assert other.state == "Empty"
