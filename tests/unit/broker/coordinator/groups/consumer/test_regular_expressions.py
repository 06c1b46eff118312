"""Regular expressions of consumer groups: when they are looked up, and what follows."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_context import (
    ConsumerContext,
    assigned,
    topic_id_of,
)


@pytest.fixture
def context() -> ConsumerContext:
    context = ConsumerContext()
    for name in ("red-1", "red-2", "blue-1"):
        context.add_topic(name)
    return context


def topics_of(context: ConsumerContext) -> set[str]:
    return set(context.consumer_group.subscriptions.topics())


def test_what_matches_is_found_beside_the_requests(context: ConsumerContext) -> None:
    """The first answer gives nothing; the heartbeat after the look-up does."""
    response = context.join("a", topics=None, subscribed_topic_regex="red-.*")
    assert assigned(response) == {}
    context.advance(10)
    assert topics_of(context) == {"red-1", "red-2"}
    response = context.beat("a", response.member_epoch)
    assert assigned(response) == {topic_id_of("red-1"): {0}, topic_id_of("red-2"): {0}}


def test_a_new_topic_is_found_by_a_heartbeat(context: ConsumerContext) -> None:
    """No sooner than 10 s after the last look-up."""
    context.join("a", topics=None, subscribed_topic_regex="red-.*")
    context.advance(10)
    epoch = context.beat("a", 1).member_epoch
    context.add_topic("red-3")
    context.beat("a", epoch)
    context.advance(10)
    assert topics_of(context) == {"red-1", "red-2"}
    context.advance(10_000)
    context.beat("a", epoch)
    context.advance(10)
    assert topics_of(context) == {"red-1", "red-2", "red-3"}


def test_a_deleted_topic_is_not_found_any_more(context: ConsumerContext) -> None:
    """Once the interval has passed; its partitions are taken away before."""
    context.settings.values["consumer.session.timeout.ms"] = 10_000_000
    context.join("a", topics=None, subscribed_topic_regex="red-.*")
    context.advance(10)
    epoch = context.beat("a", 1).member_epoch
    context.remove_topic("red-2")
    response = context.beat("a", epoch, owned={topic_id_of("red-1"): {0}})
    assert assigned(response) == {topic_id_of("red-1"): {0}}
    context.advance(600_001)
    context.beat("a", response.member_epoch)
    context.advance(10)
    assert topics_of(context) == {"red-1"}


def test_topics_that_the_client_may_not_describe_do_not_match(context: ConsumerContext) -> None:
    """It must not learn of them."""
    context.join(
        "a", topics=None, subscribed_topic_regex=".*", may_describe=lambda name: name != "red-2"
    )
    context.advance(10)
    assert topics_of(context) == {"red-1", "blue-1"}


def test_an_expression_goes_with_its_last_member(context: ConsumerContext) -> None:
    """Also when that member changes to another one."""
    for member in ("a", "b"):
        context.join(member, topics=None, subscribed_topic_regex="red-.*")
    context.advance(10)
    context.beat("a", -1)
    assert set(context.consumer_group.subscriptions.resolved) == {"red-.*"}
    epoch = context.consumer_group.members["b"].member_epoch
    context.beat("b", epoch, subscribed_topic_regex="", topics=["blue-1"])
    assert context.consumer_group.subscriptions.resolved == {}
    assert topics_of(context) == {"blue-1"}
    expected = TopicHashes(context.metadata).of_group(["blue-1"])
    assert context.consumer_group.metadata_hash == expected


def test_an_expression_that_is_none_is_refused(context: ConsumerContext) -> None:
    """And nothing is left of the request."""
    code, message = context.refused(
        "a", 0, owned={}, rebalance_timeout_ms=1, subscribed_topic_regex="red-(.*"
    )
    assert code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert message is not None
    assert message.startswith("SubscribedTopicRegex `red-(.*` is not a valid regular expression: ")
    assert context.state == "absent"


def test_a_look_up_of_many_topics_takes_several_turns(context: ConsumerContext) -> None:
    """A member that has left meanwhile gets no record."""
    for index in range(1_200):
        context.add_topic(f"green-{index}")
    context.join("a", topics=None, subscribed_topic_regex="green-.*")
    context.advance(1)
    assert context.consumer_group.subscriptions.resolved == {}
    context.advance(10)
    assert len(topics_of(context)) == 1_200
    context.join("b", topics=None, subscribed_topic_regex="blue-.*")
    context.advance(10_001)
    context.join("c", topics=None, subscribed_topic_regex="red-.*")
    context.beat("c", -1)
    context.advance(10)
    assert set(context.consumer_group.subscriptions.resolved) == {"green-.*", "blue-.*"}
