"""The rebalances of classic groups: when they begin and end, and whom they wait for.

Rules:
1. A rebalance completes when all members have joined and no pending member is awaited, or at the
   rebalance timeout; then dynamic members that did not come are removed, static ones stay
   (KIP-345).
2. The first rebalance of an empty group waits for `group.initial.rebalance.delay.ms`, again as long
   as new members come, up to the rebalance timeout (KIP-134).
3. Members that joined and do not ask for their assignment within the rebalance timeout are removed
   (KIP-735).

Owns the deadlines of rebalances. Called by `groups`, `joins` and `static_restarts`.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.groups.classic.group_state import (
    CLASSIC_GROUP_TYPE,
    LEGAL_MOVES,
    ClassicGroup,
    GroupState,
)
from kraftrio.broker.coordinator.groups.classic.member_sessions import MemberSessions, note_member
from kraftrio.broker.coordinator.groups.classic.records import group_record
from kraftrio.broker.coordinator.groups.classic.replies import answer_join, fail_sync
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.wire.errors import ErrorCode

JOIN_DEADLINE, SYNC_DEADLINE = "join", "sync"
"""First parts of a group's deadline keys; then comes the group id."""


class Rebalances:
    """See the module."""

    def __init__(
        self, properties: GroupProperties, deadlines: DeadlineQueue, sessions: MemberSessions
    ) -> None:
        self._properties = properties
        self._deadlines = deadlines
        self._sessions = sessions

    def prepare_or_complete(
        self, group: ClassicGroup, now: Now, outcome: Outcome, reason: str
    ) -> None:
        """A member joined: begin a rebalance, or complete the current one if it was the last."""
        if GroupState.PREPARING_REBALANCE in LEGAL_MOVES[group.state]:
            self.prepare(group, now, outcome, reason)
        else:
            self.complete_if_all_joined(group, now, outcome)

    def after_removal(self, group: ClassicGroup, now: Now, outcome: Outcome, reason: str) -> None:
        """A member left or was replaced: begin a rebalance, or complete the current one if now all
        have joined.
        """
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, now, outcome, reason)
        else:
            self.complete_if_all_joined(group, now, outcome)

    def prepare(self, group: ClassicGroup, now: Now, outcome: Outcome, reason: str) -> None:
        """Ask all members to join again; the log has the reason."""
        outcome.note(
            "group rebalancing", group=group.group_id, type=CLASSIC_GROUP_TYPE,
            reason=reason, members=group.member_count,
        )  # fmt: skip
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now, outcome)
        group.roster.pending_sync_members.clear()
        self._cancel(SYNC_DEADLINE, group)
        is_initial = group.is_in(GroupState.EMPTY)
        group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if is_initial:
            delay_ms = self._properties.group_initial_rebalance_delay_ms
            group.new_member_added = False
            group.initial_rebalance_delay_ms = delay_ms
            timeout_ms = group.roster.rebalance_timeout_ms
            group.initial_rebalance_remaining_ms = max(timeout_ms - delay_ms, 0)
            self._schedule(JOIN_DEADLINE, group, delay_ms, now)
        elif group.roster.has_all_members_joined:
            self._complete(group, now, outcome)
        else:
            self._schedule(JOIN_DEADLINE, group, group.roster.rebalance_timeout_ms, now)

    def complete_if_all_joined(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Complete a rebalance that everybody has joined, unless it is the initial one."""
        if (
            group.is_in(GroupState.PREPARING_REBALANCE)
            and group.previous_state is not GroupState.EMPTY
            and group.roster.has_all_members_joined
        ):
            self._complete(group, now, outcome)

    def _complete(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Begin the next generation with those who joined, and answer them."""
        group.initial_rebalance_remaining_ms = None
        group.new_member_added = False
        self._cancel(JOIN_DEADLINE, group)
        for member in list(group.members.values()):
            if not member.is_awaiting_join and not member.is_static:
                self._sessions.remove_unjoined(group, member.member_id)
                note_member("member expired", group, member.member_id, outcome)
        if group.members and not group.roster.elect_joined_leader():
            # Only static members, none of which has rejoined: give them another round.
            self._schedule(JOIN_DEADLINE, group, group.roster.rebalance_timeout_ms, now)
            return
        group.start_generation(now.wall_ms)
        outcome.note(
            "group rebalanced", group=group.group_id, type=CLASSIC_GROUP_TYPE,
            generation=group.generation_id, members=group.member_count,
        )  # fmt: skip
        if group.is_in(GroupState.EMPTY):
            outcome.records.append(group_record(group))
            return
        for member in group.members.values():
            ticket = group.roster.take_join_ticket(member)
            if ticket is not None:
                answer_join(group, member, ticket, outcome)
                self._sessions.prolong_session(group, member, now)
            member.is_new = False
            group.roster.pending_sync_members[member.member_id] = None
        self._schedule(SYNC_DEADLINE, group, group.roster.rebalance_timeout_ms, now)

    def note_synced(self, group: ClassicGroup, member_id: str) -> None:
        """A member asked for its assignment."""
        group.roster.pending_sync_members.pop(member_id, None)
        if not group.roster.pending_sync_members:
            self._cancel(SYNC_DEADLINE, group)

    def reset_assignments(
        self, group: ClassicGroup, error: ErrorCode, now: Now, outcome: Outcome
    ) -> None:
        """Take back the assignments of a generation, and end the syncs that wait for them."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                fail_sync(member, error, outcome)
                self._sessions.prolong_session(group, member, now)

    # --- deadlines ---

    def on_join_deadline(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Complete the rebalance with those who joined, unless the initial one is extended."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return
        remaining_ms = group.initial_rebalance_remaining_ms
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            delay_ms = min(self._properties.group_initial_rebalance_delay_ms, remaining_ms)
            group.initial_rebalance_remaining_ms = max(
                remaining_ms - group.initial_rebalance_delay_ms, 0
            )
            group.initial_rebalance_delay_ms = delay_ms
            self._schedule(JOIN_DEADLINE, group, delay_ms, now)
        else:
            self._complete(group, now, outcome)

    def on_sync_deadline(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Remove the members that joined but never asked for their assignment."""
        if not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        if not group.roster.pending_sync_members:
            return
        for member_id in list(group.roster.pending_sync_members):
            # One that restarted since (KIP-345) has a join parked, which is answered so, too.
            self._sessions.remove(group, member_id, outcome)
            note_member("member expired", group, member_id, outcome)
        self.prepare(group, now, outcome, "members did not ask for their assignment")

    def forget(self, group: ClassicGroup) -> None:
        """Drop the deadlines of a group."""
        self._cancel(JOIN_DEADLINE, group)
        self._cancel(SYNC_DEADLINE, group)

    def _schedule(self, kind: str, group: ClassicGroup, delay_ms: int, now: Now) -> None:
        self._deadlines.schedule((kind, group.group_id), now.monotonic_ms + delay_ms)

    def _cancel(self, kind: str, group: ClassicGroup) -> None:
        self._deadlines.cancel((kind, group.group_id))
