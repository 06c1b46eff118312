"""Serves JoinGroup: who may join a classic group, as whom, and what its join leads to.

Rules of Kafka 4.3: a dynamic member asks for its id first (KIP-394, from v4 on); a static one that
restarts takes its former self's place (KIP-345, `static_restarts`); a join that changes nothing is
answered at once. The ticket is answered here, or when the rebalance completes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.groups.classic.member_sessions import (
    MemberSessions,
    note_member,
)
from kraftrio.broker.coordinator.groups.classic.protocol_votes import Protocols
from kraftrio.broker.coordinator.groups.classic.rebalances import Rebalances
from kraftrio.broker.coordinator.groups.classic.replies import answer_join, refuse_join
from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.outcome import Now, Outcome, Ticket
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import JoinGroupRequest

MEMBER_ID_REQUIRED_VERSION = 4


def requires_member_id(request: JoinGroupRequest, api_version: int) -> bool:
    """Whether a joiner is to ask for its id first (KIP-394)."""
    return (
        not request.member_id
        and request.group_instance_id is None
        and api_version >= MEMBER_ID_REQUIRED_VERSION
    )


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request, as far as groups remember it."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(frozen=True, slots=True)
class JoinAttempt:
    """One JoinGroup request, and who waits for its answer."""

    request: JoinGroupRequest
    client: Client
    ticket: Ticket

    @property
    def member_id(self) -> str:
        return self.request.member_id

    @property
    def group_instance_id(self) -> str | None:
        return self.request.group_instance_id

    @property
    def protocols(self) -> Protocols:
        """By preference; of a name that comes twice the first counts, for one vote."""
        first: dict[str, bytes] = {}
        for protocol in self.request.protocols:
            first.setdefault(protocol.name, protocol.metadata)
        return tuple(first.items())

    def new_member(self, member_id: str) -> ClassicMember:
        """Make the member that joins for the first time."""
        return ClassicMember(
            member_id=member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            rebalance_timeout_ms=self.request.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocols=self.protocols,
            join_ticket=self.ticket,
            is_new=True,
        )

    def update(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Take over what the request says into a member that is there."""
        group.roster.set_protocols(member, self.protocols)
        member.rebalance_timeout_ms = self.request.rebalance_timeout_ms
        member.session_timeout_ms = self.request.session_timeout_ms


class Joins:
    """See the module."""

    def __init__(
        self,
        properties: GroupProperties,
        sessions: MemberSessions,
        rebalances: Rebalances,
        restart_static: Callable[[ClassicGroup, str, str, JoinAttempt, Now, Outcome], None],
        new_uuid: Callable[[], str],
    ) -> None:
        self._properties = properties
        self._sessions = sessions
        self._rebalances = rebalances
        self._restart_static = restart_static
        self._new_uuid = new_uuid

    def join(self, group: ClassicGroup, join: JoinAttempt, now: Now, outcome: Outcome) -> None:
        """Add or update a member, or refuse the join."""
        request = join.request
        if not self._has_room(group, join.member_id):
            refuse_join(join.ticket, "", ErrorCode.GROUP_MAX_SIZE_REACHED, outcome)
            self._drop_refused(group, join.member_id, now, outcome)
        elif not group.supports(request.protocol_type, [p.name for p in request.protocols]):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            refuse_join(join.ticket, join.member_id, error, outcome)
        elif not join.member_id:
            self._join_without_id(group, join, now, outcome)
        elif join.member_id in group.roster.pending_join_members and join.group_instance_id is None:
            self._add_member(group, join.member_id, join, now, outcome)
        else:
            self._rejoin(group, join, now, outcome)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group takes one more joiner (group.max.size)."""
        limit = self._properties.group_max_size
        member = group.members.get(member_id)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            if member is not None and member.is_awaiting_join:
                return True
            return group.roster.awaiting_join_count < limit
        if group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(group.members) < limit
        return True

    def _drop_refused(
        self, group: ClassicGroup, member_id: str, now: Now, outcome: Outcome
    ) -> None:
        """Stop waiting for a member that was refused for lack of room."""
        if member_id in group.members:
            self._sessions.remove(group, member_id, outcome)
        elif member_id in group.roster.pending_join_members:
            self._sessions.remove_unjoined(group, member_id)
        else:
            return
        self._rebalances.after_removal(group, now, outcome, "a member was refused")

    def _join_without_id(
        self, group: ClassicGroup, join: JoinAttempt, now: Now, outcome: Outcome
    ) -> None:
        """A new dynamic member, or a static one that starts or restarts."""
        instance_id, client = join.group_instance_id, join.client
        prefix = client.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{self._new_uuid()}"
        former_id = None if instance_id is None else group.roster.static_members.get(instance_id)
        if former_id is not None:
            self._restart_static(group, former_id, member_id, join, now, outcome)
        elif requires_member_id(join.request, client.api_version):
            session_timeout_ms = join.request.session_timeout_ms
            self._sessions.add_pending(group, member_id, session_timeout_ms, now)
            refuse_join(join.ticket, member_id, ErrorCode.MEMBER_ID_REQUIRED, outcome)
        else:
            self._add_member(group, member_id, join, now, outcome)

    def _rejoin(self, group: ClassicGroup, join: JoinAttempt, now: Now, outcome: Outcome) -> None:
        """A joiner that names its member id is a member, or is sent away."""
        member_id = join.member_id
        error = group.roster.check_member(member_id, join.group_instance_id)
        if error is not ErrorCode.NONE:
            refuse_join(join.ticket, member_id, error, outcome)
            return
        member = group.members[member_id]
        is_unchanged = member.protocols == join.protocols
        if is_unchanged and (
            # The member lost its answer; everybody's answer is still valid.
            group.is_in(GroupState.COMPLETING_REBALANCE)
            or (group.is_in(GroupState.STABLE) and not group.roster.is_leader(member_id))
        ):
            answer_join(group, member, join.ticket, outcome)
            return
        superseded = group.roster.take_join_ticket(member)
        if superseded is not None:
            # A member that joins again has given up on its former request.
            refuse_join(superseded, member_id, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
        join.update(group, member)
        group.roster.park_join(member, join.ticket)
        self._rebalances.prepare_or_complete(group, now, outcome, "a member joined again")

    def _add_member(
        self, group: ClassicGroup, member_id: str, join: JoinAttempt, now: Now, outcome: Outcome
    ) -> None:
        member = join.new_member(member_id)
        if not group.members:
            group.protocol_type = join.request.protocol_type
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.roster.add(member)
        self._sessions.expect_new(group, member, now)
        note_member(
            "member joined", group, member_id, outcome,
            client_id=member.client_id, host=member.client_host,
        )  # fmt: skip
        self._rebalances.prepare_or_complete(group, now, outcome, "a member joined")
