"""A request of every API that not everybody may send, and what it takes to send it.

Each is about things of its own: a topic, a group and a transactional id that its sender has some
rights on, others that exist and that it has none on (`hidden...`), and some that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.codec.schema import ARRAY
from kraftrio.wire.protocol.acls import AclOperation, ResourceType
from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.conformance.cases.calls import batch_of

ABSENT_ID = b"\x01" * 16

Right: TypeAlias = tuple[ResourceType, AclOperation]
Fields: TypeAlias = dict[str, Any]

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, CREATE, DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
ALTER, DESCRIBE, CLUSTER_ACTION = (
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
)
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


@dataclass(frozen=True)
class Things:
    """What one request of one sender is about."""

    name: str
    topic_id: bytes = b""
    hidden_topic_id: bytes = b""

    @property
    def topics(self) -> tuple[str, str, str]:
        """One that its sender has rights on, one that it has none on, and one that is not there."""
        return f"{self.name}-topic", f"{self.name}-hidden-topic", f"{self.name}-absent-topic"

    @property
    def ids(self) -> tuple[bytes, bytes, bytes]:
        """The ids of these."""
        return self.topic_id, self.hidden_topic_id, ABSENT_ID

    @property
    def groups(self) -> tuple[str, str]:
        """One that its sender has rights on, and one that it has none on."""
        return f"{self.name}-group", f"{self.name}-hidden-group"

    @property
    def transactional_ids(self) -> tuple[str, str]:
        """The same of transactional ids."""
        return f"{self.name}-id", f"{self.name}-hidden-id"


@dataclass(frozen=True)
class Case:
    """A request, and the rights that let it in.

    `is_told`: what it is answered once it is let in belongs to the case, too.
    """

    key: ApiKey
    rights: tuple[Right, ...]
    fields: Callable[[Things], Fields]
    version: int | None = None
    is_told: bool = True

    def request(self, things: Things) -> Any:
        """Return the request about some things."""
        return message(APIS[self.key].request, self.fields(things))


def message(cls: type, fields: Mapping[str, Any]) -> Any:
    """Return a message, or a part of one, whose parts are given as dicts."""
    values = dict(fields)
    for field in spec_of(cls).fields:
        given = values.get(field.name)
        if isinstance(given, list) and field.kind is ARRAY and isinstance(field.element, type):
            values[field.name] = [message(field.element, one) for one in given]
    return cls(**values)


def _partitions(name: str, of_partition: Fields, *, of_topic: str = "name") -> Any:
    """Fields of a request about partition 0 of each topic."""
    return lambda one: {"topics": [{of_topic: topic, name: [of_partition]} for topic in one.topics]}


def _produced(one: Things, *, by_id: bool = False, **batch: Any) -> Fields:
    data = [{"index": 0, "records": batch_of(b"v", **batch)}]
    named = [{"topic_id": i} for i in one.ids] if by_id else [{"name": n} for n in one.topics]
    transactional_id = one.transactional_ids[0] if batch else None
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{**topic, "partition_data": data} for topic in named],
    }


def _produced_in_transaction(one: Things) -> Fields:
    return _produced(one, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)


def _fetched(one: Things, *, by_id: bool = True, replica_id: int = -1) -> Fields:
    named = [{"topic_id": i} for i in one.ids] if by_id else [{"topic": n} for n in one.topics]
    partitions = [{"partition": 0, "partition_max_bytes": 1 << 20}]
    fields: Fields = {
        "max_bytes": 1 << 20,
        "topics": [{**topic, "partitions": partitions} for topic in named],
    }
    if replica_id >= 0:
        state = message(APIS[ApiKey.FETCH].request, {}).replica_state
        state.replica_id = replica_id
        fields["replica_state"] = state
    return fields


_END_OF_EPOCH = _partitions("partitions", {"partition": 0, "leader_epoch": 0}, of_topic="topic")

_DATA = {
    "produce": Case(ApiKey.PRODUCE, ((TOPIC, WRITE),), _produced, 12),
    "produce by id": Case(
        ApiKey.PRODUCE, ((TOPIC, WRITE),), lambda one: _produced(one, by_id=True)
    ),
    "produce in a transaction": Case(
        ApiKey.PRODUCE, ((TRANSACTIONAL_ID, WRITE),), _produced_in_transaction, 11
    ),
    "fetch": Case(ApiKey.FETCH, ((TOPIC, READ),), lambda one: _fetched(one, by_id=False), 12),
    "fetch by id": Case(ApiKey.FETCH, ((TOPIC, READ),), _fetched),
    "fetch as a follower": Case(
        ApiKey.FETCH, ((CLUSTER, CLUSTER_ACTION),), lambda one: _fetched(one, replica_id=5)
    ),
    "list offsets": Case(
        ApiKey.LIST_OFFSETS,
        ((TOPIC, DESCRIBE),),
        lambda one: {
            "replica_id": -1,
            **_partitions("partitions", {"partition_index": 0, "timestamp": -1})(one),
        },
    ),
    "offset for leader epoch": Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, ((TOPIC, DESCRIBE),), _END_OF_EPOCH
    ),
    "offset for leader epoch, of a broker": Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, ((CLUSTER, CLUSTER_ACTION),), _END_OF_EPOCH
    ),
    "delete records": Case(
        ApiKey.DELETE_RECORDS,
        ((TOPIC, DELETE),),
        lambda one: {
            "timeout_ms": 5000,
            **_partitions("partitions", {"partition_index": 0, "offset": 0})(one),
        },
    ),
    "describe producers": Case(
        ApiKey.DESCRIBE_PRODUCERS,
        ((TOPIC, READ),),
        lambda one: {"topics": [{"name": t, "partition_indexes": [0]} for t in one.topics]},
    ),
    "init producer id": Case(
        ApiKey.INIT_PRODUCER_ID,
        ((CLUSTER, AclOperation.IDEMPOTENT_WRITE),),
        lambda _one: {"transactional_id": None, "transaction_timeout_ms": 1000},
    ),
    "init producer id, of who writes a topic": Case(
        ApiKey.INIT_PRODUCER_ID,
        ((TOPIC, WRITE),),
        lambda _one: {"transactional_id": None, "transaction_timeout_ms": 1000},
    ),
    "init producer id, transactional": Case(
        ApiKey.INIT_PRODUCER_ID,
        ((TRANSACTIONAL_ID, WRITE),),
        lambda one: {
            "transactional_id": one.transactional_ids[0],
            "transaction_timeout_ms": 60_000,
        },
    ),
}

_METADATA = {
    "metadata by name": Case(
        ApiKey.METADATA,
        ((TOPIC, DESCRIBE),),
        lambda one: {
            "topics": [{"name": topic} for topic in one.topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
    ),
    "metadata by id": Case(
        ApiKey.METADATA,
        ((TOPIC, READ),),
        lambda one: {"topics": [{"topic_id": i, "name": None} for i in one.ids]},
    ),
    "metadata of all topics": Case(
        ApiKey.METADATA,
        ((TOPIC, WRITE),),
        lambda _one: {"topics": None, "include_topic_authorized_operations": True},
    ),
    "metadata that makes topics": Case(
        ApiKey.METADATA,
        ((TOPIC, DESCRIBE), (TOPIC, CREATE)),
        lambda one: {
            "topics": [{"name": topic} for topic in one.topics],
            "allow_auto_topic_creation": True,
        },
    ),
    "describe topic partitions": Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ((TOPIC, DESCRIBE),),
        lambda one: {"topics": [{"name": topic} for topic in one.topics]},
    ),
    "describe all topic partitions": Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, ((TOPIC, ALTER),), lambda _one: {"topics": []}
    ),
    "describe cluster": Case(
        ApiKey.DESCRIBE_CLUSTER,
        ((CLUSTER, ALTER),),
        lambda _one: {"include_cluster_authorized_operations": True},
    ),
}

_SETTING = [{"name": "retention.ms", "value": "86400000"}]


def _resources(one: Things, **more: Any) -> list[Fields]:
    """Each kind of configuration: topics, a group, the broker, client metrics."""
    named = [(2, topic) for topic in one.topics] + [(32, one.groups[0]), (4, "1"), (16, one.name)]
    return [{"resource_type": kind, "resource_name": name, **more} for kind, name in named]


def _altered(one: Things, *, is_incremental: bool) -> Fields:
    settings = {2: "retention.ms", 32: "consumer.session.timeout.ms", 4: "log.cleaner.threads"}
    settings[16] = "interval.ms"
    values = {2: "86400000", 32: "45000", 4: "1", 16: "1000"}
    resources = _resources(one)
    for resource in resources:
        kind = resource["resource_type"]
        setting = {"name": settings[kind], "value": values[kind]}
        resource["configs"] = [setting | {"config_operation": 0}] if is_incremental else [setting]
    return {"resources": resources, "validate_only": True}


_ADMIN = {
    "create topics": Case(
        ApiKey.CREATE_TOPICS,
        ((TOPIC, CREATE),),
        lambda one: {
            "timeout_ms": 5000,
            "topics": [
                {"name": topic, "num_partitions": 1, "replication_factor": 1}
                for topic in (*one.topics, f"{one.topics[0]}-new")
            ],
        },
    ),
    "create topics, by the cluster": Case(
        ApiKey.CREATE_TOPICS,
        ((CLUSTER, CREATE), (TOPIC, DESCRIBE_CONFIGS)),
        lambda one: {
            "timeout_ms": 5000,
            "topics": [
                {"name": topic, "num_partitions": 1, "replication_factor": 1}
                for topic in (one.topics[0], one.topics[2])
            ],
        },
    ),
    "delete topics": Case(
        ApiKey.DELETE_TOPICS,
        ((TOPIC, DELETE),),
        lambda one: {"timeout_ms": 5000, "topics": [{"name": topic} for topic in one.topics]},
    ),
    "delete topics by id": Case(
        ApiKey.DELETE_TOPICS,
        ((TOPIC, DELETE),),
        lambda one: {"timeout_ms": 5000, "topics": [{"topic_id": i} for i in one.ids]},
    ),
    "delete topics, before ids": Case(
        ApiKey.DELETE_TOPICS,
        ((TOPIC, DELETE),),
        lambda one: {"timeout_ms": 5000, "topic_names": list(one.topics)},
        5,
    ),
    "delete topics, by the cluster": Case(
        ApiKey.DELETE_TOPICS,
        ((CLUSTER, DELETE),),
        lambda one: {"timeout_ms": 5000, "topics": [{"name": topic} for topic in one.topics]},
    ),
    "create partitions": Case(
        ApiKey.CREATE_PARTITIONS,
        ((TOPIC, ALTER),),
        lambda one: {
            "timeout_ms": 5000,
            "topics": [{"name": t, "count": 2, "assignments": None} for t in one.topics],
        },
    ),
    "elect leaders": Case(
        ApiKey.ELECT_LEADERS,
        ((CLUSTER, ALTER),),
        lambda one: {
            "topic_partitions": [{"topic": one.topics[0], "partitions": [0]}],
            "timeout_ms": 5000,
        },
    ),
    "alter partition reassignments": Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ((CLUSTER, ALTER),),
        lambda one: {
            "timeout_ms": 5000,
            "topics": [
                {"name": one.topics[0], "partitions": [{"partition_index": 0, "replicas": [1]}]}
            ],
        },
    ),
    "list partition reassignments": Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ((CLUSTER, DESCRIBE),),
        lambda _one: {"timeout_ms": 5000, "topics": None},
    ),
    "describe log dirs": Case(
        ApiKey.DESCRIBE_LOG_DIRS, ((CLUSTER, DESCRIBE),), lambda _one: {"topics": []}
    ),
    "alter replica log dirs": Case(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ((CLUSTER, ALTER),),
        lambda one: {
            "dirs": [{"path": "/no/such", "topics": [{"name": one.topics[0], "partitions": [0]}]}]
        },
    ),
    "update features": Case(
        ApiKey.UPDATE_FEATURES, ((CLUSTER, ALTER),), lambda _one: {"validate_only": True}
    ),
    "unregister broker": Case(
        ApiKey.UNREGISTER_BROKER, ((CLUSTER, ALTER),), lambda _one: {"broker_id": 9999}
    ),
    "describe quorum": Case(
        ApiKey.DESCRIBE_QUORUM,
        ((CLUSTER, DESCRIBE),),
        lambda _one: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
    ),
    "describe configs": Case(
        ApiKey.DESCRIBE_CONFIGS,
        ((TOPIC, DESCRIBE_CONFIGS), (GROUP, DESCRIBE_CONFIGS), (CLUSTER, DESCRIBE_CONFIGS)),
        lambda one: {"resources": _resources(one, configuration_keys=["none"])},
    ),
    "alter configs": Case(
        ApiKey.ALTER_CONFIGS,
        ((TOPIC, ALTER_CONFIGS), (GROUP, ALTER_CONFIGS), (CLUSTER, ALTER_CONFIGS)),
        lambda one: _altered(one, is_incremental=False),
    ),
    "incremental alter configs": Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ((TOPIC, ALTER_CONFIGS), (GROUP, ALTER_CONFIGS), (CLUSTER, ALTER_CONFIGS)),
        lambda one: _altered(one, is_incremental=True),
    ),
    "list config resources": Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        ((CLUSTER, DESCRIBE_CONFIGS),),
        lambda _one: {"resource_types": [8]},
    ),
    "describe client quotas": Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, ((CLUSTER, DESCRIBE_CONFIGS),), lambda _one: {}
    ),
    "alter client quotas": Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        ((CLUSTER, ALTER_CONFIGS),),
        lambda _one: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                    "ops": [{"key": "request_percentage", "value": 50.0}],
                }
            ],
            "validate_only": True,
        },
    ),
}


def _member(one: Things, **more: Any) -> Fields:
    return {"group_id": one.groups[0], "member_id": "member", **more}


def _of_group(key: ApiKey, **more: Any) -> Case:
    """A request of a member that its group does not know."""
    return Case(key, ((GROUP, READ),), lambda one: _member(one, **more))


def _subscribed(key: ApiKey, names: Callable[[Things], list[str]]) -> Case:
    """A new member that subscribes to topics."""
    return Case(
        key,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: (
            {
                "group_id": one.groups[0],
                "member_id": "A" * 22,
                "member_epoch": 0,
                "rebalance_timeout_ms": 5000,
                "subscribed_topic_names": names(one),
                "topic_partitions": [],
            }
            if key is ApiKey.CONSUMER_GROUP_HEARTBEAT
            else {
                "group_id": one.groups[0],
                "member_id": "A" * 22,
                "member_epoch": 0,
                "subscribed_topic_names": names(one),
            }
        ),
    )


def _committed(one: Things) -> list[Fields]:
    partition = {"partition_index": 0, "committed_offset": 0}
    return [{"name": topic, "partitions": [partition]} for topic in one.topics]


def _described(key: ApiKey, field: str, **more: Any) -> Case:
    return Case(key, ((GROUP, DESCRIBE),), lambda one: {field: list(one.groups), **more})


_GROUPS = {
    "find coordinator of groups": Case(
        ApiKey.FIND_COORDINATOR,
        ((GROUP, DESCRIBE),),
        lambda one: {"key_type": 0, "coordinator_keys": list(one.groups)},
    ),
    "find coordinator of a group": Case(
        ApiKey.FIND_COORDINATOR,
        ((GROUP, READ),),
        lambda one: {"key_type": 0, "key": one.groups[0]},
        3,
    ),
    "find coordinator of transactional ids": Case(
        ApiKey.FIND_COORDINATOR,
        ((TRANSACTIONAL_ID, DESCRIBE),),
        lambda one: {"key_type": 1, "coordinator_keys": list(one.transactional_ids)},
    ),
    "find coordinator of a share partition": Case(
        ApiKey.FIND_COORDINATOR,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "key_type": 2,
            "coordinator_keys": [f"{one.groups[0]}:AQEBAQEBAQEBAQEBAQEBAQ:0"],
        },
    ),
    "join group": Case(
        ApiKey.JOIN_GROUP,
        ((GROUP, READ),),
        lambda one: {
            "group_id": one.groups[0],
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"x"}],
        },
    ),
    "sync group": _of_group(
        ApiKey.SYNC_GROUP, generation_id=3, protocol_type="consumer", protocol_name="range"
    ),
    "heartbeat": _of_group(ApiKey.HEARTBEAT, generation_id=3),
    "leave group": Case(
        ApiKey.LEAVE_GROUP,
        ((GROUP, READ),),
        lambda one: {"group_id": one.groups[0], "members": [{"member_id": "member"}]},
    ),
    "offset commit": Case(
        ApiKey.OFFSET_COMMIT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: {"group_id": one.groups[0], "topics": _committed(one)},
        9,
    ),
    "offset commit, no topics": Case(
        ApiKey.OFFSET_COMMIT,
        ((GROUP, READ),),
        lambda one: {"group_id": one.groups[0], "topics": _committed(one)},
        9,
    ),
    "offset commit by id": Case(
        ApiKey.OFFSET_COMMIT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [
                {"topic_id": i, "partitions": [{"partition_index": 0, "committed_offset": 0}]}
                for i in one.ids
            ],
        },
    ),
    "offset fetch": Case(
        ApiKey.OFFSET_FETCH,
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        lambda one: {
            "groups": [
                {
                    "group_id": group,
                    "topics": [{"name": topic, "partition_indexes": [0]} for topic in one.topics],
                }
                for group in one.groups
            ]
        },
        9,
    ),
    "offset fetch of a group": Case(
        ApiKey.OFFSET_FETCH,
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"name": topic, "partition_indexes": [0]} for topic in one.topics],
        },
        7,
    ),
    "offset fetch of all topics": Case(
        ApiKey.OFFSET_FETCH,
        ((GROUP, DESCRIBE),),
        lambda one: {"groups": [{"group_id": group, "topics": None} for group in one.groups]},
    ),
    "offset delete": Case(
        ApiKey.OFFSET_DELETE,
        ((GROUP, DELETE), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"name": t, "partitions": [{"partition_index": 0}]} for t in one.topics],
        },
    ),
    "describe groups": _described(
        ApiKey.DESCRIBE_GROUPS, "groups", include_authorized_operations=True
    ),
    "list groups": Case(ApiKey.LIST_GROUPS, ((GROUP, DESCRIBE),), lambda _one: {}),
    "delete groups": Case(
        ApiKey.DELETE_GROUPS, ((GROUP, DELETE),), lambda one: {"groups_names": list(one.groups)}
    ),
    "consumer group heartbeat": _subscribed(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda one: [one.topics[0]]
    ),
    "consumer group heartbeat, hidden topic": _subscribed(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda one: list(one.topics)
    ),
    "consumer group describe": _described(ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"),
    "share group heartbeat": _subscribed(ApiKey.SHARE_GROUP_HEARTBEAT, lambda one: [one.topics[0]]),
    "share group heartbeat, hidden topic": _subscribed(
        ApiKey.SHARE_GROUP_HEARTBEAT, lambda one: list(one.topics)
    ),
    "share group describe": _described(ApiKey.SHARE_GROUP_DESCRIBE, "group_ids"),
    "streams group heartbeat": Case(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _streams_heartbeat(one, one.topics[:1]),
    ),
    "streams group heartbeat, hidden topic": Case(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _streams_heartbeat(one, one.topics[:2]),
    ),
    "streams group describe": _described(ApiKey.STREAMS_GROUP_DESCRIBE, "group_ids"),
    "share fetch": Case(
        ApiKey.SHARE_FETCH,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _member(
            one,
            share_session_epoch=-1,
            max_bytes=0,
        ),
    ),
    "share acknowledge": Case(
        ApiKey.SHARE_ACKNOWLEDGE,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: _member(one, share_session_epoch=3),
    ),
    "describe share group offsets": Case(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
        lambda one: {
            "groups": [
                {
                    "group_id": group,
                    "topics": [{"topic_name": topic, "partitions": [0]} for topic in one.topics],
                }
                for group in one.groups
            ]
        },
    ),
    "alter share group offsets": Case(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ((GROUP, READ), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [
                {
                    "topic_name": topic,
                    "partitions": [{"partition_index": 0, "start_offset": 0}],
                }
                for topic in one.topics
            ],
        },
    ),
    "delete share group offsets": Case(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ((GROUP, DELETE), (TOPIC, READ)),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"topic_name": topic} for topic in one.topics],
        },
    ),
}


def _streams_heartbeat(one: Things, sources: tuple[str, ...]) -> Fields:
    request = APIS[ApiKey.STREAMS_GROUP_HEARTBEAT].request
    [of_topology] = [f for f in spec_of(request).fields if f.name == "topology"]
    assert isinstance(of_topology.element, type)
    topology = message(
        of_topology.element,
        {"epoch": 1, "subtopologies": [{"subtopology_id": "0", "source_topics": list(sources)}]},
    )
    return {
        "group_id": one.groups[0],
        "member_id": "A" * 22,
        "member_epoch": 0,
        "rebalance_timeout_ms": 5000,
        "process_id": "p",
        "topology": topology,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "client_tags": [],
    }


_PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def _transaction(one: Things, **more: Any) -> Fields:
    return {"transactional_id": one.transactional_ids[0], **_PRODUCER, **more}


def _added(one: Things) -> Fields:
    return {
        "v3_and_below_transactional_id": one.transactional_ids[0],
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]} for topic in one.topics],
    }


_TRANSACTIONS = {
    "add partitions to txn": Case(
        ApiKey.ADD_PARTITIONS_TO_TXN, ((TRANSACTIONAL_ID, WRITE), (TOPIC, WRITE)), _added, 3
    ),
    "add partitions to txn, of a broker": Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "transactions": [_transaction(one, topics=[{"name": one.topics[0], "partitions": [0]}])]
        },
    ),
    "add offsets to txn": Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        ((TRANSACTIONAL_ID, WRITE), (GROUP, READ)),
        lambda one: _transaction(one, group_id=one.groups[0]),
    ),
    "add offsets to txn, no group": Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        ((TRANSACTIONAL_ID, WRITE),),
        lambda one: _transaction(one, group_id=one.groups[0]),
    ),
    "end txn": Case(
        ApiKey.END_TXN,
        ((TRANSACTIONAL_ID, WRITE),),
        lambda one: _transaction(one, committed=True),
    ),
    "txn offset commit": Case(
        ApiKey.TXN_OFFSET_COMMIT,
        ((TRANSACTIONAL_ID, WRITE), (GROUP, READ), (TOPIC, READ)),
        lambda one: _transaction(one, group_id=one.groups[0], topics=_committed(one)),
        4,
    ),
    "txn offset commit, no group": Case(
        ApiKey.TXN_OFFSET_COMMIT,
        ((TRANSACTIONAL_ID, WRITE), (TOPIC, READ)),
        lambda one: _transaction(one, group_id=one.groups[0], topics=_committed(one)),
        4,
    ),
    "write txn markers": Case(
        ApiKey.WRITE_TXN_MARKERS,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "markers": [
                {
                    **_PRODUCER,
                    "transaction_result": False,
                    "topics": [{"name": one.topics[2], "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
    ),
    "list transactions": Case(
        ApiKey.LIST_TRANSACTIONS, ((TRANSACTIONAL_ID, DESCRIBE),), lambda _one: {}
    ),
    "describe transactions": Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        ((TRANSACTIONAL_ID, DESCRIBE),),
        lambda one: {"transactional_ids": list(one.transactional_ids)},
    ),
}


def _of_state(key: ApiKey, **of_partition: Any) -> Case:
    """What only brokers ask the share coordinator."""
    return Case(
        key,
        ((CLUSTER, CLUSTER_ACTION),),
        lambda one: {
            "group_id": one.groups[0],
            "topics": [{"topic_id": ABSENT_ID, "partitions": [{"partition": 0, **of_partition}]}],
        },
    )


_SHARE_STATE = {
    "read share group state": _of_state(ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=1),
    "read share group state summary": _of_state(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, leader_epoch=1
    ),
    "initialize share group state": _of_state(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE, state_epoch=1, start_offset=0
    ),
    "write share group state": _of_state(
        ApiKey.WRITE_SHARE_GROUP_STATE, state_epoch=1, leader_epoch=1, start_offset=0
    ),
    "delete share group state": _of_state(ApiKey.DELETE_SHARE_GROUP_STATE),
}

_NO_ACL = {
    "resource_type_filter": 2,
    "resource_name_filter": "no-such-thing",
    "pattern_type_filter": 3,
    "operation": 1,
    "permission_type": 1,
}
_ACL = {
    "resource_type": 2,
    "resource_name": "no-such-thing",
    "resource_pattern_type": 3,
    "principal": "nobody",  # which is refused, since it has no type
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}

_SECURITY = {
    "describe acls": Case(ApiKey.DESCRIBE_ACLS, ((CLUSTER, DESCRIBE),), lambda _one: _NO_ACL),
    "create acls": Case(
        ApiKey.CREATE_ACLS, ((CLUSTER, ALTER),), lambda _one: {"creations": [_ACL, _ACL]}
    ),
    "delete acls": Case(
        ApiKey.DELETE_ACLS, ((CLUSTER, ALTER),), lambda _one: {"filters": [_NO_ACL, _NO_ACL]}
    ),
    "describe scram credentials": Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ((CLUSTER, DESCRIBE),),
        lambda _one: {"users": [{"name": "no-such-user"}]},
    ),
    "alter scram credentials": Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ((CLUSTER, ALTER),),
        lambda _one: {"deletions": [{"name": "no-such-user", "mechanism": 1}]},
    ),
}

CASES: dict[str, Case] = (
    _DATA | _METADATA | _ADMIN | _GROUPS | _TRANSACTIONS | _SHARE_STATE | _SECURITY
)


def _of_node(key: ApiKey, **fields: Any) -> Case:
    """What only nodes of the cluster ask a controller."""
    return Case(key, ((CLUSTER, CLUSTER_ACTION),), lambda _one: fields, is_told=False)


def _of_voters(key: ApiKey, **fields: Any) -> Case:
    """A change of the quorum's voters, in another cluster."""
    return Case(key, ((CLUSTER, ALTER),), lambda _one: {"cluster_id": "other", **fields})


