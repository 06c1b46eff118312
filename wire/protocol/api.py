"""The table of APIs: key, classes, versions and who serves them.

``APIS`` holds every API that is declared; it is what ApiVersions answers from (KIP-35), together
with what a listener serves. Versions and flexible versions come from the declarations, so the
table adds only what they do not know. Server, clients and tests use it.

Rules:

1. ``min_version`` and ``max_version`` are what is advertised. They differ from what can be decoded
   for Produce (0-2 are advertised and then refused, KIP-896: librdkafka before 2.x turns
   compression off when version 0 is missing) and for an unstable latest version.
2. The request header is version 2 for flexible versions and 1 before; the response header is 1
   and 0, but always 0 for ApiVersions (KIP-511: a client must read it without knowing the version).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kraftrio.wire.codec.message import decode, spec_of
from kraftrio.wire.messages import (
    admin,
    cluster,
    configs,
    data,
    groups,
    quorum,
    raft_voters,
    security,
    share_fetch,
    share_groups,
    share_state,
    streams_groups,
    transactions,
)
from kraftrio.wire.primitives import Buffer


class ApiKey(IntEnum):
    """Every API key that Kafka has given out; 4-7 are gone since Kafka 4.0."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True)
class Api:
    """One API; ``flexible_from`` is None when no version is flexible."""

    key: ApiKey
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    flexible_from: int | None
    listeners: frozenset[str]
    latest_unstable: bool

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact types and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


BROKER = frozenset({"broker"})
CONTROLLER = frozenset({"controller"})
BOTH = BROKER | CONTROLLER


def _api(
    request: type[Any],
    response: type[Any],
    listeners: frozenset[str],
    *,
    min_version: int | None = None,
    latest_unstable: bool = False,
) -> Api:
    spec = spec_of(request)
    assert spec.api_key is not None and spec.versions is not None
    return Api(
        key=ApiKey(spec.api_key),
        name=spec.name.removesuffix("Request"),
        request=request,
        response=response,
        min_version=spec.versions.first if min_version is None else min_version,
        max_version=spec.versions.last - latest_unstable,
        flexible_from=None if spec.flexible.is_empty else spec.flexible.first,
        listeners=listeners,
        latest_unstable=latest_unstable,
    )


