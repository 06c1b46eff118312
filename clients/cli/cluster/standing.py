"""The state of a cluster: its topics and their min ISR, its brokers and controllers as rows.

Called by: `kraftrio cluster`, and the console.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import (
    ClusterDescription,
    ConfigResource,
    ConfigResourceType,
    QuorumInfo,
    QuorumReplica,
)
from kraftrio.clients.cli.output import Row
from kraftrio.clients.errors import KafkaClientError, UnknownTopicOrPartitionError
from kraftrio.clients.metadata import TopicMetadata


async def all_topics(admin: Admin) -> dict[str, TopicMetadata]:
    """Return all topics, internal ones included, without those that are deleted meanwhile."""
    names = await admin.list_topics(list_internal=True)
    if not names:
        return {}
    found = await admin.describe_topics(names, raise_errors=False)
    return {name: found[name] for name in names if not _is_gone(found.errors.get(name))}


async def min_insync_replicas(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """Return min.insync.replicas by topic."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    if not resources:
        return {}
    found = await admin.describe_configs(resources, raise_errors=False)
    settings = {
        resource.name: found[resource].get("min.insync.replicas")
        for resource in resources
        if not _is_gone(found.errors.get(resource))
    }
    return {name: int(entry.value or 1) for name, entry in settings.items() if entry is not None}


def _is_gone(error: KafkaClientError | None) -> bool:
    return isinstance(error, UnknownTopicOrPartitionError)


def broker_rows(cluster: ClusterDescription, topics: Mapping[str, TopicMetadata]) -> list[Row]:
    """Return each broker with how many partitions it leads and keeps."""
    leaders = dict.fromkeys((broker.node_id for broker in cluster.nodes), 0)
    replicas = dict(leaders)
    for topic in topics.values():
        for partition in topic.partitions.values():
            if partition.leader_id in leaders:
                leaders[partition.leader_id] += 1
            for broker_id in partition.replicas:
                if broker_id in replicas:
                    replicas[broker_id] += 1
    return [
        {
            "broker": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "leaders": leaders[broker.node_id],
            "replicas": replicas[broker.node_id],
        }
        for broker in cluster.nodes
    ]


def quorum_rows(quorum: QuorumInfo, now_ms: int) -> list[Row]:
    """Return the voters and observers of the metadata quorum, and how far behind they are."""
    end = max((each.log_end_offset for each in quorum.voters), default=0)
    roles = [("voter", quorum.voters), ("observer", quorum.observers)]
    return [
        _replica_row(each, "leader" if each.replica_id == quorum.leader_id else role, end, now_ms)
        for role, replicas in roles
        for each in replicas
    ]


def _replica_row(replica: QuorumReplica, role: str, end: int, now_ms: int) -> Row:
    caught_up_ms = replica.last_caught_up_timestamp_ms
    is_known = caught_up_ms is not None and caught_up_ms >= 0
    return {
        "node": replica.replica_id,
        "role": role,
        "log_end_offset": replica.log_end_offset,
        "lag": max(end - replica.log_end_offset, 0),
        "behind_ms": max(now_ms - caught_up_ms, 0) if is_known else None,
    }
