"""Uniform: balance first, then what members have."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.assignors.spec import (
    Assignment,
    AssignmentSpec,
    AssignorError,
    MemberSpec,
    TopicSpec,
)
from kraftrio.broker.coordinator.groups.assignors.uniform_assignor import UniformAssignor

T1, T2, T3 = (bytes(15) + bytes([n]) for n in (1, 2, 3))
GROUPS = {"same": {"a": {T1, T2}, "b": {T1, T2}, "c": {T1, T2}}}
GROUPS["mixed"] = {"a": {T1, T2}, "b": {T1}, "c": {T2, T3}}


def assign(
    subscriptions: dict[str, set[bytes]], topics: dict[bytes, int], before: Assignment
) -> Assignment:
    """Compute a new target."""
    members = {
        member_id: MemberSpec(frozenset(topic_ids), before.get(member_id, {}))
        for member_id, topic_ids in subscriptions.items()
    }
    alike = len(set(map(frozenset, subscriptions.values()))) == 1
    spec = AssignmentSpec(members, {one: TopicSpec(count) for one, count in topics.items()}, alike)
    return UniformAssignor().assign(spec)


def counts(assignment: Assignment) -> list[int]:
    """How many partitions each member has."""
    return [sum(map(len, member.values())) for member in assignment.values()]


@pytest.mark.parametrize("kind", GROUPS)
def test_everything_is_assigned_once_and_evenly(kind: str) -> None:
    """And computing it again moves nothing: each member's part is the very same object."""
    topics = {T1: 7, T2: 5, T3: 2} if kind == "mixed" else {T1: 7, T2: 5}
    first = assign(GROUPS[kind], topics, {})
    given = [
        (topic_id, partition)
        for member in first.values()
        for topic_id, partitions in member.items()
        for partition in partitions
    ]
    assert sorted(given) == [(one, n) for one, count in topics.items() for n in range(count)]
    assert max(counts(first)) - min(counts(first)) <= 1
    again = assign(GROUPS[kind], topics, first)
    assert all(again[member_id] is first[member_id] for member_id in first)


def test_only_what_must_move_moves() -> None:
    """A member that joins gets what the others have too much of, and no more changes hands."""
    topics = {T1: 6, T2: 6}
    before = assign(GROUPS["same"], topics, {})
    after = assign({**GROUPS["same"], "d": {T1, T2}}, topics, before)
    assert counts(after) == [3, 3, 3, 3]
    for member_id, partitions in before.items():
        for topic_id, kept in after[member_id].items():
            assert kept <= partitions[topic_id]


def test_what_a_member_dropped_goes_to_others() -> None:
    """Of a topic that it does not subscribe to any more it keeps nothing."""
    before = assign(GROUPS["same"], {T1: 3, T2: 3}, {})
    after = assign({"a": {T1}, "b": {T1, T2}, "c": {T1, T2}}, {T1: 3, T2: 3}, before)
    assert T2 not in after["a"]
    assert after["b"][T2] | after["c"][T2] == {0, 1, 2}


def test_without_topics() -> None:
    """Nobody gets anything, and an empty group has no members to give to."""
    assert assign({"a": set(), "b": set()}, {}, {"a": {T1: frozenset({0})}}) == {}
    assert UniformAssignor().assign(AssignmentSpec({}, {}, True)) == {}


@pytest.mark.parametrize("kind", GROUPS)
def test_unknown_topic(kind: str) -> None:
    """Is an error of the whole assignment, with the topic's id."""
    with pytest.raises(AssignorError, match="topic AAAAAAAAAAAAAAAAAAAAAg which doesn't exist"):
        assign(GROUPS[kind], {T1: 1, T3: 1}, {})


@pytest.mark.parametrize("kind", ["same", "mixed"])
def test_order_of_the_mappings_counts_nothing(kind: str) -> None:
    """So that a group that was loaded from its log is assigned as it was before."""
    topics = {T1: 7, T2: 5, T3: 2}
    backwards = dict(reversed(GROUPS[kind].items()))
    assert assign(backwards, topics, {}) == assign(GROUPS[kind], topics, {})
