"""Declares the state of share partitions (KIP-932): what brokers ask the share coordinator, and the
records of `__share_group_state`.

Nothing but declarations: field names, order and versions are facts of the Kafka protocol (4.3).
Struct names that Kafka uses in several messages carry the message's name in front; a state batch is
the same in all of them. Used by `wire.api`, and for the records by the share coordinator.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    array,
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


@struct
class StateBatch:
    """Offsets with one delivery state (0 available, 2 acknowledged, 4 archived) and count."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


# --- InitializeShareGroupState (83) ---


@struct
class InitializeShareGroupStatePartition:
    """A start offset of -1 is not initialized."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


@struct
class InitializeShareGroupStateTopic:
    topic_id: bytes = uuid()
    partitions: list[InitializeShareGroupStatePartition] = array(InitializeShareGroupStatePartition)


@message("0", flexible="0+", api_key=83)
class InitializeShareGroupStateRequest:
    group_id: str = string()
    topics: list[InitializeShareGroupStateTopic] = array(InitializeShareGroupStateTopic)


@struct
class InitializeShareGroupStatePartitionResult:
    partition: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@struct
class InitializeShareGroupStateResult:
    topic_id: bytes = uuid()
    partitions: list[InitializeShareGroupStatePartitionResult] = array(
        InitializeShareGroupStatePartitionResult
    )


@message("0", flexible="0+", api_key=83)
class InitializeShareGroupStateResponse:
    results: list[InitializeShareGroupStateResult] = array(InitializeShareGroupStateResult)


# --- ReadShareGroupState (84) ---


@struct
class ReadShareGroupStatePartition:
    partition: int = int32()
    leader_epoch: int = int32()


@struct
class ReadShareGroupStateTopic:
    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStatePartition] = array(ReadShareGroupStatePartition)


@message("0", flexible="0+", api_key=84)
class ReadShareGroupStateRequest:
    group_id: str = string()
    topics: list[ReadShareGroupStateTopic] = array(ReadShareGroupStateTopic)


@struct
class ReadShareGroupStatePartitionResult:
    partition: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@struct
class ReadShareGroupStateResult:
    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStatePartitionResult] = array(ReadShareGroupStatePartitionResult)


@message("0", flexible="0+", api_key=84)
class ReadShareGroupStateResponse:
    results: list[ReadShareGroupStateResult] = array(ReadShareGroupStateResult)


# --- WriteShareGroupState (85) ---


@struct
class WriteShareGroupStatePartition:
    """A start offset of -1 is not written."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", ignorable=True, default=-1)
    state_batches: list[StateBatch] = array(StateBatch)


@struct
class WriteShareGroupStateTopic:
    topic_id: bytes = uuid()
    partitions: list[WriteShareGroupStatePartition] = array(WriteShareGroupStatePartition)


@message("0-1", flexible="0+", api_key=85)
class WriteShareGroupStateRequest:
    """v1 adds the delivery complete count (KIP-1226)."""

    group_id: str = string()
    topics: list[WriteShareGroupStateTopic] = array(WriteShareGroupStateTopic)


@struct
class WriteShareGroupStatePartitionResult:
    partition: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@struct
class WriteShareGroupStateResult:
    topic_id: bytes = uuid()
    partitions: list[WriteShareGroupStatePartitionResult] = array(
        WriteShareGroupStatePartitionResult
    )


@message("0-1", flexible="0+", api_key=85)
class WriteShareGroupStateResponse:
    results: list[WriteShareGroupStateResult] = array(WriteShareGroupStateResult)


# --- DeleteShareGroupState (86) ---


@struct
class DeleteShareGroupStatePartition:
    partition: int = int32()


@struct
class DeleteShareGroupStateTopic:
    topic_id: bytes = uuid()
    partitions: list[DeleteShareGroupStatePartition] = array(DeleteShareGroupStatePartition)


@message("0", flexible="0+", api_key=86)
class DeleteShareGroupStateRequest:
    group_id: str = string()
    topics: list[DeleteShareGroupStateTopic] = array(DeleteShareGroupStateTopic)


@struct
class DeleteShareGroupStatePartitionResult:
    partition: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)


@struct
class DeleteShareGroupStateResult:
    topic_id: bytes = uuid()
    partitions: list[DeleteShareGroupStatePartitionResult] = array(
        DeleteShareGroupStatePartitionResult
    )


@message("0", flexible="0+", api_key=86)
class DeleteShareGroupStateResponse:
    results: list[DeleteShareGroupStateResult] = array(DeleteShareGroupStateResult)


# --- ReadShareGroupStateSummary (87) ---


@struct
class ReadShareGroupStateSummaryPartition:
    partition: int = int32()
    leader_epoch: int = int32()


@struct
class ReadShareGroupStateSummaryTopic:
    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStateSummaryPartition] = array(
        ReadShareGroupStateSummaryPartition
    )


@message("0-1", flexible="0+", api_key=87)
class ReadShareGroupStateSummaryRequest:
    group_id: str = string()
    topics: list[ReadShareGroupStateSummaryTopic] = array(ReadShareGroupStateSummaryTopic)


@struct
class ReadShareGroupStateSummaryPartitionResult:
    partition: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", ignorable=True, default=-1)


@struct
class ReadShareGroupStateSummaryResult:
    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStateSummaryPartitionResult] = array(
        ReadShareGroupStateSummaryPartitionResult
    )


@message("0-1", flexible="0+", api_key=87)
class ReadShareGroupStateSummaryResponse:
    """v1 adds the delivery complete count (KIP-1226)."""

    results: list[ReadShareGroupStateSummaryResult] = array(ReadShareGroupStateSummaryResult)


# --- Records of __share_group_state ---


@message("0", flexible="none")
class ShareSnapshotKey:
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


@message("0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share partition."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, tagged="0+", default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@message("0", flexible="none")
class ShareUpdateKey:
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


@message("0", flexible="0+")
class ShareUpdateValue:
    """What has changed since the last snapshot, or update; a start offset of -1 has not."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, tagged="0+", default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
