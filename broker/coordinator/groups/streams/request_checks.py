"""What is wrong with a StreamsGroupHeartbeat, whatever its group is like.

Behaviour (Apache Kafka's, with its messages): what 4.3 does not serve yet is refused first (static
members, offsets of tasks, warm-up tasks, patterns of source topics). Called by the handler before a
group is asked.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.modern.member_state import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.streams_groups import StreamsGroupHeartbeatRequest
from kraftrio.wire.topic_names import INTERNAL_TOPICS, check_topic_name

_UNCHANGED = -1  # the rebalance timeout is as before
_BLANKS = bytes(range(ord(" ") + 1)).decode()  # what Java trims


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse a request that is invalid for any group, or asks for what is not served.

    Raises:
        KafkaError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY.
    """
    if request.topology is not None:
        _check_topic_names(request)
    _check_fields(request)


def topics_of(request: StreamsGroupHeartbeatRequest) -> list[str]:
    """The topics that a request's topology names, each once."""
    if request.topology is None:
        return []
    return list(
        dict.fromkeys(
            name
            for one in request.topology.subtopologies
            for name in (
                *one.source_topics,
                *one.repartition_sink_topics,
                *(topic.name for topic in one.repartition_source_topics),
                *(topic.name for topic in one.state_changelog_topics),
            )
        )
    )


def _check_topic_names(request: StreamsGroupHeartbeatRequest) -> None:
    names = topics_of(request)
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology "
            "is prohibited.",
        )
    illegal = [name for name in names if not _is_legal(name)]
    if illegal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Topic names {','.join(illegal)} are not valid topic names.",
        )


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _check_fields(request: StreamsGroupHeartbeatRequest) -> None:
    _check_features(request)
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip(_BLANKS):
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
        )
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if owned.count(None) not in (0, len(owned)):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    topology = request.topology
    if topology is not None and any(one.source_topic_regex for one in topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == _UNCHANGED:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise _invalid(f"{name} must be empty when (re-)joining.")
    topology = request.topology
    if topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    for subtopology in topology.subtopologies:
        for changelog in subtopology.state_changelog_topics:
            if changelog.partitions:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {changelog.name} must have an undefined partition count, "
                    f"but it is set to {changelog.partitions}.",
                )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
