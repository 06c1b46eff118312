"""The classic group protocol: join, sync, heartbeat and leave of all groups in one shard.

Decides as Apache Kafka 4.3 does: KIP-62 (session and rebalance timeouts), KIP-134 (initial
rebalance delay), KIP-345 (static members), KIP-394 (member ids first), KIP-559 (protocol names in
sync), KIP-814 (skipped assignment).

Rules:
1. Every parked request is answered: by the end of the rebalance, by its member's removal, by a
   later request of the same member, or by `unload`.
2. A generation is stored before its assignment is given out; if that fails the group rebalances.

Joins are served by `joins`; `rebalances` decides when a rebalance begins and ends, and
`member_sessions` how long a member lives without a request.
Sans-IO: called by the shard with the time as a `Now`, answers with an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.groups.classic.joins import Client, JoinAttempt, Joins
from kraftrio.broker.coordinator.groups.classic.member_sessions import (
    MEMBER_DEADLINE,
    MemberSessions,
    note_member,
)
from kraftrio.broker.coordinator.groups.classic.rebalances import (
    JOIN_DEADLINE,
    SYNC_DEADLINE,
    Rebalances,
)
from kraftrio.broker.coordinator.groups.classic.records import (
    group_from_record,
    group_record,
    group_tombstone,
    new_group_record,
)
from kraftrio.broker.coordinator.groups.classic.replies import (
    answer_sync,
    fail_sync,
    refuse_join,
    release_parked,
)
from kraftrio.broker.coordinator.groups.classic.static_restarts import (
    StaticMemberStored,
    StaticRestarts,
)
from kraftrio.broker.coordinator.groups.group import Group, GroupRegistry
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.outcome import (
    COMMITTED,
    CoordinatorRecord,
    FollowUp,
    Now,
    Outcome,
    Ticket,
    append_error_to_response,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import decode_group_value
from kraftrio.wire.messages.group_records.keys import GroupMetadataKey, GroupRecordKey
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
from kraftrio.wire.primitives import Buffer

_MAY_BE_STORED = frozenset({ErrorCode.REQUEST_TIMED_OUT, *COMMITTED})
"""The fates of an append whose records are in the log, or may be."""


@dataclass(frozen=True, slots=True)
class GroupCreated(FollowUp):
    """The record of a new, empty group was to be stored; on failure its first joiner is refused.

    Attributes:
        former: the empty group of another kind that it took the place of.
    """

    group_id: str
    ticket: Ticket
    former: Group | None


@dataclass(frozen=True, slots=True)
class AssignmentStored(FollowUp):
    """The leader's assignment of a generation was to be stored."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


