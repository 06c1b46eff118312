"""Messages of the metadata quorum and between brokers and controllers.

Vote, Begin/EndQuorumEpoch, FetchSnapshot and DescribeQuorum (KIP-595, KIP-630, KIP-853), broker
and controller registration and heartbeats (KIP-631), AlterPartition (KIP-497), AllocateProducerIds
(KIP-730), UpdateFeatures (KIP-584), Envelope (KIP-590), AssignReplicasToDirs (KIP-858); and the
plain data of control records and of the ``quorum-state`` file.

Declarations only; fields and versions are those of Apache Kafka 4.3. The quorum service, the
controller channel and the handlers of the controller's listener use them. Structs that Kafka
names alike in many messages (TopicData, PartitionData) carry the message's name in front.
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT32,
    UUID,
    Records,
    array,
    boolean,
    bytes_,
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
    uint16,
    uuid,
)
from kraftrio.wire.errors import ErrorCode


@struct
class QuorumNodeEndpoint:
    """Where a node of the quorum listens."""

    node_id: int = int32()
    host: str = string()
    port: int = uint16()


@struct
class LeaderEndpoint:
    """One listener of the leader."""

    name: str = string()
    host: str = string()
    port: int = uint16()


# Vote (key 52)


@struct
class VoteRequestPartitionData:
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("1+", ignorable=True)
    voter_directory_id: bytes = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


@struct
class VoteRequestTopicData:
    topic_name: str = string()
    partitions: list[VoteRequestPartitionData] = array(VoteRequestPartitionData)


@message("0-2", flexible="0+", api_key=52)
class VoteRequest:
    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData] = array(VoteRequestTopicData)


@struct
class VoteResponsePartitionData:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


@struct
class VoteResponseTopicData:
    topic_name: str = string()
    partitions: list[VoteResponsePartitionData] = array(VoteResponsePartitionData)


@message("0-2", flexible="0+", api_key=52)
class VoteResponse:
    error_code: ErrorCode = error()
    topics: list[VoteResponseTopicData] = array(VoteResponseTopicData)
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


# BeginQuorumEpoch (key 53)


@struct
class BeginQuorumEpochRequestPartitionData:
    partition_index: int = int32()
    voter_directory_id: bytes = uuid("1+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


@struct
class BeginQuorumEpochRequestTopicData:
    topic_name: str = string()
    partitions: list[BeginQuorumEpochRequestPartitionData] = array(
        BeginQuorumEpochRequestPartitionData
    )


@message("0-1", flexible="1+", api_key=53)
class BeginQuorumEpochRequest:
    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData] = array(BeginQuorumEpochRequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


@struct
class QuorumEpochPartitionData:
    """A partition in the responses of BeginQuorumEpoch and EndQuorumEpoch."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    leader_id: int = int32()
    leader_epoch: int = int32()


@struct
class QuorumEpochTopicData:
    """A topic in the responses of BeginQuorumEpoch and EndQuorumEpoch."""

    topic_name: str = string()
    partitions: list[QuorumEpochPartitionData] = array(QuorumEpochPartitionData)


@message("0-1", flexible="1+", api_key=53)
class BeginQuorumEpochResponse:
    error_code: ErrorCode = error()
    topics: list[QuorumEpochTopicData] = array(QuorumEpochTopicData)
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


# EndQuorumEpoch (key 54)


@struct
class ReplicaInfo:
    candidate_id: int = int32()
    candidate_directory_id: bytes = uuid()


