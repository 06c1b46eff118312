"""Static members that restart: the new member id takes the old one's place (KIP-345, KIP-814).

In a stable group that keeps its protocol the assignment stays valid, and the other members are not
disturbed: the new id is stored, and then the join is answered. Otherwise the group rebalances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.groups.classic.joins import JoinAttempt
from kraftrio.broker.coordinator.groups.classic.member_sessions import MemberSessions
from kraftrio.broker.coordinator.groups.classic.rebalances import Rebalances
from kraftrio.broker.coordinator.groups.classic.records import group_record
from kraftrio.broker.coordinator.groups.classic.replies import (
    answer_join,
    fail_sync,
    join_response,
    refuse_join,
)
from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember
from kraftrio.broker.coordinator.outcome import (
    FollowUp,
    Now,
    Outcome,
    Ticket,
    append_error_to_response,
)
from kraftrio.wire.errors import ErrorCode

SKIP_ASSIGNMENT_VERSION = 9


@dataclass(frozen=True, slots=True)
class StaticMemberStored(FollowUp):
    """A static member's new id was to be stored, in a stable group that need not rebalance.

    Attributes:
        former: the member as it was before, to return to on failure.
    """

    group_id: str
    former: ClassicMember
    new_member_id: str
    former_leader: str
    supports_skip_assignment: bool
    ticket: Ticket


class StaticRestarts:
    """See the module."""

    def __init__(self, sessions: MemberSessions, rebalances: Rebalances) -> None:
        self._sessions = sessions
        self._rebalances = rebalances

    def restart(
        self,
        group: ClassicGroup,
        former_id: str,
        new_id: str,
        join: JoinAttempt,
        now: Now,
        outcome: Outcome,
    ) -> None:
        """Put a new member id in the place of a former one, which is fenced from now on."""
        former_leader = group.roster.leader_id or ""
        former = self._fence(group, former_id, outcome)
        member = group.roster.replace_static(former.group_instance_id or "", former_id, new_id)
        member.client_id, member.client_host = join.client.client_id, join.client.client_host
        join.update(group, member)
        self._sessions.prolong_session(group, member, now)
        group.roster.park_join(member, join.ticket)
        if not group.is_in(GroupState.STABLE):
            self._rebalances.after_removal(group, now, outcome, "a static member restarted")
        elif group.roster.select_protocol() != group.protocol_name:
            reason = "a static member restarted with other protocols"
            self._rebalances.prepare(group, now, outcome, reason)
        else:
            outcome.records.append(group_record(group))
            outcome.follow_up = StaticMemberStored(
                group_id=group.group_id,
                former=former,
                new_member_id=new_id,
                former_leader=former_leader,
                supports_skip_assignment=join.client.api_version >= SKIP_ASSIGNMENT_VERSION,
                ticket=join.ticket,
            )

    def _fence(self, group: ClassicGroup, member_id: str, outcome: Outcome) -> ClassicMember:
        """End the requests and the session of a replaced member; return it as it was."""
        member = group.members[member_id]
        ticket = group.roster.take_join_ticket(member)
        if ticket is not None:
            refuse_join(ticket, member_id, ErrorCode.FENCED_INSTANCE_ID, outcome)
        fail_sync(member, ErrorCode.FENCED_INSTANCE_ID, outcome)
        self._sessions.end_session(group, member_id)
        return replace(member)

    def on_stored(
        self,
        group: ClassicGroup | None,
        stored: StaticMemberStored,
        error: ErrorCode,
        now: Now,
        outcome: Outcome,
    ) -> None:
        """Answer the restarted member, or return to the former one."""
        member = None if group is None else group.members.get(stored.new_member_id)
        if group is None or member is None or member.join_ticket is not stored.ticket:
            return  # replaced, removed or rejoined meanwhile, and answered then
        group.roster.take_join_ticket(member)
        if error is not ErrorCode.NONE:
            self._return_to_former(group, member, stored.former, now)
            refuse_join(stored.ticket, "", append_error_to_response(error), outcome)
            return
        self._sessions.prolong_session(group, member, now)
        if stored.supports_skip_assignment:
            skip = group.roster.is_leader(member.member_id)
            answer_join(group, member, stored.ticket, outcome, skip=skip)
            return
        # Before KIP-814 a leader that learns that it leads would assign again; the old id makes it
        # a follower.
        response = join_response(group, member)
        response.leader, response.members = stored.former_leader, []
        outcome.reply(stored.ticket, response)

    def _return_to_former(
        self, group: ClassicGroup, member: ClassicMember, former: ClassicMember, now: Now
    ) -> None:
        self._sessions.end_session(group, member.member_id)
        instance_id = member.group_instance_id or ""
        member = group.roster.replace_static(instance_id, member.member_id, former.member_id)
        group.roster.set_protocols(member, former.protocols)
        member.rebalance_timeout_ms = former.rebalance_timeout_ms
        member.session_timeout_ms = former.session_timeout_ms
        member.client_id, member.client_host = former.client_id, former.client_host
        self._sessions.prolong_session(group, member, now)
