"""Declares the messages of streams groups (KIP-1071): StreamsGroupHeartbeat, StreamsGroupDescribe.

Nothing but declarations: field names, order and versions are facts of the Kafka protocol (4.3).
Struct names that Kafka uses in several messages carry the message's name in front. Used by
`wire.api` and the group coordinator.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT16,
    INT32,
    STRING,
    array,
    boolean,
    error,
    explanation,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    struct_field,
    uint16,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import AUTHORIZED_OPERATIONS_OMITTED

# --- StreamsGroupHeartbeat (88) ---


@struct
class StreamsGroupHeartbeatRequestKeyValue:
    key: str = string()
    value: str = string()


@struct
class StreamsGroupHeartbeatRequestTopicInfo:
    """Of 0 partitions or 0 replicas: as many as the coordinator, or the cluster, decides."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[StreamsGroupHeartbeatRequestKeyValue] = array(
        StreamsGroupHeartbeatRequestKeyValue
    )


@struct
class StreamsGroupHeartbeatRequestEndpoint:
    host: str = string()
    port: int = uint16()


@struct
class StreamsGroupHeartbeatRequestTaskOffset:
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@struct
class StreamsGroupHeartbeatRequestTaskIds:
    subtopology_id: str = string()
    partitions: list[int] = array(INT32)


@struct
class StreamsGroupHeartbeatRequestCopartitionGroup:
    """Topics by their place in the arrays of the subtopology."""

    source_topics: list[int] = array(INT16)
    source_topic_regex: list[int] = array(INT16)
    repartition_source_topics: list[int] = array(INT16)


@struct
class StreamsGroupHeartbeatRequestSubtopology:
    subtopology_id: str = string()
    source_topics: list[str] = array(STRING)
    source_topic_regex: list[str] = array(STRING)
    state_changelog_topics: list[StreamsGroupHeartbeatRequestTopicInfo] = array(
        StreamsGroupHeartbeatRequestTopicInfo
    )
    repartition_sink_topics: list[str] = array(STRING)
    repartition_source_topics: list[StreamsGroupHeartbeatRequestTopicInfo] = array(
        StreamsGroupHeartbeatRequestTopicInfo
    )
    copartition_groups: list[StreamsGroupHeartbeatRequestCopartitionGroup] = array(
        StreamsGroupHeartbeatRequestCopartitionGroup
    )


@struct
class StreamsGroupHeartbeatRequestTopology:
    epoch: int = int32()
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology] = array(
        StreamsGroupHeartbeatRequestSubtopology
    )


@message("0", flexible="0+", api_key=88)
class StreamsGroupHeartbeatRequest:
    """What is null has not changed since the member's last heartbeat."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: StreamsGroupHeartbeatRequestTopology | None = struct_field(
        StreamsGroupHeartbeatRequestTopology, nullable="0+", default=None
    )
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = array(
        StreamsGroupHeartbeatRequestTaskIds, nullable="0+", default=None
    )
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = array(
        StreamsGroupHeartbeatRequestTaskIds, nullable="0+", default=None
    )
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = array(
        StreamsGroupHeartbeatRequestTaskIds, nullable="0+", default=None
    )
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = struct_field(
        StreamsGroupHeartbeatRequestEndpoint, nullable="0+", default=None
    )
    client_tags: list[StreamsGroupHeartbeatRequestKeyValue] | None = array(
        StreamsGroupHeartbeatRequestKeyValue, nullable="0+", default=None
    )
    task_offsets: list[StreamsGroupHeartbeatRequestTaskOffset] | None = array(
        StreamsGroupHeartbeatRequestTaskOffset, nullable="0+", default=None
    )
    task_end_offsets: list[StreamsGroupHeartbeatRequestTaskOffset] | None = array(
        StreamsGroupHeartbeatRequestTaskOffset, nullable="0+", default=None
    )
    shutdown_application: bool = boolean()


@struct
class StreamsGroupHeartbeatStatus:
    status_code: int = int8()
    status_detail: str = string()


@struct
class StreamsGroupHeartbeatTopicPartition:
    topic: str = string()
    partitions: list[int] = array(INT32)


@struct
class StreamsGroupHeartbeatTaskIds:
    subtopology_id: str = string()
    partitions: list[int] = array(INT32)


@struct
class StreamsGroupHeartbeatEndpoint:
    host: str = string()
    port: int = uint16()


@struct
class StreamsGroupHeartbeatEndpointToPartitions:
    user_endpoint: StreamsGroupHeartbeatEndpoint = struct_field(StreamsGroupHeartbeatEndpoint)
    active_partitions: list[StreamsGroupHeartbeatTopicPartition] = array(
        StreamsGroupHeartbeatTopicPartition
    )
    standby_partitions: list[StreamsGroupHeartbeatTopicPartition] = array(
        StreamsGroupHeartbeatTopicPartition
    )


@message("0", flexible="0+", api_key=88)
class StreamsGroupHeartbeatResponse:
    """What is null has not changed since the member's last heartbeat."""

    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[StreamsGroupHeartbeatStatus] | None = array(
        StreamsGroupHeartbeatStatus, nullable="0+"
    )
    active_tasks: list[StreamsGroupHeartbeatTaskIds] | None = array(
        StreamsGroupHeartbeatTaskIds, nullable="0+", default=None
    )
    standby_tasks: list[StreamsGroupHeartbeatTaskIds] | None = array(
        StreamsGroupHeartbeatTaskIds, nullable="0+", default=None
    )
    warmup_tasks: list[StreamsGroupHeartbeatTaskIds] | None = array(
        StreamsGroupHeartbeatTaskIds, nullable="0+", default=None
    )
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[StreamsGroupHeartbeatEndpointToPartitions] | None = array(
        StreamsGroupHeartbeatEndpointToPartitions, nullable="0+", default=None
    )


