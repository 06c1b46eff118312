"""Declares the messages of consumer groups: membership, committed offsets and their administration.

Owns OffsetCommit, OffsetFetch, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups,
ListGroups, DeleteGroups, OffsetDelete, ConsumerGroupHeartbeat and ConsumerGroupDescribe; nothing
but declarations: field names, order and versions are facts of the Kafka protocol (4.3). Struct
names that Kafka uses in two messages carry the message's name in front. Used by `wire.api`, the
group coordinator and the clients.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT32,
    STRING,
    array,
    boolean,
    bytes_,
    error,
    explanation,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
    struct_field,
    uuid,
)
from kraftrio.wire.errors import ErrorCode

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)

# --- OffsetCommit (8) ---


@struct
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message("2-10", flexible="8+", api_key=8)
class OffsetCommitRequest:
    """v9 serves the consumer protocol's member epochs, v10 names topics by id (KIP-848)."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: ErrorCode = error()


@struct
class OffsetCommitResponseTopic:
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message("2-10", flexible="8+", api_key=8)
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


# --- OffsetFetch (9) ---


@struct
class OffsetFetchRequestTopic:
    name: str = string("0-7")
    partition_indexes: list[int] = array(INT32, "0-7")


@struct
class OffsetFetchRequestTopics:
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(INT32, "8+")


@struct
class OffsetFetchRequestGroup:
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+"
    )


@message("1-10", flexible="6+", api_key=9)
class OffsetFetchRequest:
    """Null topics mean all (v2+); from v8 a request may name several groups (KIP-709)."""

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: ErrorCode = error("0-7")


@struct
class OffsetFetchResponseTopic:
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: ErrorCode = error("8+")


@struct
class OffsetFetchResponseTopics:
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@struct
class OffsetFetchResponseGroup:
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: ErrorCode = error("8+")


@message("1-10", flexible="6+", api_key=9)
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: ErrorCode = error("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


# --- JoinGroup (11) ---


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = bytes_()


@message("0-9", flexible="6+", api_key=11)
class JoinGroupRequest:
    """v4 hands out member ids first (KIP-394), v5 knows static members (KIP-345)."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = bytes_()


@message("0-9", flexible="6+", api_key=11)
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: ErrorCode = error()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


# --- SyncGroup (14) ---


@struct
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = bytes_()


@message("0-5", flexible="4+", api_key=14)
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message("0-5", flexible="4+", api_key=14)
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: ErrorCode = error()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = bytes_()


# --- Heartbeat (12) ---


@message("0-4", flexible="4+", api_key=12)
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message("0-4", flexible="4+", api_key=12)
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: ErrorCode = error()


# --- LeaveGroup (13) ---


@struct
class MemberIdentity:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message("0-5", flexible="4+", api_key=13)
class LeaveGroupRequest:
    """From v3 several members may leave in one request (KIP-345)."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@struct
class MemberResponse:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: ErrorCode = error("3+")


@message("0-5", flexible="4+", api_key=13)
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: ErrorCode = error()
    members: list[MemberResponse] = array(MemberResponse, "3+")


# --- DescribeGroups (15) ---


@message("0-6", flexible="5+", api_key=15)
class DescribeGroupsRequest:
    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


@struct
class DescribedGroup:
    error_code: ErrorCode = error()
    error_message: str | None = explanation("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=AUTHORIZED_OPERATIONS_OMITTED)


@message("0-6", flexible="5+", api_key=15)
class DescribeGroupsResponse:
    """An unknown group is state Dead up to v5 and GROUP_ID_NOT_FOUND from v6 (KIP-1043)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


# --- ListGroups (16) ---


@message("0-5", flexible="3+", api_key=16)
class ListGroupsRequest:
    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message("0-5", flexible="3+", api_key=16)
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: ErrorCode = error()
    groups: list[ListedGroup] = array(ListedGroup)


# --- DeleteGroups (42) ---


@message("0-2", flexible="2+", api_key=42)
class DeleteGroupsRequest:
    groups_names: list[str] = array(STRING)


@struct
class DeletableGroupResult:
    group_id: str = string()
    error_code: ErrorCode = error()


@message("0-2", flexible="2+", api_key=42)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


# --- OffsetDelete (47) ---


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@struct
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message("0", flexible="none", api_key=47)
class OffsetDeleteRequest:
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: ErrorCode = error()


@struct
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message("0", flexible="none", api_key=47)
class OffsetDeleteResponse:
    error_code: ErrorCode = error()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)


# --- ConsumerGroupHeartbeat (68) ---


@struct
class ConsumerGroupHeartbeatTopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


@message("0-1", flexible="0+", api_key=68)
class ConsumerGroupHeartbeatRequest:
    """Null fields mean unchanged since the last heartbeat; member_epoch 0 joins (KIP-848)."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(STRING, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = array(
        ConsumerGroupHeartbeatTopicPartitions, nullable="0+", default=None
    )


@struct
class ConsumerGroupHeartbeatAssignment:
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = array(
        ConsumerGroupHeartbeatTopicPartitions
    )


@message("0-1", flexible="0+", api_key=68)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ConsumerGroupHeartbeatAssignment | None = struct_field(
        ConsumerGroupHeartbeatAssignment, nullable="0+", default=None
    )


# --- ConsumerGroupDescribe (69) ---


@message("0-1", flexible="0+", api_key=69)
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


@struct
class ConsumerGroupDescribeTopicPartitions:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


@struct
class ConsumerGroupDescribeAssignment:
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = array(
        ConsumerGroupDescribeTopicPartitions
    )


@struct
class ConsumerGroupDescribeMember:
    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment = struct_field(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = struct_field(
        ConsumerGroupDescribeAssignment
    )
    member_type: int = int8("1+", default=-1, ignorable=True)


@struct
class ConsumerGroupDescribeDescribedGroup:
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupDescribeMember] = array(ConsumerGroupDescribeMember)
    authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)


@message("0-1", flexible="0+", api_key=69)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: list[ConsumerGroupDescribeDescribedGroup] = array(ConsumerGroupDescribeDescribedGroup)