_NODES = {
    "fetch the metadata log": _of_node(ApiKey.FETCH, cluster_id="other"),
    "fetch snapshot": _of_node(ApiKey.FETCH_SNAPSHOT, cluster_id="other"),
    "vote": _of_node(ApiKey.VOTE, cluster_id="other"),
    "begin quorum epoch": _of_node(ApiKey.BEGIN_QUORUM_EPOCH, cluster_id="other"),
    "end quorum epoch": _of_node(ApiKey.END_QUORUM_EPOCH, cluster_id="other"),
    "broker registration": _of_node(ApiKey.BROKER_REGISTRATION, broker_id=77, cluster_id="other"),
    "broker heartbeat": _of_node(ApiKey.BROKER_HEARTBEAT, broker_id=77, broker_epoch=1),
    "alter partition": _of_node(ApiKey.ALTER_PARTITION, broker_id=77, broker_epoch=1),
    "allocate producer ids": _of_node(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=77, broker_epoch=1),
    "assign replicas to dirs": _of_node(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS, broker_id=77, broker_epoch=1
    ),
    "add raft voter": _of_voters(ApiKey.ADD_RAFT_VOTER),
    "remove raft voter": _of_voters(ApiKey.REMOVE_RAFT_VOTER),
}

# Administrators may turn to a controller themselves (KIP-919). Apache's fails with every question
# about credentials.
CONTROLLER_CASES: dict[str, Case] = {
    name: case
    for name, case in (_METADATA | _ADMIN | _SECURITY).items()
    if "controller" in APIS[case.key].listeners
    and case.key is not ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
} | _NODES
