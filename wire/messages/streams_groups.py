"""Declares the look-up of streams groups (KIP-1071): StreamsGroupDescribe.

Nothing but declarations: field names, order and versions are facts of the Kafka protocol (4.3).
Struct names that Kafka uses in several messages carry the message's name in front. Used by
`wire.api`.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT32,
    STRING,
    array,
    boolean,
    error,
    explanation,
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
