"""Messages of the data path: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
InitProducerId and DescribeProducers.

Declarations only; fields and versions are those of Apache Kafka 4.3. Handlers, replica fetchers
and clients use them.

Version notes:

- Produce 0-2 are advertised but not readable, as in Kafka (KIP-896): clients that find no
  version 0 turn compression off. From 13 on topics are named by id.
- Fetch 12 adds divergence detection (KIP-595), 13 topic ids (KIP-516), 15 moves the replica id to
  ``replica_state`` (KIP-903), 16 adds node endpoints (KIP-951), 17 directory ids (KIP-853),
  18 the follower's high watermark (KIP-1166).
- Tagged structs of a partition are None when they are not sent.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT32,
    Records,
    array,
    boolean,
    error,
    explanation,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    struct_field,
    uuid,
)
from kraftrio.wire.errors import ErrorCode

MAX_INT32 = 0x7FFF_FFFF
MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


# Produce (key 0)


@struct
class PartitionProduceData:
    index: int = int32()
    records: memoryview | None = records(nullable="0+")


@struct
class TopicProduceData:
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message("3-13", flexible="9+", api_key=0)
class ProduceRequest:
    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = int32()
    batch_index_error_message: str | None = explanation(nullable="0+", default=None)


@struct
class PartitionProduceResponse:
    index: int = int32()
    error_code: ErrorCode = error()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = explanation("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct_field(
        LeaderIdAndEpoch, "10+", tag=0, default=None
    )


@struct
class TopicProduceResponse:
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@message("3-13", flexible="9+", api_key=0)
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


# Fetch (key 1)


@struct
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", tag=1, default=MAX_INT64, ignorable=True)


@struct
class FetchTopic:
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = array(INT32)


@struct
class ReplicaState:
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@message("4-18", flexible="12+", api_key=1)
class FetchRequest:
    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct_field(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=MAX_INT32)
    isolation_level: int = int8()
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


@struct
class FetchEpochEndOffset:
    """Where the follower's log leaves the leader's (Kafka calls it EpochEndOffset)."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@struct
class PartitionData:
    """One partition of a fetch; to encode it, ``records`` may also be a list of pieces."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: FetchEpochEndOffset | None = struct_field(
        FetchEpochEndOffset, "12+", tag=0, default=None
    )
    current_leader: LeaderIdAndEpoch | None = struct_field(
        LeaderIdAndEpoch, "12+", tag=1, default=None
    )
    snapshot_id: SnapshotId | None = struct_field(SnapshotId, "12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records(nullable="0+")


@struct
class FetchableTopicResponse:
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@message("4-18", flexible="12+", api_key=1)
class FetchResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


# ListOffsets (key 2)


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


@struct
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message("1-11", flexible="6+", api_key=2)
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message("1-11", flexible="6+", api_key=2)
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


# DeleteRecords (key 21)


@struct
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@struct
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message("0-2", flexible="2+", api_key=21)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: ErrorCode = error()


@struct
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message("0-2", flexible="2+", api_key=21)
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


# InitProducerId (key 22); version 6 (KIP-939) is unstable and not offered


@message("0-6", flexible="2+", api_key=22)
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


@message("0-6", flexible="2+", api_key=22)
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


# OffsetForLeaderEpoch (key 23)


@struct
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message("2-4", flexible="4+", api_key=23)
class OffsetForLeaderEpochRequest:
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class EpochEndOffset:
    error_code: ErrorCode = error()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message("2-4", flexible="4+", api_key=23)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


# DescribeProducers (key 61)


@struct
class DescribeProducersTopicRequest:
    name: str = string()
    partition_indexes: list[int] = array(INT32)


@message("0", flexible="0+", api_key=61)
class DescribeProducersRequest:
    topics: list[DescribeProducersTopicRequest] = array(DescribeProducersTopicRequest)


@struct
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct
class DescribeProducersPartitionResponse:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@struct
class DescribeProducersTopicResponse:
    name: str = string()
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


@message("0", flexible="0+", api_key=61)
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
