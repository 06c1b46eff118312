"""Declares the data path of share groups (KIP-932): ShareFetch, ShareAcknowledge.

Nothing but declarations: field names, order and versions are facts of the Kafka protocol (4.3).
Version 2 has the acquire mode (KIP-1206) and renewed locks (KIP-1222).  Struct names that Kafka
uses in several messages carry the message's name in front. Used by `wire.api`.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT8,
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
from kraftrio.wire.messages.data import MAX_INT32, NodeEndpoint


@struct
class AcknowledgementBatch:
    """Offsets with one type for all of them, or one for each."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(INT8)


@struct
class ShareLeaderIdAndEpoch:
    """The leader of a partition; zeros where nothing is to be said of it."""

    leader_id: int = int32()
    leader_epoch: int = int32()


# --- ShareFetch (78) ---


@struct
class ShareFetchPartition:
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct
class ShareFetchTopic:
    topic_id: bytes = uuid()
    partitions: list[ShareFetchPartition] = array(ShareFetchPartition)


@struct
class ShareForgottenTopic:
    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


@message("1-2", flexible="0+", api_key=78)
class ShareFetchRequest:
    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=MAX_INT32)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[ShareFetchTopic] = array(ShareFetchTopic)
    forgotten_topics_data: list[ShareForgottenTopic] = array(ShareForgottenTopic)


@struct
class AcquiredRecords:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@struct
class SharePartitionData:
    """One partition of a share fetch; ``records`` may also be a list of pieces."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    acknowledge_error_code: ErrorCode = error()
    acknowledge_error_message: str | None = explanation(nullable="0+", default=None)
    current_leader: ShareLeaderIdAndEpoch = struct_field(ShareLeaderIdAndEpoch)
    records: Records = records()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@struct
class ShareFetchableTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[SharePartitionData] = array(SharePartitionData)


@message("1-2", flexible="0+", api_key=78)
class ShareFetchResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


# --- ShareAcknowledge (79) ---


@struct
class ShareAcknowledgePartition:
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct
class ShareAcknowledgeTopic:
    topic_id: bytes = uuid()
    partitions: list[ShareAcknowledgePartition] = array(ShareAcknowledgePartition)


@message("1-2", flexible="0+", api_key=79)
class ShareAcknowledgeRequest:
    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[ShareAcknowledgeTopic] = array(ShareAcknowledgeTopic)


@struct
class ShareAcknowledgePartitionData:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    current_leader: ShareLeaderIdAndEpoch = struct_field(ShareLeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[ShareAcknowledgePartitionData] = array(ShareAcknowledgePartitionData)


@message("1-2", flexible="0+", api_key=79)
class ShareAcknowledgeResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
