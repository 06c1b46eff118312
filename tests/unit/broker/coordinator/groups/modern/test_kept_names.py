"""Equal subscriptions are kept once, in either kind of group."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.modern.kept_names import KeptNames
from tests.unit.broker.coordinator.groups.consumer.consumer_context import ConsumerContext
from tests.unit.broker.coordinator.groups.share.share_context import ShareContext


def test_equal_sets_are_one() -> None:
    """As long as none that differs comes between."""
    kept = KeptNames()
    first, other = frozenset({"a", "b"}), frozenset({"a"})
    assert kept.of(first) is first
    assert kept.of(frozenset({"b", "a"})) is first
    assert kept.of(other) is other
    assert kept.of(frozenset({"b", "a"})) == first


def test_members_of_consumer_groups() -> None:
    """Also those that were read from the log."""
    context = ConsumerContext()
    context.add_topic("topic")
    context.join("a")
    context.join("b")
    for members in (context.consumer_group.members, context.reload().consumer_group.members):
        a, b = members["a"], members["b"]
        assert a.subscribed_topic_names is b.subscribed_topic_names == {"topic"}


def test_members_of_share_groups() -> None:
    """Also those that were read from the log."""
    context = ShareContext()
    context.add_topic("topic")
    context.share_join("a")
    context.share_join("b")
    for members in (context.share_group.members, context.reload().share_group.members):
        a, b = members["a"], members["b"]
        assert a.subscribed_topic_names is b.subscribed_topic_names == {"topic"}