# --- StreamsGroupDescribe (89) ---


@message("0", flexible="0+", api_key=89)
class StreamsGroupDescribeRequest:
    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


@struct
class StreamsGroupDescribeKeyValue:
    key: str = string()
    value: str = string()


@struct
class StreamsGroupDescribeTopicInfo:
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[StreamsGroupDescribeKeyValue] = array(StreamsGroupDescribeKeyValue)


@struct
class StreamsGroupDescribeSubtopology:
    subtopology_id: str = string()
    source_topics: list[str] = array(STRING)
    repartition_sink_topics: list[str] = array(STRING)
    state_changelog_topics: list[StreamsGroupDescribeTopicInfo] = array(
        StreamsGroupDescribeTopicInfo
    )
    repartition_source_topics: list[StreamsGroupDescribeTopicInfo] = array(
        StreamsGroupDescribeTopicInfo
    )


@struct
class StreamsGroupDescribeTopology:
    epoch: int = int32()
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = array(
        StreamsGroupDescribeSubtopology, nullable="0+", default=None
    )


@struct
class StreamsGroupDescribeEndpoint:
    host: str = string()
    port: int = uint16()


@struct
class StreamsGroupDescribeTaskOffset:
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@struct
class StreamsGroupDescribeTaskIds:
    subtopology_id: str = string()
    partitions: list[int] = array(INT32)


@struct
class StreamsGroupDescribeAssignment:
    active_tasks: list[StreamsGroupDescribeTaskIds] = array(StreamsGroupDescribeTaskIds)
    standby_tasks: list[StreamsGroupDescribeTaskIds] = array(StreamsGroupDescribeTaskIds)
    warmup_tasks: list[StreamsGroupDescribeTaskIds] = array(StreamsGroupDescribeTaskIds)


@struct
class StreamsGroupDescribeMember:
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: StreamsGroupDescribeEndpoint | None = struct_field(
        StreamsGroupDescribeEndpoint, nullable="0+", default=None
    )
    client_tags: list[StreamsGroupDescribeKeyValue] = array(StreamsGroupDescribeKeyValue)
    task_offsets: list[StreamsGroupDescribeTaskOffset] = array(StreamsGroupDescribeTaskOffset)
    task_end_offsets: list[StreamsGroupDescribeTaskOffset] = array(StreamsGroupDescribeTaskOffset)
    assignment: StreamsGroupDescribeAssignment = struct_field(StreamsGroupDescribeAssignment)
    target_assignment: StreamsGroupDescribeAssignment = struct_field(StreamsGroupDescribeAssignment)
    is_classic: bool = boolean()


@struct
class StreamsGroupDescribeDescribedGroup:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: StreamsGroupDescribeTopology | None = struct_field(
        StreamsGroupDescribeTopology, nullable="0+", default=None
    )
    members: list[StreamsGroupDescribeMember] = array(StreamsGroupDescribeMember)
    authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)


@message("0", flexible="0+", api_key=89)
class StreamsGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: list[StreamsGroupDescribeDescribedGroup] = array(StreamsGroupDescribeDescribedGroup)
