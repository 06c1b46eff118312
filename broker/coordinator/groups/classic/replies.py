"""Replies of the classic protocol to requests that were parked, or are refused."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember
from kraftrio.broker.coordinator.outcome import Outcome, Ticket
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)


def refuse_join(ticket: Ticket, member_id: str, error: ErrorCode, outcome: Outcome) -> None:
    """Answer a join with an error."""
    outcome.reply(ticket, JoinGroupResponse(member_id=member_id, error_code=error))


def answer_join(
    group: ClassicGroup,
    member: ClassicMember,
    ticket: Ticket,
    outcome: Outcome,
    *,
    skip: bool = False,
) -> None:
    """Answer a join with the generation; with `skip` the leader keeps its assignment (KIP-814)."""
    response = join_response(group, member)
    response.skip_assignment = skip
    outcome.reply(ticket, response)


def join_response(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """Say what generation there is; the leader learns of all members, to assign from."""
    protocol_name = group.protocol_name or ""
    members = []
    if group.roster.is_leader(member.member_id):
        members = [
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                metadata=one.metadata(protocol_name),
            )
            for one in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.roster.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def release_parked(
    group: ClassicGroup, member: ClassicMember, error: ErrorCode, outcome: Outcome
) -> None:
    """Answer whatever a member has parked with an error."""
    ticket = group.roster.take_join_ticket(member)
    if ticket is not None:
        refuse_join(ticket, member.member_id, error, outcome)
    fail_sync(member, error, outcome)


def answer_sync(
    group: ClassicGroup, member: ClassicMember, ticket: Ticket, outcome: Outcome
) -> None:
    """Answer a sync with the member's assignment."""
    outcome.reply(
        ticket,
        SyncGroupResponse(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        ),
    )


def fail_sync(member: ClassicMember, error: ErrorCode, outcome: Outcome) -> None:
    """End the sync that a member has parked, if it has one."""
    ticket, member.sync_ticket = member.sync_ticket, None
    if ticket is not None:
        outcome.reply(ticket, SyncGroupResponse(error_code=error))
