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


class ClassicMemberState(Enum):
    """Where a member is; see the module's table."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    SHARING = "sharing"
    SYNCING = "syncing"
    COMPLETING = "completing"
    STABLE = "stable"
    FAILED = "failed"

    def may_become(self, state: ClassicMemberState) -> bool:
        """Whether a member in this state may move to another one."""
        return state in _MOVES[self] or (state in _ENDS and self is not ClassicMemberState.FAILED)

    @property
    def is_settled(self) -> bool:
        """Whether the coordinator takes commits for what the member owns."""
        return self in _SETTLED

    @property
    def sends_heartbeats(self) -> bool:
        """Whether the coordinator waits for heartbeats of a member that has a generation."""
        return self in _SENDING_HEARTBEATS


_MOVES: Mapping[ClassicMemberState, frozenset[ClassicMemberState]] = {
    ClassicMemberState.UNJOINED: frozenset({ClassicMemberState.PREPARING}),
    ClassicMemberState.PREPARING: frozenset({ClassicMemberState.JOINING}),
    ClassicMemberState.JOINING: frozenset({ClassicMemberState.SHARING, ClassicMemberState.SYNCING}),
    ClassicMemberState.SHARING: frozenset({ClassicMemberState.SYNCING}),
    ClassicMemberState.SYNCING: frozenset(
        {ClassicMemberState.COMPLETING, ClassicMemberState.JOINING}
    ),
    ClassicMemberState.COMPLETING: frozenset({ClassicMemberState.STABLE}),
    ClassicMemberState.STABLE: frozenset({ClassicMemberState.PREPARING}),
    ClassicMemberState.FAILED: frozenset({ClassicMemberState.UNJOINED}),
}
_ENDS = frozenset({ClassicMemberState.UNJOINED, ClassicMemberState.FAILED})
_SENDING_HEARTBEATS = frozenset(
    {
        ClassicMemberState.PREPARING,
        ClassicMemberState.SHARING,
        ClassicMemberState.SYNCING,
        ClassicMemberState.COMPLETING,
        ClassicMemberState.STABLE,
    }
)
_SETTLED = frozenset(
    {ClassicMemberState.PREPARING, ClassicMemberState.COMPLETING, ClassicMemberState.STABLE}
)