_TABLE = (
    # The data path
    _api(data.ProduceRequest, data.ProduceResponse, BROKER, min_version=0),
    _api(data.FetchRequest, data.FetchResponse, BOTH),
    _api(share_fetch.ShareFetchRequest, share_fetch.ShareFetchResponse, BROKER),
    _api(share_fetch.ShareAcknowledgeRequest, share_fetch.ShareAcknowledgeResponse, BROKER),
    _api(data.ListOffsetsRequest, data.ListOffsetsResponse, BROKER),
    _api(data.DeleteRecordsRequest, data.DeleteRecordsResponse, BROKER),
    _api(data.InitProducerIdRequest, data.InitProducerIdResponse, BROKER, latest_unstable=True),
    _api(data.OffsetForLeaderEpochRequest, data.OffsetForLeaderEpochResponse, BROKER),
    _api(data.DescribeProducersRequest, data.DescribeProducersResponse, BROKER),
    # The cluster
    _api(cluster.MetadataRequest, cluster.MetadataResponse, BROKER),
    _api(cluster.FindCoordinatorRequest, cluster.FindCoordinatorResponse, BROKER),
    _api(cluster.ApiVersionsRequest, cluster.ApiVersionsResponse, BOTH),
    _api(cluster.DescribeClusterRequest, cluster.DescribeClusterResponse, BOTH),
    _api(cluster.DescribeTopicPartitionsRequest, cluster.DescribeTopicPartitionsResponse, BROKER),
    _api(
        cluster.GetTelemetrySubscriptionsRequest,
        cluster.GetTelemetrySubscriptionsResponse,
        BROKER,
    ),
    _api(cluster.PushTelemetryRequest, cluster.PushTelemetryResponse, BROKER),
    _api(cluster.ListConfigResourcesRequest, cluster.ListConfigResourcesResponse, BROKER),
    # Topics and partitions
    _api(admin.CreateTopicsRequest, admin.CreateTopicsResponse, BOTH),
    _api(admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, BOTH),
    _api(admin.CreatePartitionsRequest, admin.CreatePartitionsResponse, BOTH),
    _api(admin.ElectLeadersRequest, admin.ElectLeadersResponse, BOTH),
    _api(admin.AlterPartitionReassignmentsRequest, admin.AlterPartitionReassignmentsResponse, BOTH),
    _api(admin.ListPartitionReassignmentsRequest, admin.ListPartitionReassignmentsResponse, BOTH),
    _api(admin.DescribeLogDirsRequest, admin.DescribeLogDirsResponse, BROKER),
    _api(admin.AlterReplicaLogDirsRequest, admin.AlterReplicaLogDirsResponse, BROKER),
    # Configurations, quotas and credentials
    _api(configs.DescribeConfigsRequest, configs.DescribeConfigsResponse, BOTH),
    _api(configs.AlterConfigsRequest, configs.AlterConfigsResponse, BOTH),
    _api(configs.IncrementalAlterConfigsRequest, configs.IncrementalAlterConfigsResponse, BOTH),
    _api(configs.DescribeClientQuotasRequest, configs.DescribeClientQuotasResponse, BROKER),
    _api(configs.AlterClientQuotasRequest, configs.AlterClientQuotasResponse, BOTH),
    _api(
        configs.DescribeUserScramCredentialsRequest,
        configs.DescribeUserScramCredentialsResponse,
        BOTH,
    ),
    _api(configs.AlterUserScramCredentialsRequest, configs.AlterUserScramCredentialsResponse, BOTH),
    # Groups
    _api(groups.OffsetCommitRequest, groups.OffsetCommitResponse, BROKER),
    _api(groups.OffsetFetchRequest, groups.OffsetFetchResponse, BROKER),
    _api(groups.JoinGroupRequest, groups.JoinGroupResponse, BROKER),
    _api(groups.HeartbeatRequest, groups.HeartbeatResponse, BROKER),
    _api(groups.LeaveGroupRequest, groups.LeaveGroupResponse, BROKER),
    _api(groups.SyncGroupRequest, groups.SyncGroupResponse, BROKER),
    _api(groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, BROKER),
    _api(groups.ListGroupsRequest, groups.ListGroupsResponse, BROKER),
    _api(groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, BROKER),
    _api(groups.OffsetDeleteRequest, groups.OffsetDeleteResponse, BROKER),
    _api(groups.ConsumerGroupHeartbeatRequest, groups.ConsumerGroupHeartbeatResponse, BROKER),
    _api(groups.ConsumerGroupDescribeRequest, groups.ConsumerGroupDescribeResponse, BROKER),
    _api(share_groups.ShareGroupHeartbeatRequest, share_groups.ShareGroupHeartbeatResponse, BROKER),
    _api(share_groups.ShareGroupDescribeRequest, share_groups.ShareGroupDescribeResponse, BROKER),
    _api(
        share_groups.DescribeShareGroupOffsetsRequest,
        share_groups.DescribeShareGroupOffsetsResponse,
        BROKER,
    ),
    _api(
        share_groups.AlterShareGroupOffsetsRequest,
        share_groups.AlterShareGroupOffsetsResponse,
        BROKER,
    ),
    _api(
        share_groups.DeleteShareGroupOffsetsRequest,
        share_groups.DeleteShareGroupOffsetsResponse,
        BROKER,
    ),
    _api(
        streams_groups.StreamsGroupHeartbeatRequest,
        streams_groups.StreamsGroupHeartbeatResponse,
        BROKER,
    ),
    _api(
        streams_groups.StreamsGroupDescribeRequest,
        streams_groups.StreamsGroupDescribeResponse,
        BROKER,
    ),
    # The state of share groups
    _api(
        share_state.InitializeShareGroupStateRequest,
        share_state.InitializeShareGroupStateResponse,
        BROKER,
    ),
    _api(share_state.ReadShareGroupStateRequest, share_state.ReadShareGroupStateResponse, BROKER),
    _api(share_state.WriteShareGroupStateRequest, share_state.WriteShareGroupStateResponse, BROKER),
    _api(
        share_state.DeleteShareGroupStateRequest, share_state.DeleteShareGroupStateResponse, BROKER
    ),
    _api(
        share_state.ReadShareGroupStateSummaryRequest,
        share_state.ReadShareGroupStateSummaryResponse,
        BROKER,
    ),
    # Transactions
    _api(transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse, BROKER),
    _api(transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, BROKER),
    _api(transactions.EndTxnRequest, transactions.EndTxnResponse, BROKER),
    _api(transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse, BROKER),
    _api(transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse, BROKER),
    _api(
        transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse, BROKER
    ),
    _api(transactions.ListTransactionsRequest, transactions.ListTransactionsResponse, BROKER),
    # Authentication and authorization
    _api(security.SaslHandshakeRequest, security.SaslHandshakeResponse, BOTH),
    _api(security.SaslAuthenticateRequest, security.SaslAuthenticateResponse, BOTH),
    _api(security.DescribeAclsRequest, security.DescribeAclsResponse, BOTH),
    _api(security.CreateAclsRequest, security.CreateAclsResponse, BOTH),
    _api(security.DeleteAclsRequest, security.DeleteAclsResponse, BOTH),
    _api(security.CreateDelegationTokenRequest, security.CreateDelegationTokenResponse, BOTH),
    _api(security.RenewDelegationTokenRequest, security.RenewDelegationTokenResponse, BOTH),
    _api(security.ExpireDelegationTokenRequest, security.ExpireDelegationTokenResponse, BOTH),
    _api(security.DescribeDelegationTokenRequest, security.DescribeDelegationTokenResponse, BOTH),
    # The metadata quorum and what brokers say to it
    _api(quorum.VoteRequest, quorum.VoteResponse, CONTROLLER),
    _api(quorum.BeginQuorumEpochRequest, quorum.BeginQuorumEpochResponse, CONTROLLER),
    _api(quorum.EndQuorumEpochRequest, quorum.EndQuorumEpochResponse, CONTROLLER),
    _api(quorum.DescribeQuorumRequest, quorum.DescribeQuorumResponse, BOTH),
    _api(quorum.AlterPartitionRequest, quorum.AlterPartitionResponse, CONTROLLER),
    _api(quorum.UpdateFeaturesRequest, quorum.UpdateFeaturesResponse, BOTH),
    _api(quorum.EnvelopeRequest, quorum.EnvelopeResponse, CONTROLLER),
    _api(quorum.FetchSnapshotRequest, quorum.FetchSnapshotResponse, CONTROLLER),
    _api(quorum.BrokerRegistrationRequest, quorum.BrokerRegistrationResponse, CONTROLLER),
    _api(quorum.BrokerHeartbeatRequest, quorum.BrokerHeartbeatResponse, CONTROLLER),
    _api(quorum.UnregisterBrokerRequest, quorum.UnregisterBrokerResponse, BOTH),
    _api(quorum.AllocateProducerIdsRequest, quorum.AllocateProducerIdsResponse, CONTROLLER),
    _api(quorum.ControllerRegistrationRequest, quorum.ControllerRegistrationResponse, CONTROLLER),
    _api(quorum.AssignReplicasToDirsRequest, quorum.AssignReplicasToDirsResponse, CONTROLLER),
    _api(raft_voters.AddRaftVoterRequest, raft_voters.AddRaftVoterResponse, BOTH),
    _api(raft_voters.RemoveRaftVoterRequest, raft_voters.RemoveRaftVoterResponse, BOTH),
    _api(raft_voters.UpdateRaftVoterRequest, raft_voters.UpdateRaftVoterResponse, CONTROLLER),
)

APIS: dict[int, Api] = {api.key: api for api in sorted(_TABLE, key=lambda api: api.key)}


def request_header_version(key: int, version: int) -> int:
    """Return the version of the request header that goes with an API's version."""
    return 2 if APIS[key].is_flexible(version) else 1


def response_header_version(key: int, version: int) -> int:
    """Return the version of the response header that goes with an API's version."""
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if APIS[key].is_flexible(version) else 0


def decode_request(api: Api, version: int, buf: Buffer, pos: int = 0) -> Any:
    """Decode the body of a request; bytes after it are ignored, as Kafka does.

    Raises:
        RemoteProtocolError: it is malformed, or the version cannot be decoded.
    """
    request, _ = decode(api.request, version, buf, pos)
    return request
