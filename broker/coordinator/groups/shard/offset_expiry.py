"""Removes expired offsets, and unused groups that have none left, in slices (KIP-211).

A run goes over all groups, topic by topic. What changes between two slices is seen: each slice
looks at the offsets as they are then. Called by `group_shard`, which asks for the next slice once
the records of the one before are committed, and ends the run if they cannot be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftrio.broker.coordinator.groups.group import Group, GroupRegistry
from kraftrio.broker.coordinator.groups.offset_state import OffsetState
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now

# What a slice looks at, and removes, at most; a topic's offsets are never split.
_MAX_LOOKED_AT = 2_000
_MAX_RECORDS = 250


@dataclass(frozen=True, slots=True)
class ExpirySliceStored(FollowUp):
    """The tombstones of a slice were to be stored."""


class OffsetExpiry:
    """See the module.

    Args:
        tombstones: gives the records that remove a group.
    """

    __slots__ = ("_group_ids", "_groups", "_offsets", "_tombstones", "_topics")

    def __init__(
        self,
        groups: GroupRegistry,
        offsets: OffsetState,
        tombstones: Callable[[Group], list[CoordinatorRecord]],
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._tombstones = tombstones
        self._group_ids: list[str] = []  # to be looked at; the last one is in work
        self._topics: list[str] = []  # of the group in work, too

    @property
    def is_done(self) -> bool:
        """Whether the run is over."""
        return not self._group_ids

    def begin(self) -> None:
        """Begin a run over the groups that there are."""
        self._group_ids = [group.group_id for group in self._groups]
        self._group_ids.reverse()
        self._begin_group()

    def end(self) -> None:
        """Give up the run."""
        self._group_ids.clear()

    def _begin_group(self) -> None:
        self._topics.clear()
        if self._group_ids:
            self._topics.extend(self._offsets.newest_of(self._group_ids[-1]))
            self._topics.reverse()

    def next_records(self, now: Now) -> list[CoordinatorRecord]:
        """Give the tombstones of one slice."""
        records: list[CoordinatorRecord] = []
        looked_at = removed_of_group = 0
        while self._group_ids and looked_at < _MAX_LOOKED_AT and len(records) < _MAX_RECORDS:
            group = self._groups.get(self._group_ids[-1])
            looked_at += 1
            if group is not None and self._topics:
                found = self._offsets.expire(group, self._topics[-1], now)
                looked_at += found.looked_at
                room = _MAX_RECORDS - len(records)
                if len(found.records) <= room:
                    self._topics.pop()
                records += found.records[:room]
                removed_of_group += min(len(found.records), room)
                continue
            if group is not None and self._may_go(group, removed_of_group):
                records += self._tombstones(group)
            self._group_ids.pop()
            self._begin_group()
            removed_of_group = 0
        return records

    def _may_go(self, group: Group, removed_count: int) -> bool:
        """Whether a group is unused, and holds nothing but what this slice removes."""
        newest = self._offsets.newest_of(group.group_id)
        return (
            group.is_unused
            and sum(map(len, newest.values())) == removed_count
            and not self._offsets.has_open_transaction(group.group_id)
        )
