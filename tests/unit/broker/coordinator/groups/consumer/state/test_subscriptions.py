"""What the members of a group subscribe to, counted."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember
from kraftrio.broker.coordinator.groups.consumer.state.subscriptions import (
    ResolvedRegex,
    Subscriptions,
)


def member(*names: str, regex: str = "") -> ConsumerMember:
    return ConsumerMember(
        "m", subscribed_topic_names=frozenset(names), subscribed_topic_regex=regex
    )


def test_topics_count_as_long_as_anyone_subscribes() -> None:
    """By name or by an expression; a copy does not change what it is of."""
    subscriptions = Subscriptions()
    a, b = member("x", "y"), member("y", regex="z.*")
    subscriptions.replace(None, a)
    subscriptions.replace(None, b)
    subscriptions.resolve("z.*", ResolvedRegex(frozenset({"z1"}), 5, 1_000))
    assert set(subscriptions.topics()) == {"x", "y", "z1"}
    assert subscriptions.topics_of(b) == {"y", "z1"}
    copied = subscriptions.copy()
    copied.replace(b, None)
    assert copied.drop_unused() == ["z.*"]
    assert set(copied.topics()) == {"x", "y"}
    copied.replace(a, member("y"))
    assert set(copied.topics()) == {"y"}
    assert set(subscriptions.topics()) == {"x", "y", "z1"}


def test_all_subscribe_to_the_same() -> None:
    """By name all to the same names, or all to one expression."""
    subscriptions = Subscriptions()
    assert subscriptions.is_homogeneous(0)
    subscriptions.replace(None, member("x"))
    assert subscriptions.is_homogeneous(1)
    subscriptions.replace(None, member("x", "y"))
    assert not subscriptions.is_homogeneous(2)
    by_regex = Subscriptions()
    by_regex.replace(None, member(regex="x.*"))
    by_regex.replace(None, member(regex="x.*"))
    by_regex.resolve("x.*", ResolvedRegex(frozenset({"x1"}), 5, 1_000))
    assert by_regex.is_homogeneous(2)
    by_regex.replace(None, member("x1"))
    assert not by_regex.is_homogeneous(3)