@struct
class EndQuorumEpochRequestPartitionData:
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(INT32, "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


@struct
class EndQuorumEpochRequestTopicData:
    topic_name: str = string()
    partitions: list[EndQuorumEpochRequestPartitionData] = array(EndQuorumEpochRequestPartitionData)


@message("0-1", flexible="1+", api_key=54)
class EndQuorumEpochRequest:
    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[EndQuorumEpochRequestTopicData] = array(EndQuorumEpochRequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


@message("0-1", flexible="1+", api_key=54)
class EndQuorumEpochResponse:
    error_code: ErrorCode = error()
    topics: list[QuorumEpochTopicData] = array(QuorumEpochTopicData)
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


# DescribeQuorum (key 55)


@struct
class DescribeQuorumRequestPartitionData:
    partition_index: int = int32()


@struct
class DescribeQuorumRequestTopicData:
    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartitionData] = array(DescribeQuorumRequestPartitionData)


@message("0-2", flexible="0+", api_key=55)
class DescribeQuorumRequest:
    topics: list[DescribeQuorumRequestTopicData] = array(DescribeQuorumRequestTopicData)


@struct
class DescribeQuorumReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


@struct
class DescribeQuorumResponsePartitionData:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[DescribeQuorumReplicaState] = array(DescribeQuorumReplicaState)
    observers: list[DescribeQuorumReplicaState] = array(DescribeQuorumReplicaState)


@struct
class DescribeQuorumResponseTopicData:
    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array(
        DescribeQuorumResponsePartitionData
    )


@struct
class DescribeQuorumListener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class DescribeQuorumNode:
    node_id: int = int32()
    listeners: list[DescribeQuorumListener] = array(DescribeQuorumListener)


@message("0-2", flexible="0+", api_key=55)
class DescribeQuorumResponse:
    error_code: ErrorCode = error()
    error_message: str | None = explanation("2+", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[DescribeQuorumNode] = array(DescribeQuorumNode, "2+")


# AlterPartition (key 56)


@struct
class BrokerState:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@struct
class AlterPartitionRequestPartitionData:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(INT32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


@struct
class AlterPartitionRequestTopicData:
    topic_id: bytes = uuid()
    partitions: list[AlterPartitionRequestPartitionData] = array(AlterPartitionRequestPartitionData)


@message("2-3", flexible="0+", api_key=56)
class AlterPartitionRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopicData] = array(AlterPartitionRequestTopicData)


@struct
class AlterPartitionResponsePartitionData:
    partition_index: int = int32()
    error_code: ErrorCode = error()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(INT32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


@struct
class AlterPartitionResponseTopicData:
    topic_id: bytes = uuid()
    partitions: list[AlterPartitionResponsePartitionData] = array(
        AlterPartitionResponsePartitionData
    )


@message("2-3", flexible="0+", api_key=56)
class AlterPartitionResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    topics: list[AlterPartitionResponseTopicData] = array(AlterPartitionResponseTopicData)


# UpdateFeatures (key 57)


@struct
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@message("0-2", flexible="0+", api_key=57)
class UpdateFeaturesRequest:
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@struct
class UpdatableFeatureResult:
    feature: str = string()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@message("0-2", flexible="0+", api_key=57)
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)


# Envelope (key 58)


@message("0", flexible="0+", api_key=58)
class EnvelopeRequest:
    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable="0+")
    client_host_address: bytes = bytes_()


@message("0", flexible="0+", api_key=58)
class EnvelopeResponse:
    response_data: bytes | None = bytes_(nullable="0+", default=None)
    error_code: ErrorCode = error()


# FetchSnapshot (key 59)


@struct
class FetchSnapshotId:
    """Kafka calls it SnapshotId."""

    end_offset: int = int64()
    epoch: int = int32()


@struct
class PartitionSnapshot:
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: FetchSnapshotId = struct_field(FetchSnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid("1+", tag=0, ignorable=True)


@struct
class TopicSnapshot:
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


@message("0-1", flexible="0+", api_key=59)
class FetchSnapshotRequest:
    cluster_id: str | None = string(nullable="0+", tag=0, default=None)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFF_FFFF)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


@struct
class FetchSnapshotLeaderIdAndEpoch:
    leader_id: int = int32()
    leader_epoch: int = int32()


@struct
class PartitionSnapshotResponse:
    """Kafka calls it PartitionSnapshot, too; ``current_leader`` is None when it is not sent."""

    index: int = int32()
    error_code: ErrorCode = error()
    snapshot_id: FetchSnapshotId = struct_field(FetchSnapshotId)
    current_leader: FetchSnapshotLeaderIdAndEpoch | None = struct_field(
        FetchSnapshotLeaderIdAndEpoch, tag=0, default=None
    )
    size: int = int64()
    position: int = int64()
    unaligned_records: Records | None = records()


@struct
class TopicSnapshotResponse:
    name: str = string()
    partitions: list[PartitionSnapshotResponse] = array(PartitionSnapshotResponse)


@message("0-1", flexible="0+", api_key=59)
class FetchSnapshotResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    topics: list[TopicSnapshotResponse] = array(TopicSnapshotResponse)
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


# BrokerRegistration (key 62), BrokerHeartbeat (63), UnregisterBroker (64)


@struct
class Listener:
    """A listener of a broker or controller that registers."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@struct
class Feature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message("0-4", flexible="0+", api_key=62)
class BrokerRegistrationRequest:
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(UUID, "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


@message("0-4", flexible="0+", api_key=62)
class BrokerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    broker_epoch: int = int64(default=-1)


@message("0-2", flexible="0+", api_key=63)
class BrokerHeartbeatRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(UUID, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(UUID, "2+", nullable="2+", tag=1, default=None)


@message("0-2", flexible="0+", api_key=63)
class BrokerHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()


@message("0", flexible="0+", api_key=64)
class UnregisterBrokerRequest:
    broker_id: int = int32()


@message("0", flexible="0+", api_key=64)
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


# AllocateProducerIds (key 67)


@message("0", flexible="0+", api_key=67)
class AllocateProducerIdsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@message("0", flexible="0+", api_key=67)
class AllocateProducerIdsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


# ControllerRegistration (key 70)


@message("0", flexible="0+", api_key=70)
class ControllerRegistrationRequest:
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


@message("0", flexible="0+", api_key=70)
class ControllerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


# AssignReplicasToDirs (key 73)


@struct
class AssignReplicasRequestPartitionData:
    partition_index: int = int32()


@struct
class AssignReplicasRequestTopicData:
    topic_id: bytes = uuid()
    partitions: list[AssignReplicasRequestPartitionData] = array(AssignReplicasRequestPartitionData)


@struct
class AssignReplicasRequestDirectoryData:
    id: bytes = uuid()
    topics: list[AssignReplicasRequestTopicData] = array(AssignReplicasRequestTopicData)


@message("0", flexible="0+", api_key=73)
class AssignReplicasToDirsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[AssignReplicasRequestDirectoryData] = array(
        AssignReplicasRequestDirectoryData
    )


@struct
class AssignReplicasResponsePartitionData:
    partition_index: int = int32()
    error_code: ErrorCode = error()


@struct
class AssignReplicasResponseTopicData:
    topic_id: bytes = uuid()
    partitions: list[AssignReplicasResponsePartitionData] = array(
        AssignReplicasResponsePartitionData
    )


@struct
class AssignReplicasResponseDirectoryData:
    id: bytes = uuid()
    topics: list[AssignReplicasResponseTopicData] = array(AssignReplicasResponseTopicData)


@message("0", flexible="0+", api_key=73)
class AssignReplicasToDirsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    directories: list[AssignReplicasResponseDirectoryData] = array(
        AssignReplicasResponseDirectoryData
    )


# Control records of the metadata log, and the content of the quorum-state file


@struct
class LeaderChangeVoter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


@message("0-1", flexible="0+")
class LeaderChangeMessage:
    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


@message("0", flexible="0+")
class SnapshotHeaderRecord:
    version: int = int16()
    last_contained_log_timestamp: int = int64()


@message("0", flexible="0+")
class SnapshotFooterRecord:
    version: int = int16()


@struct
class QuorumStateVoter:
    voter_id: int = int32()


@message("0-1", flexible="0+")
class QuorumStateData:
    cluster_id: str = string("0")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: bytes = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[QuorumStateVoter] | None = array(QuorumStateVoter, "0", nullable="0")
