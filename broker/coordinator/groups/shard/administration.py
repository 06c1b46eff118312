"""Describes, lists and chooses groups for administration; reads groups and changes nothing.

Rules as in Kafka 4.3: groups that only store offsets are groups (protocol type ""); an unknown
group is Dead up to DescribeGroups v5 and GROUP_ID_NOT_FOUND from v6 (KIP-1043); the protocol and
the members' metadata for it are shown of a Stable group only, assignments in any state.
DescribeGroups is about classic groups. Called by `group_shard`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.broker.coordinator.groups.classic.group_state import (
    CLASSIC_GROUP_TYPE,
    ClassicGroup,
    GroupState,
)
from kraftrio.broker.coordinator.groups.group import Group
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
)

GROUP_TYPES = frozenset({CLASSIC_GROUP_TYPE, "consumer", "share", "streams"})
"""The kinds of group, as ListGroups names them."""

GROUP_STATES = frozenset(
    {*(state.value.lower() for state in GroupState), "assigning", "reconciling", "notready"}
)
"""The states of groups of any kind, in lower case."""

GROUP_ID_NOT_FOUND_VERSION = 6


def describe_group(group_id: str, group: Group | None, *, api_version: int) -> DescribedGroup:
    """Describe a group, or say that no classic one exists; authorized operations are left out."""
    if not isinstance(group, ClassicGroup):
        if api_version >= GROUP_ID_NOT_FOUND_VERSION:
            return DescribedGroup(
                group_id=group_id,
                group_state=GroupState.DEAD.value,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} "
                + ("not found." if group is None else "is not a classic group."),
            )
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    shows_protocol = group.is_in(GroupState.STABLE)
    protocol_name = (group.protocol_name or "") if shows_protocol else ""
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol_name) if shows_protocol else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def choose_groups(
    groups: Iterable[Group], states_filter: Iterable[str], types_filter: Iterable[str]
) -> list[Group]:
    """Choose the groups in one of the states and of one of the types; empty means any.

    Case does not matter, nor does space around a state.
    """
    states = {state.strip().lower() for state in states_filter}
    types = {group_type.lower() for group_type in types_filter}
    return [
        group
        for group in groups
        if (not states or group.state_name.lower() in states)
        and (not types or group.group_type in types)
    ]


def listed_group(group: Group) -> ListedGroup:
    """Give a group's entry in ListGroups."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.group_type,
    )
