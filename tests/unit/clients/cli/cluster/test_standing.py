"""A cluster as rows: brokers with what they have, controllers with how far behind they are."""

from __future__ import annotations

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import ClusterDescription, QuorumInfo, QuorumReplica
from kraftrio.clients.cli.cluster.standing import (
    all_topics,
    broker_rows,
    min_insync_replicas,
    quorum_rows,
)
from kraftrio.clients.metadata import BrokerAddress
from tests.unit.clients.simulated import Kafka


async def test_brokers_topics_and_what_these_demand(kafka: Kafka) -> None:
    await kafka.create("t", 3, min_insync_replicas=2)
    await kafka.create("u")
    async with Admin(kafka.bootstrap) as admin:
        topics = await all_topics(admin)
        assert {"t", "u"} <= topics.keys()
        assert await min_insync_replicas(admin, ["t", "u"]) == {"t": 2, "u": 1}
        assert await min_insync_replicas(admin, []) == {}
        assert await min_insync_replicas(admin, ["t", "deleted"]) == {"t": 2}
        cluster = await admin.describe_cluster()
    rows = broker_rows(cluster, topics)
    partitions = sum(len(topic.partitions) for topic in topics.values())
    assert sum(row["leaders"] for row in rows) == partitions
    assert sum(row["replicas"] for row in rows) == partitions


def test_a_broker_without_partitions_has_none() -> None:
    cluster = ClusterDescription("id", 1, (BrokerAddress(1, "h", 9092, "r"),))
    assert broker_rows(cluster, {}) == [
        {"broker": 1, "host": "h", "port": 9092, "rack": "r", "leaders": 0, "replicas": 0}
    ]


def test_who_leads_the_quorum_and_who_is_behind() -> None:
    voters = (QuorumReplica(1, 50, 900, 1000), QuorumReplica(2, 40, 700, 800))
    observer = QuorumReplica(7, 45, -1, -1)
    rows = quorum_rows(QuorumInfo(1, 4, 40, voters, (observer,)), 1000)
    assert [(row["node"], row["role"], row["lag"], row["behind_ms"]) for row in rows] == [
        (1, "leader", 0, 0),
        (2, "voter", 10, 200),
        (7, "observer", 5, None),
    ]
