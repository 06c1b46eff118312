"""How far a member is on its way to its part of the target assignment (KIP-848)."""

from __future__ import annotations

from enum import IntEnum

LEAVE_EPOCH = -1
"""The member epoch of a member that leaves, or whose assignment was deleted."""

STATIC_LEAVE_EPOCH = -2
"""The member epoch of a static member that leaves and is to come back."""

JOIN_EPOCH = 0
"""The member epoch of a member that joins."""


class MemberState(IntEnum):
    """The states of a member; values are those of the records.

    STABLE: has its part of the target assignment. Leaves this state with a new target.
    UNREVOKED_PARTITIONS: has to give up partitions first, within its rebalance timeout, and stays
        in its epoch until then.
    UNRELEASED_PARTITIONS: waits for partitions that others have not given up yet.
    UNKNOWN: was written by a newer version.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def from_record(cls, value: int) -> MemberState:
        """Read a state."""
        return cls(value) if value in _VALUES else cls.UNKNOWN


_VALUES = frozenset(MemberState)
