"""Describes streams groups for StreamsGroupDescribe; reads groups and changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup
from kraftrio.broker.coordinator.groups.streams.member import StreamsMember
from kraftrio.broker.coordinator.groups.streams.tasks import Tasks
from kraftrio.broker.coordinator.groups.streams.topology.topology import describe_topology
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeAssignment,
    StreamsGroupDescribeDescribedGroup,
    StreamsGroupDescribeEndpoint,
    StreamsGroupDescribeKeyValue,
    StreamsGroupDescribeMember,
    StreamsGroupDescribeTaskIds,
    StreamsGroupDescribeTopology,
)


def describe_group(group: StreamsGroup) -> StreamsGroupDescribeDescribedGroup:
    """Describe a group; authorized operations are left out."""
    return StreamsGroupDescribeDescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        topology=_topology(group),
        members=each(
            lambda entry: _member(*entry),
            [(member, group.target.of(name)) for name, member in group.members.items()],
        ),
    )


def _topology(group: StreamsGroup) -> StreamsGroupDescribeTopology | None:
    """The topology, with the numbers of partitions once they are known to fit."""
    if group.configured is not None and group.configured.is_ready:
        return group.configured.description()
    return None if group.topology is None else describe_topology(group.topology)


def _member(member: StreamsMember, target: Tasks) -> StreamsGroupDescribeMember:
    metadata, assigned = member.metadata, member.assigned
    endpoint = None
    if metadata.user_endpoint is not None:
        host, port = metadata.user_endpoint
        endpoint = StreamsGroupDescribeEndpoint(host=host, port=port)
    return StreamsGroupDescribeMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=endpoint,
        client_tags=[
            StreamsGroupDescribeKeyValue(key=key, value=value)
            for key, value in metadata.client_tags
        ],
        assignment=_assignment(assigned.active, assigned.standby, assigned.warmup),
        target_assignment=_assignment(target.active, target.standby, target.warmup),
    )


def _assignment(*roles: Mapping[str, Collection[int]]) -> StreamsGroupDescribeAssignment:
    active, standby, warmup = (
        [
            StreamsGroupDescribeTaskIds(subtopology_id=name, partitions=sorted(tasks[name]))
            for name in sorted(tasks)
        ]
        for tasks in roles
    )
    return StreamsGroupDescribeAssignment(
        active_tasks=active, standby_tasks=standby, warmup_tasks=warmup
    )