class ClassicGroups:
    """The classic groups of one shard.

    Args:
        registry: the shard's groups of all kinds.
        deadlines: the shard's.
    """

    group_type: ClassVar[type[Group]] = ClassicGroup
    record_keys: ClassVar[Collection[type[GroupRecordKey]]] = (GroupMetadataKey,)
    deadline_kinds: ClassVar[Collection[str]] = (MEMBER_DEADLINE, JOIN_DEADLINE, SYNC_DEADLINE)
    follow_ups: ClassVar[Collection[type[FollowUp]]] = (
        GroupCreated,
        AssignmentStored,
        StaticMemberStored,
    )

    def __init__(
        self,
        registry: GroupRegistry,
        properties: GroupProperties,
        deadlines: DeadlineQueue,
        new_uuid: Callable[[], str],
    ) -> None:
        self._registry = registry
        self._properties = properties
        self._sessions = MemberSessions(deadlines)
        self._rebalances = Rebalances(properties, deadlines, self._sessions)
        self._static_restarts = StaticRestarts(self._sessions, self._rebalances)
        self._joins = Joins(
            properties,
            self._sessions,
            self._rebalances,
            self._static_restarts.restart,
            new_uuid,
        )

    # --- a kind of group ---

    def replay(self, key: GroupMetadataKey, value: Buffer | None, _now: Now) -> None:
        """Apply the record of a group."""
        group = None
        if value is not None:
            group = group_from_record(key.group, decode_group_value(value))
        self.replace(key.group, group)

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Members see changed topics themselves, and rejoin."""

    def tombstones(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        """Give the record that removes a group."""
        return [group_tombstone(group.group_id)]

    def _find(self, group_id: str) -> ClassicGroup | None:
        return self._registry.find(group_id, ClassicGroup)

    # --- loading ---

    def on_loaded(self, now: Now) -> Outcome:
        """Start the sessions of the members that were read from the log."""
        outcome = Outcome()
        for group in self._registry.all_of(ClassicGroup):
            for member in group.members.values():
                self._sessions.prolong_session(group, member, now)
            if len(group.members) > self._properties.group_max_size:
                # Members commit their offsets as they rejoin; those beyond the limit are turned
                # away then.
                self._rebalances.prepare(group, now, outcome, "it is above group.max.size")
        return outcome

    def unload(self, now: Now) -> Outcome:
        """Answer every parked request: this broker is no longer the coordinator."""
        outcome = Outcome()
        error = ErrorCode.NOT_COORDINATOR
        for group in self._registry.all_of(ClassicGroup):
            group.transition_to(GroupState.DEAD, now.wall_ms)
            for member in group.members.values():
                release_parked(group, member, error, outcome)
        return outcome

    def ensure_group(self, group_id: str, now_wall_ms: int) -> None:
        """Make a group that only stores offsets, unless the id is in use."""
        if self._registry.get(group_id) is None:
            self._registry.add(ClassicGroup(group_id, now_wall_ms))

    def replace(self, group_id: str, group: ClassicGroup | None) -> None:
        """Set (or with None remove) a group, as a record says."""
        former = self._find(group_id)
        if former is not None:
            self._rebalances.forget(former)
            self._sessions.end_all_sessions(former)
            self._registry.remove(group_id)
        if group is not None:
            self._registry.remove(group_id)  # of another kind, whose records are gone
            self._registry.add(group)

    def adopt(self, group: ClassicGroup, now: Now, *, rebalances: bool) -> None:
        """Take over a stable group that was one of another kind; no request is parked in it."""
        self._registry.add(group)
        for member in group.members.values():
            self._sessions.prolong_session(group, member, now)
        if rebalances:
            outcome = Outcome()
            self._rebalances.prepare(group, now, outcome, "it was of another kind")
            assert not outcome

    # --- JoinGroup ---

    def join(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: Now) -> Outcome:
        """Serve JoinGroup; the ticket is answered at once or when the rebalance completes."""
        outcome = Outcome()
        join = JoinAttempt(request, client, ticket)
        group = self._find(request.group_id)
        if group is not None:
            self._joins.join(group, join, now, outcome)
        elif request.member_id:
            refuse_join(ticket, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID, outcome)
        else:
            self._join_new_group(join, now, outcome)
        return outcome

    def join_in_place_of(
        self,
        former: Group,
        tombstones: list[CoordinatorRecord],
        request: JoinGroupRequest,
        client: Client,
        ticket: Ticket,
        now: Now,
    ) -> Outcome:
        """Serve JoinGroup in an empty group of another kind, which gives way to a classic one.

        Args:
            tombstones: the records that remove it.
        """
        outcome = Outcome()
        if request.member_id:
            refuse_join(ticket, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID, outcome)
        else:
            join = JoinAttempt(request, client, ticket)
            self._join_new_group(join, now, outcome, former)
            if outcome.records:
                outcome.records = [*tombstones, *outcome.records]
        return outcome

    def _join_new_group(
        self, join: JoinAttempt, now: Now, outcome: Outcome, former: Group | None = None
    ) -> None:
        """Make a group for its first joiner, unless that is refused."""
        group = ClassicGroup(join.request.group_id, now.wall_ms)
        self._joins.join(group, join, now, outcome)
        if group.members or group.roster.pending_join_members:
            self._registry.remove(group.group_id)
            self._registry.add(group)
            outcome.records.append(new_group_record(group))
            outcome.follow_up = GroupCreated(group.group_id, join.ticket, former)

    # --- SyncGroup ---

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now: Now) -> Outcome:
        """Serve SyncGroup; parked until the leader's assignment is stored."""
        outcome = Outcome()
        group = self._find(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else check_sync(group, request)
        if group is None or error is not ErrorCode.NONE:
            outcome.reply(ticket, SyncGroupResponse(error_code=error))
            return outcome
        member = group.members[request.member_id]
        self._rebalances.note_synced(group, request.member_id)
        if group.is_in(GroupState.STABLE):
            answer_sync(group, member, ticket, outcome)
            return outcome
        fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
        member.sync_ticket = ticket
        if group.roster.is_leader(member.member_id):
            given = {a.member_id: a.assignment for a in request.assignments}
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            outcome.records.append(group_record(group, assignments))
            outcome.follow_up = AssignmentStored(group.group_id, group.generation_id, assignments)
        return outcome

    # --- the fate of records ---

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """Go on after records were committed or could not be."""
        outcome = Outcome()
        match follow_up:
            case GroupCreated():
                if error is not ErrorCode.NONE:
                    self._on_group_not_stored(follow_up, error, now, outcome)
            case AssignmentStored():
                self._on_assignment_stored(follow_up, error, now, outcome)
            case StaticMemberStored():
                group = self._find(follow_up.group_id)
                self._static_restarts.on_stored(group, follow_up, error, now, outcome)
        return outcome

    def _on_group_not_stored(
        self, created: GroupCreated, error: ErrorCode, now: Now, outcome: Outcome
    ) -> None:
        """Turn the first joiner away."""
        group = self._find(created.group_id)
        if group is None:
            return
        for member in list(group.members.values()):
            if member.join_ticket is created.ticket:
                self._sessions.remove(group, member.member_id, outcome, error)
                self._rebalances.after_removal(group, now, outcome, "it could not be stored")
        if created.former is not None and error not in _MAY_BE_STORED and not group.members:
            self.replace(created.group_id, None)
            self._registry.add(created.former)

    def _on_assignment_stored(
        self, stored: AssignmentStored, error: ErrorCode, now: Now, outcome: Outcome
    ) -> None:
        group = self._find(stored.group_id)
        if (
            group is None
            or not group.is_in(GroupState.COMPLETING_REBALANCE)
            or group.generation_id != stored.generation_id
        ):
            return  # the group has moved on, and its members were answered then
        if error is not ErrorCode.NONE:
            code = append_error_to_response(error)
            self._rebalances.reset_assignments(group, code, now, outcome)
            reason = "its assignment could not be stored"
            self._rebalances.prepare(group, now, outcome, reason)
            return
        group.transition_to(GroupState.STABLE, now.wall_ms)
        for member in group.members.values():
            member.assignment = stored.assignments.get(member.member_id, b"")
            ticket, member.sync_ticket = member.sync_ticket, None
            if ticket is not None:
                answer_sync(group, member, ticket, outcome)
                self._sessions.prolong_session(group, member, now)

    # --- Heartbeat and sessions ---

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        """Serve Heartbeat: prolong the session; 27 asks the member to rejoin."""
        group = self._find(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        error = group.roster.check_member(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and request.generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return HeartbeatResponse(error_code=error)
        self._sessions.prolong_session(group, group.members[request.member_id], now)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def on_commit(self, group_id: str, member_id: str, now: Now) -> None:
        """A commit shows that a member lives."""
        group = self._find(group_id)
        if group is not None and group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            member = group.members.get(member_id)
            if member is not None:
                self._sessions.prolong_session(group, member, now)

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Act on one deadline that has come."""
        outcome = Outcome()
        kind, group_id, *rest = key
        group = self._find(group_id)
        if group is None or group.is_in(GroupState.DEAD):
            return outcome
        if kind == MEMBER_DEADLINE:
            self._on_member_deadline(group, rest[0], now, outcome)
        elif kind == JOIN_DEADLINE:
            self._rebalances.on_join_deadline(group, now, outcome)
        elif kind == SYNC_DEADLINE:
            self._rebalances.on_sync_deadline(group, now, outcome)
        return outcome

    def _on_member_deadline(
        self, group: ClassicGroup, member_id: str, now: Now, outcome: Outcome
    ) -> None:
        if member_id in group.roster.pending_join_members:
            group.roster.remove(member_id)
            self._rebalances.complete_if_all_joined(group, now, outcome)
            return
        member = group.members.get(member_id)
        if member is not None and not member.has_satisfied_heartbeat:
            self._sessions.remove(group, member_id, outcome)
            note_member("member expired", group, member_id, outcome)
            self._rebalances.after_removal(group, now, outcome, "a member expired")

    # --- LeaveGroup ---

    def leave(self, group_id: str, members: list[MemberIdentity], now: Now) -> Outcome:
        """Serve LeaveGroup for several members; the response says of each how it went."""
        outcome = Outcome()
        group = self._find(group_id)
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
            self._rebalances.after_removal(group, now, outcome, "a member left")
        outcome.response = LeaveGroupResponse(members=responses)
        return outcome

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, outcome: Outcome
    ) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:
            # An administrator removes a static member by its instance id.
            current = group.roster.static_members.get(identity.group_instance_id or "")
            if identity.group_instance_id is None or current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.roster.pending_join_members:
            self._sessions.remove_unjoined(group, member_id)
            return ErrorCode.NONE
        else:
            error = group.roster.check_member(member_id, identity.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._sessions.remove(group, member_id, outcome)
        note_member("member left", group, member_id, outcome)
        return ErrorCode.NONE


def check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    """Whether a SyncGroup is by a member of the generation, and about its protocol."""
    error = group.roster.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    for asked, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and actual is not None and asked != actual:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.is_in(GroupState.PREPARING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
