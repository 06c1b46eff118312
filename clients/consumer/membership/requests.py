"""What a member of a classic group sends: requests, made from who the member is.

Called by: `membership`. KIP-345 (static members), KIP-792 (generations in subscriptions), KIP-800
(reasons), KIP-881 (racks).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kraftrio.clients.consumer.membership.assignors import (
    Assignor,
    MemberSubscription,
)
from kraftrio.clients.group_offsets import GroupMetadata
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kraftrio.wire.primitives import TopicPartition

PROTOCOL_TYPE = "consumer"

_MAX_REASON_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """The settings of a member, by the names of the Java client."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    rack_id: str | None = None


def join_request(
    member: GroupMetadata,
    config: MembershipConfig,
    assignors: Iterable[Assignor],
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    reason: str,
) -> JoinGroupRequest:
    """Return a JoinGroup that offers all assignors, each with the topics and what is owned."""
    wanted = sorted(topics)
    protocols = [
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=MemberSubscription(
                topics=tuple(wanted),
                user_data=assignor.user_data(wanted),
                owned_partitions=tuple(sorted(owned)),
                generation_id=member.generation_id,
                rack_id=config.rack_id,
            ).encode(),
        )
        for assignor in assignors
    ]
    return JoinGroupRequest(
        group_id=member.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=reason[:_MAX_REASON_CHARACTERS],
    )


def sync_request(
    member: GroupMetadata,
    protocol_name: str | None,
    assignments: Sequence[SyncGroupRequestAssignment],
) -> SyncGroupRequest:
    """Return a SyncGroup; the leader's holds the assignments of all."""
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=list(assignments),
    )


def heartbeat_request(member: GroupMetadata) -> HeartbeatRequest:
    """Return a heartbeat."""
    return HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )


def leave_request(member: GroupMetadata, reason: str) -> LeaveGroupRequest | None:
    """Return what a member leaves with; None for one that is not in the group, or is static."""
    if not member.member_id or member.group_instance_id is not None:
        return None
    identity = MemberIdentity(member_id=member.member_id, reason=reason[:_MAX_REASON_CHARACTERS])
    return LeaveGroupRequest(group_id=member.group_id, members=[identity])
