"""Small pieces of the classic group protocol: what is remembered while records are stored, and how
requests and groups become records and replies.

No decisions: those are `classic/groups`', which is the only caller (besides tests and the edge,
which makes a `Client`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.broker.coordinator.groups.classic.group_state import (
    ClassicGroup,
    ClassicMember,
    GroupState,
    Protocols,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Outcome, Ticket
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records import (
    GroupMetadataValue,
    encode_group_key,
    encode_group_value,
)
from kraftrio.wire.messages.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


@dataclass(frozen=True, slots=True)
class GroupCreated(FollowUp):
    """The record of a new, empty group was to be stored; on failure the joiner hears of it."""

    group_id: str
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class AssignmentStored(FollowUp):
    """The leader's assignment of a generation was to be stored."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberStored(FollowUp):
    """A static member's new id was to be stored, in a stable group that need not rebalance.

    `former` is the member as it was before, to return to on failure.
    """

    group_id: str
    former: ClassicMember
    new_member_id: str
    former_leader: str
    supports_skip_assignment: bool
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request, as far as groups remember it."""

    client_id: str
    client_host: str
    api_version: int


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols by preference; of a name that comes twice the first counts, for one vote."""
    first: dict[str, bytes] = {}
    for protocol in request.protocols:
        first.setdefault(protocol.name, protocol.metadata)
    return tuple(first.items())


def group_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(encode_group_key(group_id), encode_group_value(value))


def update_member(group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest) -> None:
    group.set_protocols(member, protocols_of(request))
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms


def restore_member(group: ClassicGroup, member: ClassicMember, former: ClassicMember) -> None:
    group.set_protocols(member, former.protocols)
    member.rebalance_timeout_ms = former.rebalance_timeout_ms
    member.session_timeout_ms = former.session_timeout_ms
    member.client_id, member.client_host = former.client_id, former.client_host


def refuse_join(ticket: Ticket, member_id: str, error: ErrorCode, outcome: Outcome) -> None:
    outcome.reply(ticket, JoinGroupResponse(member_id=member_id, error_code=error))


def fail_sync(member: ClassicMember, error: ErrorCode, outcome: Outcome) -> None:
    ticket, member.sync_ticket = member.sync_ticket, None
    if ticket is not None:
        outcome.reply(ticket, SyncGroupResponse(error_code=error))


def make_join_response(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    is_leader = group.is_leader(member.member_id)
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=group.join_response_members() if is_leader else [],
    )


def answer_join(
    group: ClassicGroup,
    member: ClassicMember,
    ticket: Ticket,
    outcome: Outcome,
    *,
    skip: bool = False,
) -> None:
    response = make_join_response(group, member)
    response.skip_assignment = skip
    outcome.reply(ticket, response)


def make_sync_response(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
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
