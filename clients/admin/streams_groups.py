"""The admin client's part for streams groups: their members, tasks and topologies.

Owns `StreamsGroupAdmin`, which programs reach as `Admin.streams_groups`. Listing and deleting
groups, and their offsets, are the same as for consumer groups, and are `Admin`'s.

Called by: `admin`. KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.clients.admin.calls import Begin, describe_one, finish, for_each_group
from kraftrio.clients.admin.types import (
    Results,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsSubtopology,
    StreamsTasks,
)
from kraftrio.clients.arguments.several import Texts
from kraftrio.clients.arguments.times import Duration
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeAssignment,
    StreamsGroupDescribeDescribedGroup,
    StreamsGroupDescribeMember,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeTaskIds,
    StreamsGroupDescribeTopology,
)


class StreamsGroupAdmin:
    """Administers streams groups.

    Args:
        begin: begins a call, which may take some milliseconds at most.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    async def describe(
        self,
        group_ids: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, StreamsGroupDescription]:
        """Return streams groups' states, topologies and members.

        Raises:
            GroupIdNotFoundError, ...: for a group, if `raise_errors`; other kinds count as unknown.
        """
        calls, deadline = self._begin(timeout_ms)

        async def ask(group_id: str) -> StreamsGroupDescription:
            request = StreamsGroupDescribeRequest(group_ids=[group_id])
            node_id, reported = await describe_one(calls, group_id, request, deadline)
            return _description(reported, node_id)

        return finish(await for_each_group(group_ids, ask), raise_errors)


def _description(
    reported: StreamsGroupDescribeDescribedGroup, node_id: int
) -> StreamsGroupDescription:
    topology = reported.topology
    return StreamsGroupDescription(
        reported.group_id,
        reported.group_state,
        node_id,
        tuple(_member(member) for member in reported.members),
        None if topology is None else topology.epoch,
        () if topology is None else _subtopologies(topology),
        reported.group_epoch,
        reported.assignment_epoch,
    )


def _subtopologies(topology: StreamsGroupDescribeTopology) -> tuple[StreamsSubtopology, ...]:
    return tuple(
        StreamsSubtopology(
            each.subtopology_id,
            tuple(each.source_topics),
            tuple(each.repartition_sink_topics),
            tuple(topic.name for topic in each.state_changelog_topics),
            tuple(topic.name for topic in each.repartition_source_topics),
        )
        for each in topology.subtopologies or ()
    )


def _member(member: StreamsGroupDescribeMember) -> StreamsMemberDescription:
    endpoint = member.user_endpoint
    return StreamsMemberDescription(
        member.member_id,
        member.member_epoch,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.process_id,
        member.topology_epoch,
        None if endpoint is None else (endpoint.host, endpoint.port),
        {tag.key: tag.value for tag in member.client_tags},
        _tasks(member.assignment),
        _tasks(member.target_assignment),
        member.is_classic,
        member.rack_id,
    )


def _tasks(assignment: StreamsGroupDescribeAssignment) -> StreamsTasks:
    return StreamsTasks(
        _ids(assignment.active_tasks),
        _ids(assignment.standby_tasks),
        _ids(assignment.warmup_tasks),
    )


def _ids(tasks: Iterable[StreamsGroupDescribeTaskIds]) -> dict[str, tuple[int, ...]]:
    return {each.subtopology_id: tuple(each.partitions) for each in tasks}
