"""Declares what records of `__consumer_offsets` say of streams groups (KIP-1071, Kafka 4.3).

The keys are in `group_records/keys`. Called by the group coordinator.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT16,
    INT32,
    STRING,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    struct_field,
    uint16,
)


@struct
class StreamsGroupMetadataLastAssignmentConfig:
    key: str = string()
    value: str = string()


@message("0", flexible="0+")
class StreamsGroupMetadataValue:
    """The topology epoch is that of the newest topology whose topics are as they should be."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, default=-1)
    last_assignment_configs: list[StreamsGroupMetadataLastAssignmentConfig] | None = array(
        StreamsGroupMetadataLastAssignmentConfig, nullable="0+", tag=1
    )


@struct
class StreamsGroupMemberMetadataEndpoint:
    host: str = string()
    port: int = uint16()


@struct
class StreamsGroupMemberMetadataKeyValue:
    key: str = string()
    value: str = string()


@message("0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: StreamsGroupMemberMetadataEndpoint | None = struct_field(
        StreamsGroupMemberMetadataEndpoint, nullable="0+", default=None
    )
    client_tags: list[StreamsGroupMemberMetadataKeyValue] = array(
        StreamsGroupMemberMetadataKeyValue
    )


@message("0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The time (KIP-1263) is 0 where it is not known."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0, ignorable=True)


@struct
class StreamsGroupTargetAssignmentTaskIds:
    subtopology_id: str = string()
    partitions: list[int] = array(INT32)


@message("0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[StreamsGroupTargetAssignmentTaskIds] = array(
        StreamsGroupTargetAssignmentTaskIds
    )
    standby_tasks: list[StreamsGroupTargetAssignmentTaskIds] = array(
        StreamsGroupTargetAssignmentTaskIds
    )
    warmup_tasks: list[StreamsGroupTargetAssignmentTaskIds] = array(
        StreamsGroupTargetAssignmentTaskIds
    )


@struct
class StreamsGroupCurrentAssignmentTaskIds:
    """Active tasks have an assignment epoch for each partition, in the same order."""

    subtopology_id: str = string()
    partitions: list[int] = array(INT32)
    assignment_epochs: list[int] | None = array(INT32, nullable="0+", tag=0)


@message("0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[StreamsGroupCurrentAssignmentTaskIds] = array(
        StreamsGroupCurrentAssignmentTaskIds
    )
    standby_tasks: list[StreamsGroupCurrentAssignmentTaskIds] = array(
        StreamsGroupCurrentAssignmentTaskIds
    )
    warmup_tasks: list[StreamsGroupCurrentAssignmentTaskIds] = array(
        StreamsGroupCurrentAssignmentTaskIds
    )
    active_tasks_pending_revocation: list[StreamsGroupCurrentAssignmentTaskIds] = array(
        StreamsGroupCurrentAssignmentTaskIds
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentAssignmentTaskIds] = array(
        StreamsGroupCurrentAssignmentTaskIds
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentAssignmentTaskIds] = array(
        StreamsGroupCurrentAssignmentTaskIds
    )


@struct
class StreamsGroupTopologyTopicConfig:
    key: str = string()
    value: str = string()


@struct
class StreamsGroupTopologyTopicInfo:
    """Of 0 partitions or 0 replicas: as many as the coordinator, or the cluster, decides."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[StreamsGroupTopologyTopicConfig] = array(StreamsGroupTopologyTopicConfig)


@struct
class StreamsGroupTopologyCopartitionGroup:
    """Topics by their place in the arrays of the subtopology."""

    source_topics: list[int] = array(INT16)
    source_topic_regex: list[int] = array(INT16)
    repartition_source_topics: list[int] = array(INT16)


@struct
class StreamsGroupTopologySubtopology:
    subtopology_id: str = string()
    source_topics: list[str] = array(STRING)
    source_topic_regex: list[str] = array(STRING)
    state_changelog_topics: list[StreamsGroupTopologyTopicInfo] = array(
        StreamsGroupTopologyTopicInfo
    )
    repartition_sink_topics: list[str] = array(STRING)
    repartition_source_topics: list[StreamsGroupTopologyTopicInfo] = array(
        StreamsGroupTopologyTopicInfo
    )
    copartition_groups: list[StreamsGroupTopologyCopartitionGroup] = array(
        StreamsGroupTopologyCopartitionGroup
    )


@message("0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: int = int32()
    subtopologies: list[StreamsGroupTopologySubtopology] = array(StreamsGroupTopologySubtopology)
