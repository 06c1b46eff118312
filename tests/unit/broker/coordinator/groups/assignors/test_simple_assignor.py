"""Simple: partitions are shared by as many members as it takes to give each of them one."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.assignors.simple_assignor import SimpleAssignor
from kraftrio.broker.coordinator.groups.assignors.spec import (
    Assignment,
    AssignmentSpec,
    MemberSpec,
    TopicSpec,
)

T1, T2 = (bytes(15) + bytes([n]) for n in (1, 2))


def assign(
    subscriptions: dict[str, set[bytes]],
    topics: dict[bytes, int],
    before: Assignment,
    assignable: dict[bytes, frozenset[int]] | None = None,
) -> Assignment:
    """Compute a new target."""
    members = {
        member_id: MemberSpec(frozenset(topic_ids), before.get(member_id, {}))
        for member_id, topic_ids in subscriptions.items()
    }
    alike = len(set(map(frozenset, subscriptions.values()))) == 1
    specs = {topic_id: TopicSpec(count) for topic_id, count in topics.items()}
    return SimpleAssignor().assign(AssignmentSpec(members, specs, alike, assignable))


def test_more_members_than_partitions() -> None:
    """Each has one, and each partition equally many: whoever it takes for that has one more."""
    assignment = assign({name: {T1} for name in "abcde"}, {T1: 2}, {})
    assert sorted(len(member[T1]) for member in assignment.values()) == [1, 1, 1, 1, 2]
    for partition in (0, 1):
        assert sum(partition in member[T1] for member in assignment.values()) == 3


def test_more_partitions_than_members() -> None:
    """Each partition has one member, and what is there stays."""
    before = assign({"a": {T1}, "b": {T1}}, {T1: 5}, {})
    assert sorted(len(member[T1]) for member in before.values()) == [2, 3]
    after = assign({"a": {T1}, "b": {T1}}, {T1: 5}, before)
    assert all(after[name] is before[name] for name in "ab")


def test_topics_by_themselves() -> None:
    """Where members subscribe to different topics, each topic's partitions are spread alone."""
    assignment = assign({"a": {T1, T2}, "b": {T2}}, {T1: 2, T2: 2}, {})
    assert assignment == {"a": {T1: {0, 1}, T2: {0}}, "b": {T2: {1}}}


def test_only_what_is_assignable() -> None:
    """What is not initialized yet is nobody's; what ceased to be is taken."""
    allowed = {T1: frozenset({1, 2})}
    members = {"a": {T1}, "b": {T1}}
    assert assign(members, {T1: 4}, {}, allowed) == {"a": {T1: {1}}, "b": {T1: {2}}}
    assert assign(members, {T1: 4, T2: 1}, {}, {}) == {"a": {}, "b": {}}
    before = {"a": {T1: frozenset({0, 3})}, "b": {T1: frozenset({1})}}
    after = assign({**members, "c": {T1}}, {T1: 4}, before, allowed)
    assert {0, 3} & set(after["c"].get(T1, ())) == set()


def test_topics_without_subscribers() -> None:
    """Are taken from those who have them, whatever the others subscribe to."""
    before = {"a": {T1: frozenset({0})}, "b": {T1: frozenset({1})}}
    after = assign({"a": {T2}, "b": set()}, {T1: 2, T2: 1}, before)
    assert after == {"a": {T2: {0}}, "b": {}}
    assert assign({"a": set(), "b": set()}, {T1: 2}, before) == {}
