"""Images and deltas: the meaning of records."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.metadata.image import TOPIC, ConfigResource, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClusterIdRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

A, B = b"a" * 16, b"b" * 16

BASE: list[MetadataRecord] = [
    ClusterIdRecord("c"),
    FeatureLevelRecord("metadata.version", 30),
    RegisterBrokerRecord(1, b"i" * 16, 2, (Endpoint("P", "h", 9, 0),)),
    RegisterBrokerRecord(2, b"j" * 16, 3, (Endpoint("P", "h", 9, 0),)),
    TopicRecord("a", A),
    PartitionRecord(A, 0, (1, 2), (1, 2), 1),
    PartitionRecord(A, 1, (2, 1), (2, 1), 2),
    ConfigRecord(TOPIC, "a", "k", "v"),
    ProducerIdsRecord(1, 2, 1000),
]


def replay(image: MetadataImage, *records: MetadataRecord) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(image.offset + len(records), 1)


def base() -> MetadataImage:
    return replay(MetadataImage(), *BASE)[1]


def test_the_image_says_what_the_records_say() -> None:
    """By name, by id, by partition, by resource."""
    image = base()
    assert (image.offset, image.epoch, image.cluster_id) == (len(BASE) - 1, 1, "c")
    topic = image.topic("a")
    assert topic is not None
    assert topic is image.topic_by_id(A)
    assert topic.partition_count == 2
    partition = image.partition("a", 1)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 0, 0)
    assert image.partition("a", 2) is None
    assert image.partition("b", 0) is None
    assert image.topic("b") is None
    assert dict(image.config(TOPIC, "a")) == {"k": "v"}
    assert dict(image.config(TOPIC, "b")) == {}
    assert image.next_producer_id == 1000


def test_an_old_image_stays_as_it_was() -> None:
    """Images are values: a new one shares, and does not touch, the old."""
    old = base()
    _delta, new = replay(old, PartitionChangeRecord(A, 0, isr=(1,)), RemoveTopicRecord(A))
    assert old == base()
    assert new.topic("a") is None


@pytest.mark.parametrize(
    ("change", "leader", "leader_epoch"),
    [
        (PartitionChangeRecord(A, 0, isr=(1,)), 1, 0),
        (PartitionChangeRecord(A, 0, leader=2), 2, 1),
        (PartitionChangeRecord(A, 0, leader=-1), -1, 1),
        (PartitionChangeRecord(A, 0, leader=1), 1, 1),
    ],
)
def test_epochs_of_a_partition_change(
    change: PartitionChangeRecord, leader: int, leader_epoch: int
) -> None:
    """Naming a leader, even the same, raises leader_epoch; anything raises partition_epoch."""
    delta, image = replay(base(), change)
    partition = image.partition("a", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (leader, leader_epoch)
    assert partition.partition_epoch == 1
    topic_delta = delta.changed_topics[A]
    assert topic_delta.partitions == {0: partition}
    assert topic_delta.previous_partition(0) == base().partition("a", 0)
    assert image.partition("a", 1) is not None


def test_a_delta_names_exactly_what_changed() -> None:
    """Topics, brokers, configurations, features, producer ids."""
    delta, image = replay(
        base(),
        TopicRecord("b", B),
        PartitionRecord(B, 0, (1,), (1,), 1),
        ConfigRecord(TOPIC, "b", "k", "v"),
        ConfigRecord(TOPIC, "a", "k", None),
        BrokerRegistrationChangeRecord(1, 2, fenced=False),
        UnregisterBrokerRecord(2, 3),
        FeatureLevelRecord("metadata.version", 0),
        ProducerIdsRecord(1, 2, 2000),
    )
    assert list(delta.changed_topics) == [B]
    assert delta.changed_topics[B].previous is None
    assert delta.deleted_topics == {}
    assert {b: i is None for b, i in delta.changed_brokers.items()} == {1: False, 2: True}
    assert {r: dict(c) for r, c in delta.changed_configs.items()} == {
        ConfigResource(TOPIC, "b"): {"k": "v"},
        ConfigResource(TOPIC, "a"): {},
    }
    assert delta.changed_features == {"metadata.version": 0}
    assert delta.producer_ids_changed
    assert not image.brokers[1].fenced
    assert image.brokers[1].is_active
    assert 2 not in image.brokers
    assert ConfigResource(TOPIC, "a") not in image.configs
    assert not image.features


def test_a_topic_deleted_and_made_again_is_in_both() -> None:
    """The ids tell them apart; the old configuration is gone."""
    delta, image = replay(
        base(), RemoveTopicRecord(A), TopicRecord("a", B), PartitionRecord(B, 0, (1,), (1,), 1)
    )
    assert list(delta.deleted_topics) == [A]
    assert list(delta.changed_topics) == [B]
    topic = image.topic("a")
    assert topic is not None
    assert topic.topic_id == B
    assert image.topic_by_id(A) is None
    assert not image.config(TOPIC, "a")


def test_a_topic_made_and_deleted_in_one_delta_leaves_nothing() -> None:
    """Nobody ever saw it; its configuration is gone too."""
    delta, image = replay(
        base(), TopicRecord("b", B), ConfigRecord(TOPIC, "b", "k", "v"), RemoveTopicRecord(B)
    )
    assert delta.changed_topics == {}
    assert delta.deleted_topics == {}
    assert image.topics_by_name == base().topics_by_name
    assert ConfigResource(TOPIC, "b") not in image.configs


def test_a_delta_of_nothing_is_empty() -> None:
    """NoOp moves the offset only."""
    delta, image = replay(base(), NoOpRecord())
    assert delta.is_empty
    assert image.offset == len(BASE)
    assert image.topics_by_name is not None


def test_impossible_records_are_our_bugs() -> None:
    """A record about what does not exist ends the node."""
    impossible: list[MetadataRecord] = [
        PartitionChangeRecord(A, 7, isr=(1,)),
        RemoveTopicRecord(B),
        TopicRecord("a2", A),
        BrokerRegistrationChangeRecord(9, 0, fenced=True),
        BrokerRegistrationChangeRecord(1, 99, fenced=True),
        ProducerIdsRecord(1, 2, 10),
        ClusterIdRecord("other"),
    ]
    for record in impossible:
        with pytest.raises(AssertionError):
            replay(base(), record)


def test_an_image_and_its_records_are_one() -> None:
    """Snapshots: replaying to_records on nothing gives an equal image."""
    _delta, image = replay(
        base(),
        PartitionChangeRecord(A, 0, isr=(2,), leader=2, leader_recovery_state=1),
        BrokerRegistrationChangeRecord(1, 2, fenced=False, in_controlled_shutdown=True),
        ConfigRecord(4, "", "x", "y"),
    )
    delta = MetadataDelta(MetadataImage())
    for record in image.to_records():
        delta.replay(record)
    assert delta.apply(image.offset, image.epoch) == image


def test_between_two_images_is_what_changed() -> None:
    """As after loading a snapshot; applying the delta gives the second image."""
    old = base()
    _delta, new = replay(
        old,
        RemoveTopicRecord(A),
        TopicRecord("a", B),
        PartitionRecord(B, 0, (1,), (1,), 1),
        UnregisterBrokerRecord(2, 3),
        ConfigRecord(4, "", "x", "y"),
        FeatureLevelRecord("group.version", 1),
        ProducerIdsRecord(1, 2, 3000),
    )
    delta = MetadataDelta.between(old, new)
    assert list(delta.deleted_topics) == [A]
    assert list(delta.changed_topics) == [B]
    assert list(delta.changed_brokers) == [2]
    assert delta.apply(new.offset, new.epoch) == new
    assert MetadataDelta.between(new, new).is_empty


def test_between_images_names_only_changed_partitions() -> None:
    """A changed topic's other partitions are left out."""
    old = base()
    _delta, new = replay(old, PartitionChangeRecord(A, 1, isr=(2,)))
    assert list(MetadataDelta.between(old, new).changed_topics[A].partitions) == [1]


def test_a_full_delta_makes_the_image_from_nothing() -> None:
    """What a new subscriber is given."""
    image = base()
    delta = MetadataDelta.full(image)
    assert delta.previous == MetadataImage()
    assert delta.apply(image.offset, image.epoch) == image
