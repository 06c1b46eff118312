"""Declares the values of the records of `__consumer_offsets` that hold share groups (KIP-932).

Keys are in `group_records/keys`, versions in `group_records/values`. Nothing but declarations.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT32,
    STRING,
    array,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@message("0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)


@message("0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int = int32()
    metadata_hash: int = int64()


@message("0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The timestamp is of Kafka 4.3 (KIP-1263)."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, tagged="0+", default=0, ignorable=True)


@struct
class ShareGroupTopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


@message("0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[ShareGroupTopicPartitions] = array(ShareGroupTopicPartitions)


@message("0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[ShareGroupTopicPartitions] = array(ShareGroupTopicPartitions)


@struct
class ShareGroupTopicPartitionsInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


@struct
class ShareGroupTopicInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()


@message("0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """Which share partitions have a state at the share coordinator."""

    initializing_topics: list[ShareGroupTopicPartitionsInfo] = array(ShareGroupTopicPartitionsInfo)
    initialized_topics: list[ShareGroupTopicPartitionsInfo] = array(ShareGroupTopicPartitionsInfo)
    deleting_topics: list[ShareGroupTopicInfo] = array(ShareGroupTopicInfo)
