"""What a member's heartbeat says of its epoch and tasks, against what the group knows.

Called by a heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kraftrio.broker.coordinator.groups.modern.member_state import JOIN_EPOCH
from kraftrio.broker.coordinator.groups.streams.member import StreamsMember
from kraftrio.broker.coordinator.groups.streams.tasks import Tasks, task_sets
from kraftrio.broker.coordinator.groups.streams.topology.configured_topology import (
    ConfiguredTopology,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestTaskIds,
)

_TaskIds = Iterable[StreamsGroupHeartbeatRequestTaskIds]


def check_member_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse a member that is not in its epoch.

    The previous epoch passes, too, if the member has nothing but what it was given then: the
    response with the newer one may have been lost.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch > member.member_epoch:
        relation = "greater"
    else:
        relation = "smaller"
        if epoch == member.previous_member_epoch and _has_only_its_own(member, request):
            return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.member_epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _has_only_its_own(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> bool:
    assigned = member.assigned
    return (
        _are_among(request.active_tasks, assigned.active)
        and _are_among(request.standby_tasks, assigned.standby)
        and _are_among(request.warmup_tasks, assigned.warmup)
    )


def _are_among(tasks: _TaskIds | None, given: Mapping[str, Collection[int]]) -> bool:
    return tasks is not None and all(
        one.subtopology_id in given
        and all(partition in given[one.subtopology_id] for partition in one.partitions)
        for one in tasks
    )


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """What a member says it has; None: it did not say."""
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if None in tasks:
        return None
    return Tasks(
        *(
            task_sets((ids.subtopology_id, ids.partitions) for ids in one)
            for one in tasks
            if one is not None
        )
    )


def check_tasks_exist(tasks: _TaskIds, configured: ConfiguredTopology) -> None:
    """Refuse tasks that the topology does not have; KafkaError INVALID_REQUEST."""
    for one in tasks:
        name = one.subtopology_id
        subtopology = configured.subtopologies.get(name)
        if subtopology is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Subtopology {name} does not exist in the topology."
            )
        for partition in one.partitions:
            if not 0 <= partition < subtopology.task_count:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {partition} for subtopology {name} is invalid. "
                    f"Number of tasks for this subtopology: {subtopology.task_count}",
                )
