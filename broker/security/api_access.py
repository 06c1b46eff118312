"""The authorization table: which operation on which resource a request of each API needs.

Owns: `API_ACCESS`, and `CONTROLLER_API_ACCESS`, where a controller's listener differs. Every route
of a dispatcher has its line here, or its listener does not start.

Rules
1. Any one of a line's permissions lets a request in. What it may do to each resource that it names
   is for its handler to ask (`RequestContext.is_authorized`).
2. `_OPEN` requests are served to every principal. So are `_filtered` ones: their handlers look at
   each resource, and leave out or refuse those that the principal may not see.

As in Apache Kafka's KafkaApis and ControllerApis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.wire.protocol.api import ApiKey


class Permission(NamedTuple):
    """An operation on a resource."""

    operation: AclOperation
    resource: Resource


class Access(NamedTuple):
    """What one API needs.

    Attributes:
        permissions: one of these lets a request in.
        is_refused_whole: whether the request of a principal with none of them is refused.
    """

    permissions: tuple[Permission, ...]
    is_refused_whole: bool = True


_TOPIC = Resource(ResourceType.TOPIC)
_GROUP = Resource(ResourceType.GROUP)
_TRANSACTIONAL_ID = Resource(ResourceType.TRANSACTIONAL_ID)
_TOKEN = Resource(ResourceType.DELEGATION_TOKEN)
_USER = Resource(ResourceType.USER)

_READ = AclOperation.READ
_WRITE = AclOperation.WRITE
_CREATE = AclOperation.CREATE
_DELETE = AclOperation.DELETE
_ALTER = AclOperation.ALTER
_DESCRIBE = AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS = AclOperation.DESCRIBE_CONFIGS
_ALTER_CONFIGS = AclOperation.ALTER_CONFIGS


def _needs(*permissions: tuple[AclOperation, Resource]) -> Access:
    return Access(tuple(Permission(*one) for one in permissions))


def _filtered(*permissions: tuple[AclOperation, Resource]) -> Access:
    return Access(tuple(Permission(*one) for one in permissions), is_refused_whole=False)


_OPEN: Final = Access((), is_refused_whole=False)

API_ACCESS: Final[Mapping[ApiKey, Access]] = {
    # The data path
    ApiKey.PRODUCE: _needs((_WRITE, _TOPIC)),
    ApiKey.FETCH: _needs((_READ, _TOPIC), (_CLUSTER_ACTION, CLUSTER)),
    ApiKey.SHARE_FETCH: _needs((_READ, _GROUP)),
    ApiKey.SHARE_ACKNOWLEDGE: _needs((_READ, _GROUP)),
    ApiKey.LIST_OFFSETS: _needs((_DESCRIBE, _TOPIC)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _needs((_CLUSTER_ACTION, CLUSTER), (_DESCRIBE, _TOPIC)),
    ApiKey.DELETE_RECORDS: _needs((_DELETE, _TOPIC)),
    ApiKey.INIT_PRODUCER_ID: _needs(
        (AclOperation.IDEMPOTENT_WRITE, CLUSTER), (_WRITE, _TOPIC), (_WRITE, _TRANSACTIONAL_ID)
    ),
    ApiKey.DESCRIBE_PRODUCERS: _needs((_READ, _TOPIC)),
    # The cluster
    ApiKey.API_VERSIONS: _OPEN,
    ApiKey.METADATA: _filtered((_DESCRIBE, _TOPIC)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _filtered((_DESCRIBE, _TOPIC)),
    ApiKey.DESCRIBE_CLUSTER: _OPEN,
    ApiKey.DESCRIBE_QUORUM: _needs((_DESCRIBE, CLUSTER)),
    ApiKey.UPDATE_FEATURES: _needs((_ALTER, CLUSTER)),
    ApiKey.UNREGISTER_BROKER: _needs((_ALTER, CLUSTER)),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _OPEN,
    # Topics and partitions
    ApiKey.CREATE_TOPICS: _needs((_CREATE, CLUSTER), (_CREATE, _TOPIC)),
    ApiKey.DELETE_TOPICS: _needs((_DELETE, CLUSTER), (_DELETE, _TOPIC)),
    ApiKey.CREATE_PARTITIONS: _needs((_ALTER, _TOPIC)),
    ApiKey.ELECT_LEADERS: _needs((_ALTER, CLUSTER)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _needs((_ALTER, CLUSTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _needs((_DESCRIBE, CLUSTER)),
    ApiKey.DESCRIBE_LOG_DIRS: _needs((_DESCRIBE, CLUSTER)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _needs((_ALTER, CLUSTER)),
    # Configurations and quotas
    ApiKey.DESCRIBE_CONFIGS: _needs(
        (_DESCRIBE_CONFIGS, CLUSTER), (_DESCRIBE_CONFIGS, _TOPIC), (_DESCRIBE_CONFIGS, _GROUP)
    ),
    ApiKey.ALTER_CONFIGS: _needs(
        (_ALTER_CONFIGS, CLUSTER), (_ALTER_CONFIGS, _TOPIC), (_ALTER_CONFIGS, _GROUP)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _needs(
        (_ALTER_CONFIGS, CLUSTER), (_ALTER_CONFIGS, _TOPIC), (_ALTER_CONFIGS, _GROUP)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _needs((_DESCRIBE_CONFIGS, CLUSTER)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _needs((_DESCRIBE_CONFIGS, CLUSTER)),
    ApiKey.ALTER_CLIENT_QUOTAS: _needs((_ALTER_CONFIGS, CLUSTER)),
    # Groups
    ApiKey.FIND_COORDINATOR: _needs(
        (_DESCRIBE, _GROUP), (_DESCRIBE, _TRANSACTIONAL_ID), (_CLUSTER_ACTION, CLUSTER)
    ),
    ApiKey.JOIN_GROUP: _needs((_READ, _GROUP)),
    ApiKey.SYNC_GROUP: _needs((_READ, _GROUP)),
    ApiKey.HEARTBEAT: _needs((_READ, _GROUP)),
    ApiKey.LEAVE_GROUP: _needs((_READ, _GROUP)),
    ApiKey.OFFSET_COMMIT: _needs((_READ, _GROUP)),
    ApiKey.OFFSET_FETCH: _needs((_DESCRIBE, _GROUP)),
    ApiKey.OFFSET_DELETE: _needs((_DELETE, _GROUP)),
    ApiKey.DESCRIBE_GROUPS: _needs((_DESCRIBE, _GROUP)),
    ApiKey.LIST_GROUPS: _filtered((_DESCRIBE, CLUSTER), (_DESCRIBE, _GROUP)),
    ApiKey.DELETE_GROUPS: _needs((_DELETE, _GROUP)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _needs((_READ, _GROUP)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _needs((_DESCRIBE, _GROUP)),
    ApiKey.SHARE_GROUP_HEARTBEAT: _needs((_READ, _GROUP)),
    ApiKey.SHARE_GROUP_DESCRIBE: _needs((_DESCRIBE, _GROUP)),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _needs((_DESCRIBE, _GROUP)),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _needs((_READ, _GROUP)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _needs((_DELETE, _GROUP)),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _needs((_READ, _GROUP)),
    ApiKey.STREAMS_GROUP_DESCRIBE: _needs((_DESCRIBE, _GROUP)),
    # The state of share groups, between brokers
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.READ_SHARE_GROUP_STATE: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.WRITE_SHARE_GROUP_STATE: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.DELETE_SHARE_GROUP_STATE: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _needs((_CLUSTER_ACTION, CLUSTER)),
    # Transactions
    ApiKey.ADD_PARTITIONS_TO_TXN: _needs((_WRITE, _TRANSACTIONAL_ID), (_CLUSTER_ACTION, CLUSTER)),
    ApiKey.ADD_OFFSETS_TO_TXN: _needs((_WRITE, _TRANSACTIONAL_ID)),
    ApiKey.END_TXN: _needs((_WRITE, _TRANSACTIONAL_ID)),
    ApiKey.TXN_OFFSET_COMMIT: _needs((_WRITE, _TRANSACTIONAL_ID)),
    ApiKey.WRITE_TXN_MARKERS: _needs((_ALTER, CLUSTER), (_CLUSTER_ACTION, CLUSTER)),
    ApiKey.LIST_TRANSACTIONS: _filtered((_DESCRIBE, _TRANSACTIONAL_ID)),
    ApiKey.DESCRIBE_TRANSACTIONS: _needs((_DESCRIBE, _TRANSACTIONAL_ID)),
    # Authentication, ACLs, credentials
    ApiKey.SASL_HANDSHAKE: _OPEN,
    ApiKey.SASL_AUTHENTICATE: _OPEN,
    ApiKey.DESCRIBE_ACLS: _needs((_DESCRIBE, CLUSTER)),
    ApiKey.CREATE_ACLS: _needs((_ALTER, CLUSTER)),
    ApiKey.DELETE_ACLS: _needs((_ALTER, CLUSTER)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _needs((_DESCRIBE, CLUSTER)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _needs((_ALTER, CLUSTER)),
    # A token of one's own needs no permission.
    ApiKey.CREATE_DELEGATION_TOKEN: _filtered((AclOperation.CREATE_TOKENS, _USER)),
    ApiKey.RENEW_DELEGATION_TOKEN: _OPEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _OPEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _filtered(
        (_DESCRIBE, _TOKEN), (AclOperation.DESCRIBE_TOKENS, _USER)
    ),
    # Between the nodes of the cluster
    ApiKey.ENVELOPE: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.VOTE: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.BEGIN_QUORUM_EPOCH: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.END_QUORUM_EPOCH: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.FETCH_SNAPSHOT: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.ADD_RAFT_VOTER: _needs((_ALTER, CLUSTER)),
    ApiKey.REMOVE_RAFT_VOTER: _needs((_ALTER, CLUSTER)),
    ApiKey.UPDATE_RAFT_VOTER: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.BROKER_REGISTRATION: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.BROKER_HEARTBEAT: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.ALTER_PARTITION: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.ENVELOPE: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.ALLOCATE_PRODUCER_IDS: _needs((_CLUSTER_ACTION, CLUSTER)),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _needs((_CLUSTER_ACTION, CLUSTER)),
}

CONTROLLER_API_ACCESS: Final[Mapping[ApiKey, Access]] = {
    **API_ACCESS,
    ApiKey.FETCH: _needs((_CLUSTER_ACTION, CLUSTER)),  # of the metadata log
    ApiKey.DESCRIBE_CLUSTER: _needs((_ALTER, CLUSTER)),
}
