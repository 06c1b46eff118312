"""The states of a member that lives by heartbeats, and which may follow which.

    state          what is done                                   moves to
    UNSUBSCRIBED   nothing                                        JOINING
    JOINING        a heartbeat with epoch 0                       RECONCILING, STABLE
    RECONCILING    partitions given up and taken over             ACKNOWLEDGING, STABLE
    ACKNOWLEDGING  a heartbeat that says what the member owns     RECONCILING, STABLE
    STABLE         a heartbeat now and then                       RECONCILING
    FENCED         what it owned is given up as lost              JOINING
    STALE          the same, and the application's next poll      JOINING
    FAILED         nothing                                        FENCED, once access may be granted

and all but the last to UNSUBSCRIBED, when the member leaves, and to FAILED; those that are in the
group (`is_in_group`) to FENCED, when the coordinator does not know them any more, and to STALE,
when the application has stayed away from poll.

Called by: `member`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class HeartbeatMemberState(Enum):
    """Where a member is; see the module's table."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    FAILED = "failed"

    def may_become(self, state: HeartbeatMemberState) -> bool:
        """Whether a member in this state may move to another one."""
        if state in _MOVES[self]:
            return True
        if state in (HeartbeatMemberState.FENCED, HeartbeatMemberState.STALE):
            return self.sends_heartbeats
        ends = (HeartbeatMemberState.UNSUBSCRIBED, HeartbeatMemberState.FAILED)
        return state in ends and self is not HeartbeatMemberState.FAILED

    @property
    def is_in_group(self) -> bool:
        """Whether the coordinator has taken the member in."""
        return self in _IN_GROUP

    @property
    def is_out(self) -> bool:
        """Whether the member joins as soon as the application polls."""
        return self in _OUT

    @property
    def sends_heartbeats(self) -> bool:
        """Whether the coordinator waits for heartbeats of the member."""
        return self is HeartbeatMemberState.JOINING or self.is_in_group


_MOVES: Mapping[HeartbeatMemberState, frozenset[HeartbeatMemberState]] = {
    HeartbeatMemberState.UNSUBSCRIBED: frozenset({HeartbeatMemberState.JOINING}),
    HeartbeatMemberState.JOINING: frozenset(
        {HeartbeatMemberState.RECONCILING, HeartbeatMemberState.STABLE}
    ),
    HeartbeatMemberState.RECONCILING: frozenset(
        {HeartbeatMemberState.ACKNOWLEDGING, HeartbeatMemberState.STABLE}
    ),
    HeartbeatMemberState.ACKNOWLEDGING: frozenset(
        {HeartbeatMemberState.RECONCILING, HeartbeatMemberState.STABLE}
    ),
    HeartbeatMemberState.STABLE: frozenset({HeartbeatMemberState.RECONCILING}),
    HeartbeatMemberState.FENCED: frozenset({HeartbeatMemberState.JOINING}),
    HeartbeatMemberState.STALE: frozenset({HeartbeatMemberState.JOINING}),
    HeartbeatMemberState.FAILED: frozenset({HeartbeatMemberState.FENCED}),
}
_OUT = frozenset(
    {HeartbeatMemberState.UNSUBSCRIBED, HeartbeatMemberState.FENCED, HeartbeatMemberState.STALE}
)
_IN_GROUP = frozenset(
    {
        HeartbeatMemberState.RECONCILING,
        HeartbeatMemberState.ACKNOWLEDGING,
        HeartbeatMemberState.STABLE,
    }
)
