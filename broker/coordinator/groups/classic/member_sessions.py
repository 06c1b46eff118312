"""Sessions and departures of the members of classic groups.

Owns the deadlines of members: an ordinary member's session, the time in which a pending member must
join (KIP-394), and that in which a new one's first rebalance must end.

Rules
1. A member that goes has its parked requests answered, and its deadline dropped.
2. A member with a parked request needs no heartbeats, except for a new one, which may be gone.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.groups.classic.group_state import CLASSIC_GROUP_TYPE, ClassicGroup
from kraftrio.broker.coordinator.groups.classic.replies import fail_sync, refuse_join
from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember
from kraftrio.broker.coordinator.outcome import Now, Outcome, append_error_to_response
from kraftrio.wire.errors import ErrorCode

MEMBER_DEADLINE = "member"
"""First part of a member's deadline key; then come group id and member id."""

# A member that joins for the first time may be gone before the rebalance ends; Kafka waits 5 min.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def note_member(
    event: str, group: ClassicGroup, member_id: str, outcome: Outcome, **fields: object
) -> None:
    """Have the log say what happened to a member."""
    outcome.note(event, group=group.group_id, type=CLASSIC_GROUP_TYPE, member=member_id, **fields)


class MemberSessions:
    """See the module."""

    def __init__(self, deadlines: DeadlineQueue) -> None:
        self._deadlines = deadlines

    # --- sessions ---

    def prolong_session(self, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        """A request showed that a member lives, or an answer lets its session begin again."""
        self._expect(group, member.member_id, member.session_timeout_ms, now)

    def expect_new(self, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        """Give a new member's first rebalance a time to end."""
        self._expect(group, member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, now)

    def add_pending(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Now
    ) -> None:
        """Expect a member to join with the id that it was just given."""
        group.roster.pending_join_members[member_id] = None
        self._expect(group, member_id, session_timeout_ms, now)

    def _expect(self, group: ClassicGroup, member_id: str, timeout_ms: int, now: Now) -> None:
        key = (MEMBER_DEADLINE, group.group_id, member_id)
        self._deadlines.schedule(key, now.monotonic_ms + timeout_ms)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        """Drop the deadline of a member or pending member."""
        self._deadlines.cancel((MEMBER_DEADLINE, group.group_id, member_id))

    def end_all_sessions(self, group: ClassicGroup) -> None:
        """Drop the deadlines of everybody in a group."""
        for member_id in (*group.members, *group.roster.pending_join_members):
            self.end_session(group, member_id)

    # --- departures ---

    def remove(
        self,
        group: ClassicGroup,
        member_id: str,
        outcome: Outcome,
        error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
    ) -> None:
        """Take a member out and answer what it has parked."""
        member = group.members[member_id]
        code = append_error_to_response(error)
        ticket = group.roster.take_join_ticket(member)
        if ticket is not None:
            refuse_join(ticket, "", code, outcome)
        fail_sync(member, code, outcome)
        group.roster.remove(member_id)
        self.end_session(group, member_id)

    def remove_unjoined(self, group: ClassicGroup, member_id: str) -> None:
        """Take out a pending member, or one that has nothing parked."""
        group.roster.remove(member_id)
        self.end_session(group, member_id)
