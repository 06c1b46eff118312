"""The classic group protocol: join, sync, heartbeat and leave of all groups in one shard.

Owns the groups of a shard by id and their deadlines, and decides as Apache Kafka 4.3 does: KIP-62
(session and rebalance timeouts), KIP-134 (initial rebalance delay), KIP-345 (static members),
KIP-394 (member ids first), KIP-559 (protocol names in sync), KIP-814 (skipped assignment).

Rules:
1. Every parked request is answered: by the end of the rebalance, by its member's removal, by a
   later request of the same member, or by `unload`.
2. A rebalance completes when all members have joined and no pending member is awaited, or at the
   rebalance timeout; then dynamic members that did not come are removed, static ones stay.
3. The first rebalance of an empty group waits for `group.initial.rebalance.delay.ms`, again as long
   as new members come, up to the rebalance timeout.
4. A generation is stored before its assignment is given out; if that fails the group rebalances.

Sans-IO: called by `groups/shard` with the time as a `Now`, answers with an `Outcome`. Describing
and deleting groups is `groups/admin`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.classic.group_state import (
    ClassicGroup,
    ClassicMember,
    GroupState,
)
from kraftrio.broker.coordinator.groups.classic.replies import (
    AssignmentStored,
    Client,
    GroupCreated,
    StaticMemberStored,
    answer_join,
    check_sync,
    fail_sync,
    group_record,
    make_join_response,
    make_sync_response,
    protocols_of,
    refuse_join,
    restore_member,
    update_member,
)
from kraftrio.broker.coordinator.outcome import (
    FollowUp,
    Now,
    Outcome,
    Ticket,
    append_error_to_response,
)
from kraftrio.broker.coordinator.ports import GroupProperties
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

# A member that joins for the first time may be gone before the rebalance ends; Kafka waits 5 min.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000

MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9

# Kinds of deadline keys: the first part, followed by the group id (and the member id).
_JOIN, _SYNC, _MEMBER = "join", "sync", "member"


class ClassicGroups:
    """The groups of one shard."""

    def __init__(
        self, properties: GroupProperties, deadlines: DeadlineQueue, new_uuid: Callable[[], str]
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self._properties = properties
        self._deadlines = deadlines
        self._new_uuid = new_uuid

    # --- loading ---

    def on_loaded(self, now: Now) -> Outcome:
        """Start the sessions of the members that were read from the log."""
        outcome = Outcome()
        for group in self.groups.values():
            for member in group.members.values():
                self._schedule_session(group, member, now)
            if len(group.members) > self._properties.group_max_size:
                # Members commit their offsets as they rejoin; those too many are turned away then.
                self._prepare_rebalance(group, now, outcome)
        return outcome

    def unload(self, now: Now) -> Outcome:
        """Answer every parked request: this broker is no longer the coordinator."""
        outcome = Outcome()
        error = ErrorCode.NOT_COORDINATOR
        for group in self.groups.values():
            group.transition_to(GroupState.DEAD, now.wall_ms)
            for member in group.members.values():
                self._fail_join(group, member, error, outcome)
                fail_sync(member, error, outcome)
        return outcome

    def get_or_create(self, group_id: str, now: Now) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, now.wall_ms)
        return group

    def replace(self, group_id: str, group: ClassicGroup | None) -> None:
        """Set (or with None remove) a group, as a record says."""
        former = self.groups.pop(group_id, None)
        if former is not None:
            self._forget_deadlines(former)
        if group is not None:
            self.groups[group_id] = group

    # --- JoinGroup ---

    def join(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: Now) -> Outcome:
        """Serve JoinGroup; the ticket is answered at once or when the rebalance completes."""
        outcome = Outcome()
        group = self.groups.get(request.group_id)
        is_new_group = group is None
        if group is None:
            if request.member_id:
                refuse_join(ticket, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID, outcome)
                return outcome
            group = self.get_or_create(request.group_id, now)
        if not self._accepts(group, request.member_id):
            refuse_join(ticket, "", ErrorCode.GROUP_MAX_SIZE_REACHED, outcome)
            self._drop_refused(group, request.member_id, now, outcome)
        elif not group.supports(request.protocol_type, [p.name for p in request.protocols]):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            refuse_join(ticket, request.member_id, error, outcome)
        elif not request.member_id:
            self._join_new(group, request, client, ticket, now, outcome)
        else:
            self._join_known(group, request, client, ticket, now, outcome)
        if is_new_group and not group.members and not group.pending_join_members:
            del self.groups[group.group_id]
        elif is_new_group:
            value = ClassicGroup.empty_record(group.current_state_timestamp_ms)
            outcome.records.append(group_record(group.group_id, value))
            outcome.follow_up = GroupCreated(group.group_id, ticket)
        return outcome

    def _drop_refused(
        self, group: ClassicGroup, member_id: str, now: Now, outcome: Outcome
    ) -> None:
        """A joiner for whom there is no room is awaited no longer."""
        if member_id in group.members:
            self._remove_member(group, member_id, outcome)
        elif member_id in group.pending_join_members:
            self._forget_pending(group, member_id)
        else:
            return
        self._after_removal(group, now, outcome)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group has room for one more joiner (group.max.size)."""
        limit = self._properties.group_max_size
        member = group.members.get(member_id)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            if member is not None and member.is_awaiting_join:
                return True
            return group.awaiting_join_count < limit
        if group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(group.members) < limit
        return True

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        ticket: Ticket,
        now: Now,
        outcome: Outcome,
    ) -> None:
        """A joiner without a member id: a new dynamic member, or a static one that (re)starts."""
        instance_id = request.group_instance_id
        prefix = client.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{self._new_uuid()}"
        if instance_id is not None:
            former_id = group.static_members.get(instance_id)
            if former_id is None:
                self._add_member(group, member_id, request, client, ticket, now, outcome)
            else:
                self._replace_static(
                    group, former_id, member_id, request, client, ticket, now, outcome
                )
        elif client.api_version >= MEMBER_ID_REQUIRED_VERSION:
            group.pending_join_members[member_id] = None
            self._deadlines.schedule(
                (_MEMBER, group.group_id, member_id), now.monotonic_ms + request.session_timeout_ms
            )
            refuse_join(ticket, member_id, ErrorCode.MEMBER_ID_REQUIRED, outcome)
        else:
            self._add_member(group, member_id, request, client, ticket, now, outcome)

    def _join_known(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        ticket: Ticket,
        now: Now,
        outcome: Outcome,
    ) -> None:
        """A joiner that names its member id: pending until now, or a member that rejoins."""
        member_id = request.member_id
        if member_id in group.pending_join_members and request.group_instance_id is None:
            self._add_member(group, member_id, request, client, ticket, now, outcome)
            return
        error = group.check_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            refuse_join(ticket, member_id, error, outcome)
            return
        member = group.members[member_id]
        matches = member.protocols == protocols_of(request)
        if group.is_in(GroupState.COMPLETING_REBALANCE) and matches:
            # The member lost its answer; everybody's answer is still valid.
            answer_join(group, member, ticket, outcome)
        elif group.is_in(GroupState.STABLE) and matches and not group.is_leader(member_id):
            answer_join(group, member, ticket, outcome)
        else:
            self._supersede_join(group, member, outcome)
            update_member(group, member, request)
            group.park_join(member, ticket)
            self._rebalance_or_complete(group, now, outcome)

    def _add_member(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        client: Client,
        ticket: Ticket,
        now: Now,
        outcome: Outcome,
    ) -> None:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request),
            join_ticket=ticket,
            is_new=True,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        self._deadlines.schedule(
            (_MEMBER, group.group_id, member_id), now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        )
        self._rebalance_or_complete(group, now, outcome)

    def _replace_static(
        self,
        group: ClassicGroup,
        former_id: str,
        new_id: str,
        request: JoinGroupRequest,
        client: Client,
        ticket: Ticket,
        now: Now,
        outcome: Outcome,
    ) -> None:
        """A static member restarted: the new id takes the old one's place, the old is fenced."""
        former = group.members[former_id]
        assert former.group_instance_id is not None
        self._fail_join(group, former, ErrorCode.FENCED_INSTANCE_ID, outcome)
        fail_sync(former, ErrorCode.FENCED_INSTANCE_ID, outcome)
        self._deadlines.cancel((_MEMBER, group.group_id, former_id))
        former = replace(former)
        former_leader = group.leader_id or ""
        member = group.replace_static(former.group_instance_id or "", former_id, new_id)
        member.client_id, member.client_host = client.client_id, client.client_host
        update_member(group, member, request)
        self._schedule_session(group, member, now)
        group.park_join(member, ticket)
        if group.is_in(GroupState.STABLE):
            if group.select_protocol() == group.protocol_name:
                # The assignment stays valid, so nobody else needs to notice (KIP-345).
                outcome.records.append(group_record(group.group_id, group.to_record()))
                outcome.follow_up = StaticMemberStored(
                    group_id=group.group_id,
                    former=former,
                    new_member_id=new_id,
                    former_leader=former_leader,
                    supports_skip_assignment=client.api_version >= SKIP_ASSIGNMENT_VERSION,
                    ticket=ticket,
                )
            else:
                self._rebalance_or_complete(group, now, outcome)
        elif group.is_in(GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now, outcome)
        else:
            self._maybe_complete_join(group, now, outcome)

    # --- rebalances ---

    def _rebalance_or_complete(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group, now, outcome)
        else:
            self._maybe_complete_join(group, now, outcome)

    def _maybe_complete_join(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Complete a rebalance that everybody has joined, unless it is the initial one."""
        if (
            group.is_in(GroupState.PREPARING_REBALANCE)
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined
        ):
            self._complete_join(group, now, outcome)

    def _prepare_rebalance(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Ask all members to join again."""
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self._reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now, outcome)
        group.pending_sync_members.clear()
        self._deadlines.cancel((_SYNC, group.group_id))
        is_initial = group.is_in(GroupState.EMPTY)
        group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if is_initial:
            delay_ms = self._properties.group_initial_rebalance_delay_ms
            group.new_member_added = False
            group.initial_rebalance_delay_ms = delay_ms
            group.initial_rebalance_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._deadlines.schedule((_JOIN, group.group_id), now.monotonic_ms + delay_ms)
        elif group.has_all_members_joined:
            self._complete_join(group, now, outcome)
        else:
            self._schedule_join_timeout(group, now)

    def _schedule_join_timeout(self, group: ClassicGroup, now: Now) -> None:
        self._deadlines.schedule(
            (_JOIN, group.group_id), now.monotonic_ms + group.rebalance_timeout_ms
        )

    def _on_join_deadline(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        remaining_ms = group.initial_rebalance_remaining_ms
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            delay_ms = min(self._properties.group_initial_rebalance_delay_ms, remaining_ms)
            group.initial_rebalance_remaining_ms = max(
                remaining_ms - group.initial_rebalance_delay_ms, 0
            )
            group.initial_rebalance_delay_ms = delay_ms
            self._deadlines.schedule((_JOIN, group.group_id), now.monotonic_ms + delay_ms)
        else:
            self._complete_join(group, now, outcome)

    def _complete_join(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Begin the next generation with those who joined, and answer them."""
        group.initial_rebalance_remaining_ms = None
        group.new_member_added = False
        self._deadlines.cancel((_JOIN, group.group_id))
        for member in group.not_yet_rejoined():
            if not member.is_static:
                group.remove(member.member_id)
                self._deadlines.cancel((_MEMBER, group.group_id, member.member_id))
        if group.members and not group.elect_joined_leader():
            # Only static members, none of which has rejoined: give them another round.
            self._schedule_join_timeout(group, now)
            return
        group.start_generation(now.wall_ms)
        if group.is_in(GroupState.EMPTY):
            outcome.records.append(group_record(group.group_id, group.to_record()))
            return
        for member in group.members.values():
            ticket = group.take_join_ticket(member)
            if ticket is not None:
                answer_join(group, member, ticket, outcome)
                self._schedule_session(group, member, now)
            member.is_new = False
            group.pending_sync_members[member.member_id] = None
        self._deadlines.schedule(
            (_SYNC, group.group_id), now.monotonic_ms + group.rebalance_timeout_ms
        )

    # --- SyncGroup ---

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now: Now) -> Outcome:
        """Serve SyncGroup; parked until the leader's assignment is stored."""
        outcome = Outcome()
        group = self.groups.get(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else check_sync(group, request)
        if group is None or error is not ErrorCode.NONE:
            outcome.reply(ticket, SyncGroupResponse(error_code=error))
            return outcome
        member = group.members[request.member_id]
        self._note_synced(group, request.member_id)
        if group.is_in(GroupState.STABLE):
            outcome.reply(ticket, make_sync_response(group, member))
            return outcome
        fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
        member.sync_ticket = ticket
        if group.is_leader(member.member_id):
            given = {a.member_id: a.assignment for a in request.assignments}
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            record = group_record(group.group_id, group.to_record(assignments))
            outcome.records.append(record)
            outcome.follow_up = AssignmentStored(group.group_id, group.generation_id, assignments)
        return outcome

    def _note_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync_members.pop(member_id, None)
        if not group.pending_sync_members:
            self._deadlines.cancel((_SYNC, group.group_id))

    def _on_sync_deadline(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        """Remove the members that joined but never asked for their assignment (KIP-735)."""
        if not group.pending_sync_members:
            return
        for member_id in list(group.pending_sync_members):
            # One that restarted since (KIP-345) has a join parked, which is answered so, too.
            self._remove_member(group, member_id, outcome)
        self._prepare_rebalance(group, now, outcome)

    def _reset_assignments(
        self, group: ClassicGroup, error: ErrorCode, now: Now, outcome: Outcome
    ) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                fail_sync(member, error, outcome)
                self._schedule_session(group, member, now)

    # --- the fate of records ---

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """Go on after records were committed or could not be."""
        outcome = Outcome()
        match follow_up:
            case GroupCreated(group_id=group_id, ticket=ticket):
                self._on_group_created(group_id, ticket, error, now, outcome)
            case AssignmentStored():
                self._on_assignment_stored(follow_up, error, now, outcome)
            case StaticMemberStored():
                self._on_static_member_stored(follow_up, error, now, outcome)
        return outcome

    def _on_group_created(
        self, group_id: str, ticket: Ticket, error: ErrorCode, now: Now, outcome: Outcome
    ) -> None:
        """Turn the joiner away if the group could not be stored."""
        group = self.groups.get(group_id)
        if error is ErrorCode.NONE or group is None:
            return
        for member in list(group.members.values()):
            if member.join_ticket is ticket:
                self._remove_member(group, member.member_id, outcome, error)
                self._after_removal(group, now, outcome)

    def _on_assignment_stored(
        self, stored: AssignmentStored, error: ErrorCode, now: Now, outcome: Outcome
    ) -> None:
        group = self.groups.get(stored.group_id)
        if (
            group is None
            or not group.is_in(GroupState.COMPLETING_REBALANCE)
            or group.generation_id != stored.generation_id
        ):
            return  # the group has moved on; its members were told so
        if error is not ErrorCode.NONE:
            self._reset_assignments(group, append_error_to_response(error), now, outcome)
            self._rebalance_or_complete(group, now, outcome)
            return
        group.transition_to(GroupState.STABLE, now.wall_ms)
        for member in group.members.values():
            member.assignment = stored.assignments.get(member.member_id, b"")
            ticket, member.sync_ticket = member.sync_ticket, None
            if ticket is not None:
                outcome.reply(ticket, make_sync_response(group, member))
                self._schedule_session(group, member, now)

    def _on_static_member_stored(
        self, stored: StaticMemberStored, error: ErrorCode, now: Now, outcome: Outcome
    ) -> None:
        group = self.groups.get(stored.group_id)
        member = None if group is None else group.members.get(stored.new_member_id)
        if group is None or member is None or member.join_ticket is not stored.ticket:
            return  # replaced, removed or rejoined meanwhile, and answered then
        group.take_join_ticket(member)
        if error is not ErrorCode.NONE:
            self._deadlines.cancel((_MEMBER, group.group_id, member.member_id))
            member = group.replace_static(
                member.group_instance_id or "", member.member_id, stored.former.member_id
            )
            restore_member(group, member, stored.former)
            self._schedule_session(group, member, now)
            refuse_join(stored.ticket, "", append_error_to_response(error), outcome)
            return
        self._schedule_session(group, member, now)
        if stored.supports_skip_assignment:
            skip = group.is_leader(member.member_id)
            answer_join(group, member, stored.ticket, outcome, skip=skip)
            return
        # Before KIP-814 a leader that is told so would assign anew; the old id tells it to follow.
        response = make_join_response(group, member)
        response.leader, response.members = stored.former_leader, []
        outcome.reply(stored.ticket, response)

    # --- Heartbeat and sessions ---

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        """Serve Heartbeat: prolong the session; 27 tells the member to rejoin."""
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and request.generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return HeartbeatResponse(error_code=error)
        self._schedule_session(group, group.members[request.member_id], now)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def touch(self, group: ClassicGroup, member_id: str, now: Now) -> None:
        """A request other than a heartbeat showed that a member lives."""
        member = group.members.get(member_id)
        if member is not None:
            self._schedule_session(group, member, now)

    def _schedule_session(self, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        self._deadlines.schedule(
            (_MEMBER, group.group_id, member.member_id),
            now.monotonic_ms + member.session_timeout_ms,
        )

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Act on one deadline that has come."""
        outcome = Outcome()
        group = self.groups.get(key[1])
        if group is None or group.is_in(GroupState.DEAD):
            return outcome
        kind = key[0]
        if kind == _MEMBER:
            self._on_session_deadline(group, key[2], now, outcome)
        elif kind == _JOIN and group.is_in(GroupState.PREPARING_REBALANCE):
            self._on_join_deadline(group, now, outcome)
        elif kind == _SYNC and group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            self._on_sync_deadline(group, now, outcome)
        return outcome

    def _on_session_deadline(
        self, group: ClassicGroup, member_id: str, now: Now, outcome: Outcome
    ) -> None:
        if member_id in group.pending_join_members:
            group.remove(member_id)
            self._maybe_complete_join(group, now, outcome)
            return
        member = group.members.get(member_id)
        if member is not None and not member.has_satisfied_heartbeat:
            self._remove_member(group, member_id, outcome)
            self._after_removal(group, now, outcome)

    # --- LeaveGroup ---

    def leave(self, group_id: str, members: list[MemberIdentity], now: Now) -> Outcome:
        """Serve LeaveGroup for several members; the response says of each how it went."""
        outcome = Outcome()
        group = self.groups.get(group_id)
        responses: list[MemberResponse] = []
        someone_left = False
        for member in members:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                error = self._leave_one(group, member, outcome)
            someone_left = someone_left or error is ErrorCode.NONE
            responses.append(
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=error,
                )
            )
        if group is not None and someone_left:
            self._after_removal(group, now, outcome)
        outcome.response = LeaveGroupResponse(members=responses)
        return outcome

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, outcome: Outcome
    ) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:
            # An administrator removes a static member by its instance id.
            current = group.static_members.get(identity.group_instance_id or "")
            if identity.group_instance_id is None or current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.pending_join_members:
            self._forget_pending(group, member_id)
            return ErrorCode.NONE
        else:
            error = group.check_member(member_id, identity.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._remove_member(group, member_id, outcome)
        return ErrorCode.NONE

    # --- removal ---

    def _after_removal(self, group: ClassicGroup, now: Now, outcome: Outcome) -> None:
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now, outcome)
        else:
            self._maybe_complete_join(group, now, outcome)

    def _remove_member(
        self,
        group: ClassicGroup,
        member_id: str,
        outcome: Outcome,
        error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
    ) -> None:
        """Take a member out and answer what it has parked."""
        member = group.members[member_id]
        ticket = group.take_join_ticket(member)
        if ticket is not None:
            refuse_join(ticket, "", append_error_to_response(error), outcome)
        fail_sync(member, append_error_to_response(error), outcome)
        group.remove(member_id)
        self._deadlines.cancel((_MEMBER, group.group_id, member_id))

    def _forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        self._deadlines.cancel((_MEMBER, group.group_id, member_id))

    def _forget_deadlines(self, group: ClassicGroup) -> None:
        self._deadlines.cancel((_JOIN, group.group_id))
        self._deadlines.cancel((_SYNC, group.group_id))
        for member_id in (*group.members, *group.pending_join_members):
            self._deadlines.cancel((_MEMBER, group.group_id, member_id))

    def _supersede_join(self, group: ClassicGroup, member: ClassicMember, outcome: Outcome) -> None:
        """A member that joins again has given up on its former request: tell it to retry."""
        self._fail_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, outcome)

    def _fail_join(
        self, group: ClassicGroup, member: ClassicMember, error: ErrorCode, outcome: Outcome
    ) -> None:
        ticket = group.take_join_ticket(member)
        if ticket is not None:
            refuse_join(ticket, member.member_id, error, outcome)
