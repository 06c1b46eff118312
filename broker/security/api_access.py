"""The authorization table: which operation on which resource a request of each API needs.

Owns: `API_ACCESS`, and `CONTROLLER_API_ACCESS`, where a controller's listener differs. Every route
of a dispatcher has its line here, or its listener does not start.

Rules
1. What a request does to the cluster, or to the group that it is about, is asked before its handler
   is called (`needs_cluster`, `needs_group`): the whole request is refused, with the error of its
   kind. Any one of a line's permissions lets it in.
2. What it does to each of the resources that it names is for its handler to ask
   (`RequestContext.may`): each is refused by itself, or left out. The line says which operations
   these are (`each`).
3. Requests of a line without permissions are served to everybody (`OPEN`).

As in Apache Kafka's KafkaApis and ControllerApis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftrio.broker.security.authorizer import AclOperation, ResourceType
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import ApiKey


class Permission(NamedTuple):
    """An operation on some type of resource."""

    operation: AclOperation
    resource_type: ResourceType


@dataclass(frozen=True, slots=True)
class Access:
    """What one API needs.

    Attributes:
        permissions: what the dispatcher asks for; one of them lets a request in.
        name_field: where a request names the one resource that they are about; None: they are
            about the cluster.
        asked_by_handler: what is asked for each resource that a request names.
    """

    permissions: tuple[Permission, ...] = ()
    name_field: str | None = None
    asked_by_handler: tuple[Permission, ...] = ()

    def and_each(self, *permissions: Permission) -> Access:
        """Return this, with what the handler asks for besides."""
        return Access(self.permissions, self.name_field, permissions)


REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""How a request is refused that may not do something to a resource."""

_READ = AclOperation.READ
_WRITE = AclOperation.WRITE
_CREATE = AclOperation.CREATE
_DELETE = AclOperation.DELETE
_ALTER = AclOperation.ALTER
_DESCRIBE = AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS = AclOperation.DESCRIBE_CONFIGS
_ALTER_CONFIGS = AclOperation.ALTER_CONFIGS


def needs_cluster(*operations: AclOperation) -> Access:
    """What is done to the cluster."""
    return Access(tuple(Permission(one, ResourceType.CLUSTER) for one in operations))


def needs_group(operation: AclOperation) -> Access:
    """What is done to the group that a request is about."""
    return Access((Permission(operation, ResourceType.GROUP),), "group_id")


def each(*permissions: Permission) -> Access:
    """What is done to each of the resources that a request names, or that its answer shows."""
    return Access(asked_by_handler=permissions)


def topic(operation: AclOperation) -> Permission:
    """An operation on a topic."""
    return Permission(operation, ResourceType.TOPIC)


def group(operation: AclOperation) -> Permission:
    """An operation on a group."""
    return Permission(operation, ResourceType.GROUP)


def cluster(operation: AclOperation) -> Permission:
    """An operation on the cluster."""
    return Permission(operation, ResourceType.CLUSTER)


def transactional_id(operation: AclOperation) -> Permission:
    """An operation on a transactional id."""
    return Permission(operation, ResourceType.TRANSACTIONAL_ID)


OPEN: Final = Access()

