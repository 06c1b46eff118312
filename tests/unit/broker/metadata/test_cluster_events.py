"""Changes of the metadata as they are logged: one event for a cause."""

from __future__ import annotations

from kraftrio.broker.metadata.cluster_events import cluster_events
from kraftrio.kraft_meta.metadata.image import BROKER, TOPIC, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

TOPIC_ID = bytes(15) + b"\x01"


class Cluster:
    """Three brokers that are not fenced, and what is logged of the changes."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        for broker_id in (1, 2, 3):
            self.publish(RegisterBrokerRecord(broker_id, bytes(16), broker_id, (), fenced=False))

    def publish(self, *records: MetadataRecord) -> list[str]:
        """The events, with ! before warnings."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + len(records), 1)
        events = cluster_events(delta, self.image)
        return [
            "!" * event.is_warning
            + event.message
            + "".join(f" {name}={value}" for name, value in event.fields.items())
            for event in events
        ]

    def topic(self, count: int = 1) -> list[str]:
        partitions = [PartitionRecord(TOPIC_ID, index, (1, 2), (1, 2), 1) for index in range(count)]
        return self.publish(TopicRecord("t", TOPIC_ID), *partitions)


def test_topics_come_grow_and_go() -> None:
    cluster = Cluster()
    assert cluster.topic(2) == ["topic created topic=t partitions=2 replication_factor=2"]
    added = cluster.publish(PartitionRecord(TOPIC_ID, 2, (1, 2), (1, 2), 1))
    assert added == ["partitions added topic=t partitions=1 replication_factor=2"]
    gone = cluster.publish(RemoveTopicRecord(TOPIC_ID))
    assert gone == ["topic deleted topic=t partitions=3"]


def test_settings_come_with_a_topic_and_go_with_it() -> None:
    cluster = Cluster()
    created = cluster.publish(
        TopicRecord("t", TOPIC_ID),
        PartitionRecord(TOPIC_ID, 0, (1,), (1,), 1),
        ConfigRecord(TOPIC, "t", "retention.ms", "5"),
    )
    assert len(created) == 1
    changed = cluster.publish(
        ConfigRecord(TOPIC, "t", "retention.ms", "6"),
        ConfigRecord(TOPIC, "t", "cleanup.policy", "compact"),
    )
    assert changed == ["settings changed topic=t set=cleanup.policy=compact, retention.ms=6"]
    assert cluster.publish(ConfigRecord(TOPIC, "t", "retention.ms", None)) == [
        "settings changed topic=t set=retention.ms (default)"
    ]
    assert cluster.publish(RemoveTopicRecord(TOPIC_ID)) == ["topic deleted topic=t partitions=1"]


def test_secrets_are_not_shown() -> None:
    cluster = Cluster()
    changed = cluster.publish(
        ConfigRecord(BROKER, "", "ssl.key.password", "x1"),
        ConfigRecord(BROKER, "", "listener.name.a.ssl.key.password", "x2"),
        ConfigRecord(BROKER, "", "log.retention.ms", "7"),
    )
    assert changed == [
        "settings changed broker=(all) set=listener.name.a.ssl.key.password=(hidden),"
        " log.retention.ms=7, ssl.key.password=(hidden)"
    ]


def test_many_leaders_that_move_are_one_event() -> None:
    cluster = Cluster()
    cluster.topic(7)
    moved = [PartitionChangeRecord(TOPIC_ID, index, leader=2) for index in range(7)]
    assert cluster.publish(*moved) == [
        "leaders moved from=1 count=7 partitions=t-0,t-1,t-2,t-3,t-4,..."
    ]


def test_partitions_lose_their_leader_and_find_one() -> None:
    cluster = Cluster()
    cluster.topic()
    assert cluster.publish(PartitionChangeRecord(TOPIC_ID, 0, isr=(1,), leader=-1)) == [
        "!partitions without a leader count=1 partitions=t-0"
    ]
    assert cluster.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1)) == [
        "partitions have a leader again count=1 partitions=t-0"
    ]
    assert cluster.publish(PartitionChangeRecord(TOPIC_ID, 0, isr=(2,), leader=2)) == [
        "!unclean leader election count=1 partitions=t-0"
    ]


def test_a_cluster_that_stops_has_no_leaders_by_itself() -> None:
    cluster = Cluster()
    cluster.topic()
    stopping = [
        BrokerRegistrationChangeRecord(broker_id, broker_id, in_controlled_shutdown=True)
        for broker_id in (1, 2, 3)
    ]
    logged = cluster.publish(*stopping, PartitionChangeRecord(TOPIC_ID, 0, leader=-1))
    assert logged == [
        f"broker in controlled shutdown broker={one} broker_epoch={one}" for one in (1, 2, 3)
    ]
    fenced = [BrokerRegistrationChangeRecord(one, one, fenced=True) for one in (1, 2, 3)]
    assert cluster.publish(*fenced) == [], "they have left"
    back = [RegisterBrokerRecord(1, bytes(16), 9, ())]
    assert cluster.publish(*back) == []
    cluster.publish(BrokerRegistrationChangeRecord(1, 9, fenced=False))


def test_a_broker_that_leads_nothing_and_stops_is_not_taken_for_dead() -> None:
    cluster = Cluster()
    stopped = BrokerRegistrationChangeRecord(2, 2, fenced=True, in_controlled_shutdown=True)
    assert cluster.publish(stopped) == ["broker in controlled shutdown broker=2 broker_epoch=2"]


def test_brokers() -> None:
    cluster = Cluster()
    cluster.topic()
    assert cluster.publish(BrokerRegistrationChangeRecord(2, 2, fenced=True)) == [
        "!broker fenced broker=2 broker_epoch=2"
    ]
    assert cluster.publish(BrokerRegistrationChangeRecord(2, 2, fenced=False)) == [
        "broker unfenced broker=2 broker_epoch=2"
    ]
    assert cluster.publish(RegisterBrokerRecord(4, bytes(16), 9, ())) == [
        "broker registered broker=4 broker_epoch=9"
    ]
    assert cluster.publish(UnregisterBrokerRecord(3, 3)) == [
        "broker unregistered broker=3 replicas=0"
    ]
    assert cluster.publish(UnregisterBrokerRecord(2, 2)) == [
        "!broker unregistered broker=2 replicas=1"
    ]


def test_reassignments_begin_and_end() -> None:
    cluster = Cluster()
    cluster.topic()
    begun = cluster.publish(
        PartitionChangeRecord(
            TOPIC_ID, 0, replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(1, 2)
        )
    )
    assert begun == ["reassignment begun count=1 partitions=t-0"]
    ended = cluster.publish(
        PartitionChangeRecord(
            TOPIC_ID, 0, isr=(3,), leader=3, replicas=(3,), adding_replicas=(),
            removing_replicas=(),
        )
    )  # fmt: skip
    assert "reassignment ended count=1 partitions=t-0" in ended


def test_features_are_logged_together() -> None:
    cluster = Cluster()
    logged = cluster.publish(FeatureLevelRecord("a.version", 1), FeatureLevelRecord("b.version", 2))
    assert logged == ["feature levels changed set=a.version=1, b.version=2"]


def test_the_last_broker_is_not_warned_of_as_it_stops() -> None:
    """One that leads nothing is let go at once, without having been in controlled shutdown."""
    cluster = Cluster()
    for broker_id in (1, 2):
        fenced = cluster.publish(BrokerRegistrationChangeRecord(broker_id, broker_id, fenced=True))
        assert len(fenced) == 1
    assert cluster.publish(BrokerRegistrationChangeRecord(3, 3, fenced=True)) == []
