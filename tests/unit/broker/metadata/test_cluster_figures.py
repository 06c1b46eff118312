"""The cluster in numbers, by its metadata."""

from __future__ import annotations

from kraftrio.broker.metadata.cluster_figures import ClusterFigures
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

TOPIC_ID = bytes(15) + b"\x01"


class Cluster:
    """An image that changes, and the figures of it."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.figures = ClusterFigures()

    def publish(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + len(records), 1)
        self.figures.on_metadata(delta, self.image)

    def count(self, *names: str) -> list[float]:
        self.figures.count(self.image)
        statistics = self.figures.statistics()
        return [statistics[name] for name in names]


def broker(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id, broker_epoch=broker_id, incarnation_id=bytes(16), endpoints=()
    )


def test_partitions_are_counted_by_their_state() -> None:
    cluster = Cluster()
    cluster.publish(
        TopicRecord("t", TOPIC_ID),
        PartitionRecord(TOPIC_ID, 0, (1, 2), (1, 2), 1),
        PartitionRecord(TOPIC_ID, 1, (1, 2), (2,), 2),
    )
    names = ("topics", "partitions", "under_replicated_partitions", "not_preferred_leaders")
    assert cluster.count(*names) == [1, 2, 1, 1]
    cluster.publish(PartitionChangeRecord(TOPIC_ID, 1, leader=-1))
    assert cluster.count("offline_partitions", "not_preferred_leaders") == [1, 0]


def test_elections_are_counted_as_they_come() -> None:
    cluster = Cluster()
    cluster.publish(TopicRecord("t", TOPIC_ID), PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2), 1))
    assert cluster.count("leader_elections_total") == [0], "the first leader was not elected"
    cluster.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=2, isr=(2,)))
    cluster.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=-1))
    assert cluster.count("leader_elections_total", "unclean_leader_elections_total") == [1, 0]
    cluster.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=3, isr=(3,)))
    assert cluster.count("leader_elections_total", "unclean_leader_elections_total") == [2, 1]


def test_brokers_are_counted_by_whether_they_are_fenced() -> None:
    cluster = Cluster()
    cluster.publish(broker(1), broker(2))
    fenced = cluster.count("fenced_brokers")[0]
    cluster.publish(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=False))
    assert cluster.count("active_brokers", "fenced_brokers") == [1, fenced - 1]
