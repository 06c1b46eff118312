"""Declares what records of `__consumer_offsets` say of consumer groups (KIP-848, Kafka 4.3).

The keys are in `group_records/keys`. Called by the group coordinator.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT32,
    STRING,
    array,
    bytes_,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
    struct_field,
    uuid,
)


@message("0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The metadata hash (KIP-1101) stands for the topics that the members subscribe to."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


@struct
class ConsumerGroupClassicProtocol:
    name: str = string()
    metadata: bytes = bytes_()


@struct
class ConsumerGroupClassicMember:
    session_timeout_ms: int = int32()
    supported_protocols: list[ConsumerGroupClassicProtocol] = array(ConsumerGroupClassicProtocol)


@message("0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """`classic_member_metadata` is of members that use the classic protocol; others write null."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ConsumerGroupClassicMember | None = struct_field(
        ConsumerGroupClassicMember, nullable="0+", tag=0
    )


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The timestamp says when the assignment was computed (KIP-1263)."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0, ignorable=True)


@struct
class ConsumerGroupTargetTopicPartition:
    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[ConsumerGroupTargetTopicPartition] = array(
        ConsumerGroupTargetTopicPartition
    )


@struct
class ConsumerGroupCurrentTopicPartitions:
    """The epochs say since when the member has each of the partitions (Kafka 4.3)."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)
    assignment_epochs: list[int] | None = array(INT32, nullable="0+", tag=0)


@message("0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[ConsumerGroupCurrentTopicPartitions] = array(
        ConsumerGroupCurrentTopicPartitions
    )
    partitions_pending_revocation: list[ConsumerGroupCurrentTopicPartitions] = array(
        ConsumerGroupCurrentTopicPartitions
    )


@message("0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """What a regular expression matched, in which version of the metadata, and when."""

    topics: list[str] = array(STRING)
    version: int = int64()
    timestamp: int = int64()
