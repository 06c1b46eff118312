"""Declares the administrative messages about topics, partitions and log directories.

Owns CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments,
ListPartitionReassignments, DescribeLogDirs and AlterReplicaLogDirs; nothing but declarations:
field names, order and versions are facts of the Kafka protocol (4.3). Used by `wire.api`, the
controller and the broker's admin handlers.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
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
    uuid,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ZERO_UUID

# --- CreateTopics (19) ---


@struct
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


@struct
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message("2-7", flexible="5+", api_key=19)
class CreateTopicsRequest:
    """v5 answers carry the created topic's configs, v7 its id (KIP-525, KIP-516)."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)


@struct
class CreatableTopicConfigs:
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@struct
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: ErrorCode = error()
    error_message: str | None = explanation("1+", nullable="0+", ignorable=True)
    topic_config_error_code: ErrorCode = error("5+", tag=0, tagged="5+", ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


@message("2-7", flexible="5+", api_key=19)
class CreateTopicsResponse:
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


# --- DeleteTopics (20) ---


@struct
class DeleteTopicState:
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


@message("1-6", flexible="4+", api_key=20)
class DeleteTopicsRequest:
    """From v6 topics are named by either their name or their id."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(STRING, "0-5", ignorable=True)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: ErrorCode = error()
    error_message: str | None = explanation("5+", nullable="5+", default=None, ignorable=True)


@message("1-6", flexible="4+", api_key=20)
class DeleteTopicsResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


# --- CreatePartitions (37) ---


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(INT32)


@struct
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )


@message("0-3", flexible="2+", api_key=37)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@message("0-3", flexible="2+", api_key=37)
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


# --- ElectLeaders (43) ---


@struct
class TopicPartitions:
    """The partitions of one topic of an ElectLeaders request."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@message("0-2", flexible="2+", api_key=43)
class ElectLeadersRequest:
    """election_type 0 is preferred, 1 unclean (KIP-460); null topics mean all."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@struct
class PartitionResult:
    partition_id: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@struct
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message("0-2", flexible="2+", api_key=43)
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


# --- AlterPartitionReassignments (45) ---


@struct
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(INT32, nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message("0-1", flexible="0+", api_key=45)
class AlterPartitionReassignmentsRequest:
    """Null replicas cancel a partition's ongoing reassignment (KIP-455)."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@struct
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message("0-1", flexible="0+", api_key=45)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


# --- ListPartitionReassignments (46) ---


@struct
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = array(INT32)


@message("0", flexible="0+", api_key=46)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@struct
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


@struct
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message("0", flexible="0+", api_key=46)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


# --- DescribeLogDirs (35) ---


@struct
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(INT32)


@message("1-5", flexible="2+", api_key=35)
class DescribeLogDirsRequest:
    """Null topics mean all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    error_code: ErrorCode = error()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", default=False, ignorable=True)


@message("1-5", flexible="2+", api_key=35)
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


# --- AlterReplicaLogDirs (34) ---


@struct
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: list[int] = array(INT32)


@struct
class AlterReplicaLogDir:
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message("1-2", flexible="2+", api_key=34)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: ErrorCode = error()


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message("1-2", flexible="2+", api_key=34)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
