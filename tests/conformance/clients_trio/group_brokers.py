"""Brokers for tests of our clients in the new kinds of group: Apache Kafka's, and ours.

Whatever TEST_BROKER says, both are there: a client is right only if it works with Apache Kafka.
A broker that does not serve the kind of group is left out, with the reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kraftrio.clients.cluster import open_cluster
from kraftrio.wire.messages.cluster import MetadataRequest
from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.broker_process import ApacheBroker, Broker

KINDS = ("apache", "kraftrio")

# They soon notice who is gone, and members soon learn of a rebalance.
QUICK = {
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.share.session.timeout.ms": 6000,
    "group.share.min.session.timeout.ms": 1000,
    "group.share.heartbeat.interval.ms": 300,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.record.lock.duration.ms": 3000,
    "group.share.min.record.lock.duration.ms": 1000,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


class GroupBrokers:
    """The brokers that were started so far, for all tests of a session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, Broker] = {}

    def get(self, kind: str, feature: str) -> Broker:
        """Return the broker of a kind; skip the test where the feature that it needs is not on."""
        broker = self._started.get(kind)
        if broker is None:
            if kind == "apache":
                apache_kafka()
            settings = {name.replace(".", "_"): value for name, value in QUICK.items()}
            made = {"apache": ApacheBroker, "kraftrio": Broker}[kind]
            broker = self._started[kind] = made(self._folder / kind, **settings).start()
        if not trio.run(_level, broker.address, feature):
            pytest.skip(f"{feature} is not on")
        return broker

    def close(self) -> None:
        """End them, and check that they were healthy."""
        for broker in self._started.values():
            broker.close()


async def _level(address: str, feature: str) -> int:
    """Return the level of a feature that is finalized; 0: it is off."""
    async with open_cluster(address) as cluster:
        await cluster.request_any(MetadataRequest(topics=[]))
        node, *_ = cluster._nodes.candidates()
        return node.versions.features.get(feature, 0)
