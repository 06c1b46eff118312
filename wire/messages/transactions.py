"""Messages of transactions, and the records of ``__transaction_state``.

AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, DescribeTransactions
and ListTransactions (KIP-98, KIP-664, KIP-890); InitProducerId is in ``data``. Declarations only;
fields and versions are those of Apache Kafka 4.3. The transaction coordinator, the log's producer
state and clients use them.

Version notes:

- AddPartitionsToTxn 4 and later are sent by brokers only: a batch of transactions, each possibly
  to be verified alone (KIP-890). Clients send 0-3, whose fields have names of their own.
- EndTxn 5 answers with the producer id and epoch to go on with (transaction.version 2).
- TxnOffsetCommit 3 fences by member and generation (KIP-447).
- WriteTxnMarkers 2 carries the transaction version, which decides how epochs are checked.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT32,
    INT64,
    STRING,
    array,
    boolean,
    error,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)
from kraftrio.wire.errors import ErrorCode

# AddPartitionsToTxn (key 24)


@struct
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: list[int] = array(INT32)


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@message("0-5", flexible="3+", api_key=24)
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: ErrorCode = error()


@struct
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@message("0-5", flexible="3+", api_key=24)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


# AddOffsetsToTxn (key 25)


@message("0-4", flexible="3+", api_key=25)
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message("0-4", flexible="3+", api_key=25)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()


# EndTxn (key 26)


@message("0-5", flexible="3+", api_key=26)
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message("0-5", flexible="3+", api_key=26)
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


# WriteTxnMarkers (key 27)


@struct
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: list[int] = array(INT32)


@struct
class WritableTxnMarker:
    """One marker; ``transaction_result`` is True for commit."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


@message("1-2", flexible="1+", api_key=27)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: ErrorCode = error()


@struct
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message("1-2", flexible="1+", api_key=27)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


# TxnOffsetCommit (key 28)


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message("0-5", flexible="3+", api_key=28)
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: ErrorCode = error()


@struct
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message("0-5", flexible="3+", api_key=28)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


# DescribeTransactions (key 65)


@message("0", flexible="0+", api_key=65)
class DescribeTransactionsRequest:
    transactional_ids: list[str] = array(STRING)


@struct
class DescribeTransactionsTopicData:
    topic: str = string()
    partitions: list[int] = array(INT32)


@struct
class DescribeTransactionsState:
    """Kafka calls it TransactionState."""

    error_code: ErrorCode = error()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[DescribeTransactionsTopicData] = array(DescribeTransactionsTopicData)


@message("0", flexible="0+", api_key=65)
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32()
    transaction_states: list[DescribeTransactionsState] = array(DescribeTransactionsState)


# ListTransactions (key 66)


@message("0-2", flexible="0+", api_key=66)
class ListTransactionsRequest:
    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@struct
class ListTransactionsState:
    """Kafka calls it TransactionState, too."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message("0-2", flexible="0+", api_key=66)
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[ListTransactionsState] = array(ListTransactionsState)


# Records of __transaction_state; on disk an int16 version comes before each key and value


@message("0")
class TransactionLogKey:
    transactional_id: str = string()


@struct
class TransactionLogPartitions:
    """Kafka calls it PartitionsSchema."""

    topic: str = string()
    partition_ids: list[int] = array(INT32)


@message("0-1", flexible="1+")
class TransactionLogValue:
    """``transaction_status`` is the number of the state; the tagged fields are of KIP-890."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[TransactionLogPartitions] | None = array(
        TransactionLogPartitions, nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
