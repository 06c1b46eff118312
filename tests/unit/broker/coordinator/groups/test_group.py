"""The registry of a shard's groups of all kinds."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.group import Group, GroupRegistry


class OtherGroup(ClassicGroup):
    """A group of another kind; what it does is no matter."""


def test_groups_are_found_by_id_and_kind() -> None:
    """An id has one group; a request for another kind finds none."""
    registry = GroupRegistry()
    classic, other = ClassicGroup("a", 0), OtherGroup("b", 0)
    for group in (classic, other):
        registry.add(group)
    found: list[Group] = list(registry)
    assert found == [classic, other]
    assert (registry.get("a"), registry.get("b"), registry.get("c")) == (classic, other, None)
    assert registry.find("a", OtherGroup) is None
    assert registry.find("b", OtherGroup) is other
    assert registry.all_of(OtherGroup) == [other]
    registry.remove("a")
    registry.remove("a")
    assert list(registry) == [other]


def test_an_id_belongs_to_one_group() -> None:
    """A second one under the same id is our bug."""
    registry = GroupRegistry()
    registry.add(ClassicGroup("a", 0))
    with pytest.raises(AssertionError):
        registry.add(OtherGroup("a", 0))
