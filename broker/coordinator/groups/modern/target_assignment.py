"""The target assignment of a group: what its members are to have, once they have reconciled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now

NOTHING: Final[MemberAssignment] = {}

DELETED_EPOCH = -1
"""The epoch of a target that was deleted."""

P = TypeVar("P")


class TargetRecords(NamedTuple, Generic[P]):
    """How a kind of group stores its targets.

    Attributes:
        part: makes the record of a member's part, from the ids of group and member.
        epoch: makes the record that completes a target, from the group's id, the epoch, the time.
    """

    part: Callable[[str, str, P], CoordinatorRecord]
    epoch: Callable[[str, int, int], CoordinatorRecord]


@dataclass(slots=True)
class TargetAssignment(Generic[P]):
    """The target of one group; a member's part is a `P`.

    Attributes:
        nothing: the part of a member that is to have nothing.
        epoch: the group epoch that it was computed for.
        timestamp_ms: when; 0: unknown.
        members: by member id.
    """

    nothing: P
    epoch: int = 0
    timestamp_ms: int = 0
    members: dict[str, P] = field(default_factory=dict)

    def of(self, member_id: str) -> P:
        """What a member is to have."""
        return self.members.get(member_id, self.nothing)

    def may_be_computed(self, interval_ms: int, now: Now) -> bool:
        """Whether the next one may be computed already, that long after this one (KIP-1263).

        A wall clock that was set back does not count.
        """
        if not self.timestamp_ms or not interval_ms:
            return True
        passed_ms = now.wall_ms - self.timestamp_ms
        return passed_ms >= interval_ms or passed_ms < 0

    def changes_to(self, target: Mapping[str, P], member_ids: Iterable[str]) -> dict[str, P]:
        """What has to be stored of the next one: the parts that differ from this one's."""
        changed = {}
        for member_id in member_ids:
            part = target.get(member_id, self.nothing)
            if member_id not in self.members or self.members[member_id] != part:
                changed[member_id] = part
        return changed

    def records_to(
        self,
        target: Mapping[str, P],
        member_ids: Iterable[str],
        make: TargetRecords[P],
        group_id: str,
        epoch: int,
        now: Now,
    ) -> list[CoordinatorRecord]:
        """Make the records that turn this one into the next.

        Args:
            member_ids: of all members, in the order of the records.
            epoch: of the group, with the next one.
        """
        changes = self.changes_to(target, member_ids)
        records = [make.part(group_id, member_id, part) for member_id, part in changes.items()]
        records.append(make.epoch(group_id, epoch, now.wall_ms))
        return records