API_ACCESS: Final[Mapping[ApiKey, Access]] = {
    # The data path
    ApiKey.PRODUCE: each(topic(_WRITE), transactional_id(_WRITE)),
    ApiKey.FETCH: each(topic(_READ), cluster(_CLUSTER_ACTION)),
    ApiKey.SHARE_FETCH: each(group(_READ), topic(_READ)),
    ApiKey.SHARE_ACKNOWLEDGE: each(group(_READ), topic(_READ)),
    ApiKey.LIST_OFFSETS: each(topic(_DESCRIBE)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: each(cluster(_CLUSTER_ACTION), topic(_DESCRIBE)),
    ApiKey.DELETE_RECORDS: each(topic(_DELETE)),
    ApiKey.INIT_PRODUCER_ID: each(
        transactional_id(_WRITE),
        transactional_id(AclOperation.TWO_PHASE_COMMIT),
        cluster(AclOperation.IDEMPOTENT_WRITE),
        topic(_WRITE),
    ),
    ApiKey.DESCRIBE_PRODUCERS: each(topic(_READ)),
    # The cluster
    ApiKey.API_VERSIONS: OPEN,
    ApiKey.METADATA: each(topic(_DESCRIBE), cluster(_CREATE), topic(_CREATE)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: each(topic(_DESCRIBE)),
    ApiKey.DESCRIBE_CLUSTER: OPEN,
    ApiKey.DESCRIBE_QUORUM: needs_cluster(_DESCRIBE),
    ApiKey.UPDATE_FEATURES: needs_cluster(_ALTER),
    ApiKey.UNREGISTER_BROKER: needs_cluster(_ALTER),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: OPEN,
    ApiKey.PUSH_TELEMETRY: OPEN,
    # Topics and partitions
    ApiKey.CREATE_TOPICS: each(cluster(_CREATE), topic(_CREATE), topic(_DESCRIBE_CONFIGS)),
    ApiKey.DELETE_TOPICS: each(cluster(_DELETE), topic(_DELETE), topic(_DESCRIBE)),
    ApiKey.CREATE_PARTITIONS: each(topic(_ALTER)),
    ApiKey.ELECT_LEADERS: needs_cluster(_ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: needs_cluster(_ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: needs_cluster(_DESCRIBE),
    ApiKey.DESCRIBE_LOG_DIRS: needs_cluster(_DESCRIBE),
    ApiKey.ALTER_REPLICA_LOG_DIRS: needs_cluster(_ALTER),
    # Configurations and quotas
    ApiKey.DESCRIBE_CONFIGS: each(
        cluster(_DESCRIBE_CONFIGS), topic(_DESCRIBE_CONFIGS), group(_DESCRIBE_CONFIGS)
    ),
    ApiKey.ALTER_CONFIGS: each(
        cluster(_ALTER_CONFIGS), topic(_ALTER_CONFIGS), group(_ALTER_CONFIGS)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: each(
        cluster(_ALTER_CONFIGS), topic(_ALTER_CONFIGS), group(_ALTER_CONFIGS)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: needs_cluster(_DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: needs_cluster(_DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: needs_cluster(_ALTER_CONFIGS),
    # Groups
    ApiKey.FIND_COORDINATOR: each(
        group(_DESCRIBE), transactional_id(_DESCRIBE), cluster(_CLUSTER_ACTION)
    ),
    ApiKey.JOIN_GROUP: needs_group(_READ),
    ApiKey.SYNC_GROUP: needs_group(_READ),
    ApiKey.HEARTBEAT: needs_group(_READ),
    ApiKey.LEAVE_GROUP: needs_group(_READ),
    ApiKey.OFFSET_COMMIT: needs_group(_READ).and_each(topic(_READ)),
    ApiKey.OFFSET_FETCH: each(group(_DESCRIBE), topic(_DESCRIBE)),
    ApiKey.OFFSET_DELETE: needs_group(_DELETE).and_each(topic(_READ)),
    ApiKey.DESCRIBE_GROUPS: each(group(_DESCRIBE)),
    ApiKey.LIST_GROUPS: each(cluster(_DESCRIBE), group(_DESCRIBE)),
    ApiKey.DELETE_GROUPS: each(group(_DELETE)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: needs_group(_READ).and_each(topic(_DESCRIBE)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: each(group(_DESCRIBE), topic(_DESCRIBE)),
    ApiKey.SHARE_GROUP_HEARTBEAT: needs_group(_READ).and_each(topic(_DESCRIBE)),
    ApiKey.SHARE_GROUP_DESCRIBE: each(group(_DESCRIBE), topic(_DESCRIBE)),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: each(group(_DESCRIBE), topic(_DESCRIBE)),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: each(group(_READ), topic(_READ)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: each(group(_DELETE), topic(_READ)),
    ApiKey.STREAMS_GROUP_HEARTBEAT: needs_group(_READ).and_each(topic(_DESCRIBE), topic(_CREATE)),
    ApiKey.STREAMS_GROUP_DESCRIBE: each(group(_DESCRIBE), topic(_DESCRIBE)),
    # The state of share groups, between brokers
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: needs_cluster(_CLUSTER_ACTION),
    ApiKey.READ_SHARE_GROUP_STATE: needs_cluster(_CLUSTER_ACTION),
    ApiKey.WRITE_SHARE_GROUP_STATE: needs_cluster(_CLUSTER_ACTION),
    ApiKey.DELETE_SHARE_GROUP_STATE: needs_cluster(_CLUSTER_ACTION),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: needs_cluster(_CLUSTER_ACTION),
    # Transactions
    ApiKey.ADD_PARTITIONS_TO_TXN: each(
        transactional_id(_WRITE), topic(_WRITE), cluster(_CLUSTER_ACTION)
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: each(transactional_id(_WRITE), group(_READ)),
    ApiKey.END_TXN: each(transactional_id(_WRITE)),
    ApiKey.TXN_OFFSET_COMMIT: each(transactional_id(_WRITE), group(_READ), topic(_READ)),
    ApiKey.WRITE_TXN_MARKERS: needs_cluster(_ALTER, _CLUSTER_ACTION),
    ApiKey.LIST_TRANSACTIONS: each(transactional_id(_DESCRIBE)),
    ApiKey.DESCRIBE_TRANSACTIONS: each(transactional_id(_DESCRIBE), topic(_DESCRIBE)),
    # Authentication, ACLs, credentials
    ApiKey.SASL_HANDSHAKE: OPEN,
    ApiKey.SASL_AUTHENTICATE: OPEN,
    ApiKey.DESCRIBE_ACLS: needs_cluster(_DESCRIBE),
    ApiKey.CREATE_ACLS: needs_cluster(_ALTER),
    ApiKey.DELETE_ACLS: needs_cluster(_ALTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: needs_cluster(_DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: needs_cluster(_ALTER),
    # A token of one's own needs no permission.
    ApiKey.CREATE_DELEGATION_TOKEN: each(Permission(AclOperation.CREATE_TOKENS, ResourceType.USER)),
    ApiKey.RENEW_DELEGATION_TOKEN: OPEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN: OPEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: each(
        Permission(_DESCRIBE, ResourceType.DELEGATION_TOKEN),
        Permission(AclOperation.DESCRIBE_TOKENS, ResourceType.USER),
    ),
    # Between the nodes of the cluster
    ApiKey.ENVELOPE: needs_cluster(_CLUSTER_ACTION),
    ApiKey.VOTE: needs_cluster(_CLUSTER_ACTION),
    ApiKey.BEGIN_QUORUM_EPOCH: needs_cluster(_CLUSTER_ACTION),
    ApiKey.END_QUORUM_EPOCH: needs_cluster(_CLUSTER_ACTION),
    ApiKey.FETCH_SNAPSHOT: needs_cluster(_CLUSTER_ACTION),
    ApiKey.ADD_RAFT_VOTER: needs_cluster(_ALTER),
    ApiKey.REMOVE_RAFT_VOTER: needs_cluster(_ALTER),
    ApiKey.UPDATE_RAFT_VOTER: needs_cluster(_CLUSTER_ACTION),
    ApiKey.BROKER_REGISTRATION: needs_cluster(_CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: needs_cluster(_CLUSTER_ACTION),
    ApiKey.ALTER_PARTITION: needs_cluster(_CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: needs_cluster(_CLUSTER_ACTION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: needs_cluster(_CLUSTER_ACTION),
}

CONTROLLER_API_ACCESS: Final[Mapping[ApiKey, Access]] = {
    **API_ACCESS,
    ApiKey.FETCH: needs_cluster(_CLUSTER_ACTION),  # of the metadata log
    ApiKey.DESCRIBE_CLUSTER: needs_cluster(_ALTER),
}
