"""The states of a member of a classic group, and which may follow which.

    state       what is done            moves to
    UNJOINED    nothing, or a start     PREPARING
    PREPARING   partitions given up     JOINING
    JOINING     JoinGroup               SHARING (the leader), SYNCING
    SHARING     assignments made up     SYNCING
    SYNCING     SyncGroup               COMPLETING, JOINING
    COMPLETING  partitions taken over   STABLE
    STABLE      nothing                 PREPARING
    FAILED      nothing                 UNJOINED, once access may be granted again

and all but the last to UNJOINED, when the member is removed or leaves, and to FAILED.

Called by: `membership`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class MemberState(Enum):
    """Where a member is; see the module's table."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    SHARING = "sharing"
    SYNCING = "syncing"
    COMPLETING = "completing"
    STABLE = "stable"
    FAILED = "failed"

    def may_become(self, state: MemberState) -> bool:
        """Whether a member in this state may move to another one."""
        return state in _MOVES[self] or (state in _ENDS and self is not MemberState.FAILED)

    @property
    def is_settled(self) -> bool:
        """Whether the coordinator takes commits for what the member owns."""
        return self in _SETTLED

    @property
    def sends_heartbeats(self) -> bool:
        """Whether the coordinator waits for heartbeats of a member that has a generation."""
        return self in _SENDING_HEARTBEATS


_MOVES: Mapping[MemberState, frozenset[MemberState]] = {
    MemberState.UNJOINED: frozenset({MemberState.PREPARING}),
    MemberState.PREPARING: frozenset({MemberState.JOINING}),
    MemberState.JOINING: frozenset({MemberState.SHARING, MemberState.SYNCING}),
    MemberState.SHARING: frozenset({MemberState.SYNCING}),
    MemberState.SYNCING: frozenset({MemberState.COMPLETING, MemberState.JOINING}),
    MemberState.COMPLETING: frozenset({MemberState.STABLE}),
    MemberState.STABLE: frozenset({MemberState.PREPARING}),
    MemberState.FAILED: frozenset({MemberState.UNJOINED}),
}
_ENDS = frozenset({MemberState.UNJOINED, MemberState.FAILED})
_SENDING_HEARTBEATS = frozenset(
    {
        MemberState.PREPARING,
        MemberState.SHARING,
        MemberState.SYNCING,
        MemberState.COMPLETING,
        MemberState.STABLE,
    }
)
_SETTLED = frozenset({MemberState.PREPARING, MemberState.COMPLETING, MemberState.STABLE})
