"""Messages about the cluster: ApiVersions, Metadata, FindCoordinator, DescribeCluster,
DescribeTopicPartitions, the telemetry APIs and ListConfigResources.

Declarations only; fields and versions are those of Apache Kafka 4.3. Handlers and clients use
them.

Version notes:

- ApiVersions: a request of a version we do not know is answered with version 0 of the response
  and error 35; its response header is always version 0 (KIP-511, ``api`` knows).
- Metadata 0 asks for all topics with an empty list, 1 and later with null; 10 adds topic ids
  (KIP-516), 12 lets clients ask by id alone, 13 adds the top-level error (KIP-1102).
- FindCoordinator 4 looks up many keys in one request (KIP-699).
"""

from __future__ import annotations

from kraftrio.wire.codec.message import (
    INT8,
    INT32,
    STRING,
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
    string,
    struct,
    struct_field,
    uuid,
)
from kraftrio.wire.errors import ErrorCode

NO_AUTHORIZED_OPERATIONS = -(1 << 31)
"""The bit field of authorized operations when the client did not ask for it."""


# Metadata (key 3)


@struct
class MetadataRequestTopic:
    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


@message("0-13", flexible="9+", api_key=3)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@struct
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: ErrorCode = error()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    offline_replicas: list[int] = array(INT32, "5+", ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: ErrorCode = error()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=NO_AUTHORIZED_OPERATIONS)


@message("0-13", flexible="9+", api_key=3)
class MetadataResponse:
    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=NO_AUTHORIZED_OPERATIONS)
    error_code: ErrorCode = error("13+", ignorable=True)


# FindCoordinator (key 10)


@message("0-6", flexible="3+", api_key=10)
class FindCoordinatorRequest:
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(STRING, "4+")


@struct
class Coordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+")


@message("0-6", flexible="3+", api_key=10)
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: ErrorCode = error("0-3")
    error_message: str | None = explanation("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


# ApiVersions (key 18)


@message("0-4", flexible="3+", api_key=18)
class ApiVersionsRequest:
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@struct
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message("0-4", flexible="3+", api_key=18)
class ApiVersionsResponse:
    error_code: ErrorCode = error()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)


# DescribeCluster (key 60)


@message("0-2", flexible="0+", api_key=60)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@struct
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@message("0-2", flexible="0+", api_key=60)
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = explanation(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)


# GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72), KIP-714


@message("0", flexible="0+", api_key=71)
class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes = uuid()


@message("0", flexible="0+", api_key=71)
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(INT8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(STRING)


@message("0", flexible="0+", api_key=72)
class PushTelemetryRequest:
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


@message("0", flexible="0+", api_key=72)
class PushTelemetryResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()


# ListConfigResources (key 74), KIP-1142; version 0 lists client metrics resources only


@message("0-1", flexible="0+", api_key=74)
class ListConfigResourcesRequest:
    resource_types: list[int] = array(INT8, "1+")


@struct
class ListConfigResource:
    """Kafka calls it ConfigResource; 16 is the type of client metrics."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@message("0-1", flexible="0+", api_key=74)
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    config_resources: list[ListConfigResource] = array(ListConfigResource)


# DescribeTopicPartitions (key 75), KIP-966


@struct
class TopicRequest:
    name: str = string()


@struct
class Cursor:
    topic_name: str = string()
    partition_index: int = int32()


@message("0", flexible="0+", api_key=75)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct_field(Cursor, nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: ErrorCode = error()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = array(INT32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(INT32, nullable="0+", default=None)
    offline_replicas: list[int] = array(INT32)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: ErrorCode = error()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)


@message("0", flexible="0+", api_key=75)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct_field(Cursor, nullable="0+", default=None)
