"""Requests of administrators about topics, settings, the cluster and its users."""

from __future__ import annotations

from typing import Any

from kraftrio.wire.protocol.api import ApiKey
from tests.conformance.cases.access.things import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    WRITE,
    Case,
    Fields,
    Things,
)

METADATA = {
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


ADMIN = {
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

SECURITY = {
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
