"""The target assignment of a group: what its members are to have, once they have reconciled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftrio.broker.coordinator.groups.assignors.spec import Assignment, MemberAssignment
from kraftrio.broker.coordinator.outcome import Now

NOTHING: Final[MemberAssignment] = {}


@dataclass(slots=True)
class TargetAssignment:
    """The target of one group.

    Attributes:
        epoch: the group epoch that it was computed for; -1: deleted.
        timestamp_ms: when; 0: unknown.
        members: by member id.
    """

    epoch: int = 0
    timestamp_ms: int = 0
    members: dict[str, MemberAssignment] = field(default_factory=dict)

    def of(self, member_id: str) -> MemberAssignment:
        """What a member is to have."""
        return self.members.get(member_id, NOTHING)

    def may_be_computed(self, interval_ms: int, now: Now) -> bool:
        """Whether the next one may be computed already, so long after this one (KIP-1263).

        A wall clock that was set back does not count.
        """
        if not self.timestamp_ms or not interval_ms:
            return True
        passed_ms = now.wall_ms - self.timestamp_ms
        return passed_ms >= interval_ms or passed_ms < 0


def changed_members(
    member_ids: Mapping[str, object], former: Mapping[str, MemberAssignment], target: Assignment
) -> dict[str, MemberAssignment]:
    """What has to be stored of a new target: the parts that differ from the former one."""
    changed = {}
    for member_id in member_ids:
        part = target.get(member_id, NOTHING)
        if member_id not in former or former[member_id] != part:
            changed[member_id] = part
    return changed
