"""Declares the membership of share groups (KIP-932), and the calls that administer them.

Owns ShareGroupHeartbeat, ShareGroupDescribe, and Describe-, Alter- and DeleteShareGroupOffsets.

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
    int32,
    int64,
    message,
    string,
    struct,
    struct_field,
    uuid,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import AUTHORIZED_OPERATIONS_OMITTED

# --- ShareGroupHeartbeat (76) ---


@message("1", flexible="0+", api_key=76)
class ShareGroupHeartbeatRequest:
    """Null fields mean unchanged since the last heartbeat; member_epoch 0 joins, -1 leaves."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(STRING, nullable="0+", default=None)


@struct
class ShareGroupHeartbeatTopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


@struct
class ShareGroupHeartbeatAssignment:
    topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = array(
        ShareGroupHeartbeatTopicPartitions
    )


@message("1", flexible="0+", api_key=76)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ShareGroupHeartbeatAssignment | None = struct_field(
        ShareGroupHeartbeatAssignment, nullable="0+", default=None
    )


# --- ShareGroupDescribe (77) ---


@message("1", flexible="0+", api_key=77)
class ShareGroupDescribeRequest:
    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


@struct
class ShareGroupDescribeTopicPartitions:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


@struct
class ShareGroupDescribeAssignment:
    topic_partitions: list[ShareGroupDescribeTopicPartitions] = array(
        ShareGroupDescribeTopicPartitions
    )


@struct
class ShareGroupDescribeMember:
    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    assignment: ShareGroupDescribeAssignment = struct_field(ShareGroupDescribeAssignment)


@struct
class ShareGroupDescribeDescribedGroup:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ShareGroupDescribeMember] = array(ShareGroupDescribeMember)
    authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)


@message("1", flexible="0+", api_key=77)
class ShareGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: list[ShareGroupDescribeDescribedGroup] = array(ShareGroupDescribeDescribedGroup)


# --- DescribeShareGroupOffsets (90) ---


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: list[int] = array(INT32)


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """Null topics mean all."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )


@message("0-1", flexible="0+", api_key=90)
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", ignorable=True, default=-1)
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@message("0-1", flexible="0+", api_key=90)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )


# --- AlterShareGroupOffsets (91) ---


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = int32()
    start_offset: int = int64()


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition
    )


@message("0", flexible="0+", api_key=91)
class AlterShareGroupOffsetsRequest:
    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition
    )


@message("0", flexible="0+", api_key=91)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic
    )


# --- DeleteShareGroupOffsets (92) ---


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = string()


@message("0", flexible="0+", api_key=92)
class DeleteShareGroupOffsetsRequest:
    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@message("0", flexible="0+", api_key=92)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
