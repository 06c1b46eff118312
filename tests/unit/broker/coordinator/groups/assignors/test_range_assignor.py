"""Range: runs of neighbouring partitions, static members first."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.assignors.range_assignor import RangeAssignor
from kraftrio.broker.coordinator.groups.assignors.spec import (
    AssignmentSpec,
    AssignorError,
    MemberSpec,
    TopicSpec,
    text_order,
    topic_id_order,
)

T1, T2 = (bytes(15) + bytes([n]) for n in (1, 2))


def member(*topic_ids: bytes, instance_id: str | None = None) -> MemberSpec:
    """A member that has nothing yet."""
    return MemberSpec(frozenset(topic_ids), {}, instance_id=instance_id)


def test_topics_of_one_size_are_shared_out_alike() -> None:
    """The first members get one more."""
    spec = AssignmentSpec(
        {"b": member(T1, T2), "a": member(T1, T2)}, {T1: TopicSpec(3), T2: TopicSpec(3)}, True
    )
    assert RangeAssignor().assign(spec) == {
        "a": {T1: {0, 1}, T2: {0, 1}},
        "b": {T1: {2}, T2: {2}},
    }


def test_static_members_come_first() -> None:
    """By instance id, whatever their member ids are."""
    spec = AssignmentSpec(
        {"a": member(T1), "c": member(T1, instance_id="i1"), "b": member(T1, instance_id="i2")},
        {T1: TopicSpec(3)},
        True,
    )
    assert RangeAssignor().assign(spec) == {"c": {T1: {0}}, "b": {T1: {1}}, "a": {T1: {2}}}


def test_each_topic_counts_its_own_subscribers() -> None:
    """Who subscribes to less leaves more of it to nobody."""
    spec = AssignmentSpec(
        {"a": member(T1), "b": member(T1, T2), "c": member()},
        {T1: TopicSpec(4), T2: TopicSpec(2)},
        False,
    )
    assert RangeAssignor().assign(spec) == {
        "a": {T1: {0, 1}},
        "b": {T1: {2, 3}, T2: {0, 1}},
        "c": {},
    }


def test_more_members_than_partitions() -> None:
    """The last ones get nothing, and there is nothing to assign in an empty group."""
    spec = AssignmentSpec({"a": member(T1), "b": member(T1)}, {T1: TopicSpec(1)}, True)
    assert RangeAssignor().assign(spec) == {"a": {T1: {0}}, "b": {}}
    assert RangeAssignor().assign(AssignmentSpec({}, {}, True)) == {}


def test_unknown_topic() -> None:
    """Is an error of the whole assignment."""
    with pytest.raises(AssignorError, match="Member is subscribed to a non-existent topic"):
        RangeAssignor().assign(AssignmentSpec({"a": member(T1)}, {}, True))


def test_orders_are_kafkas() -> None:
    """Ids of topics are signed numbers, those of members UTF-16."""
    high, low = b"\x80" + bytes(15), b"\x01" + bytes(15)
    assert sorted([low, high], key=topic_id_order) == [high, low]
    assert sorted(["\uffff", "\U00010000"], key=text_order) == ["\U00010000", "\uffff"]
