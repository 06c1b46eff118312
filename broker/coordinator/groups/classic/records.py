"""Classic groups as records of `__consumer_offsets`, and back."""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember
from kraftrio.broker.coordinator.outcome import CoordinatorRecord
from kraftrio.wire.messages.group_records.classic import (
    GroupMetadataValue,
    MemberMetadata,
    encode_group_key,
    encode_group_value,
)


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Make the group that a record describes: Empty without members, else Stable."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.roster.leader_id = value.leader
    if value.members:
        group.state = GroupState.STABLE
    for member in value.members:
        rebalance_timeout_ms = member.rebalance_timeout
        if rebalance_timeout_ms == -1:
            rebalance_timeout_ms = member.session_timeout
        group.roster.add(
            ClassicMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout,
                protocols=((value.protocol or "", member.subscription),),
                assignment=member.assignment,
            )
        )
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def group_value(
    group: ClassicGroup, assignments: Mapping[str, bytes] | None = None
) -> GroupMetadataValue:
    """Describe a group; `assignments` defaults to what its members have."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.roster.leader_id,
        current_state_timestamp=group.current_state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name or ""),
                assignment=(
                    member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b"")
                ),
            )
            for member in group.members.values()
        ],
    )


def group_record(
    group: ClassicGroup, assignments: Mapping[str, bytes] | None = None
) -> CoordinatorRecord:
    """Make the record of a group as it is now, or with other assignments."""
    value = encode_group_value(group_value(group, assignments))
    return CoordinatorRecord(encode_group_key(group.group_id), value)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Make the record that removes a group."""
    return CoordinatorRecord(encode_group_key(group_id), None)


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Make the record of a group that is first seen, before anyone has joined."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=group.current_state_timestamp_ms,
    )
    return CoordinatorRecord(encode_group_key(group.group_id), encode_group_value(value))
