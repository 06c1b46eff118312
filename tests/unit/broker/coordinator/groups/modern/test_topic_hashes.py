"""Hashes of topics and groups: those that Apache Kafka's broker computes."""

from __future__ import annotations

import time
from typing import Any

from kraftrio.broker.coordinator.groups.modern.topic_hashes import (
    TopicHashes,
    hash_topic,
    racks_of,
)
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.kraft_meta.metadata.image import MetadataDelta
from kraftrio.kraft_meta.metadata.records import (
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftrio.wire.primitives import uuid_from_text

TOPIC_ID = bytes(range(1, 9)) + bytes(range(0x11, 0x19))


def metadata(*records: Any) -> MetadataCache:
    cache = MetadataCache()
    delta = MetadataDelta(cache.image)
    for record in records:
        delta.replay(record)
    cache.image = delta.apply(len(records), 1)
    return cache


def topic(name: str, topic_id: bytes, *replicas: tuple[int, ...]) -> list[Any]:
    partitions = [
        PartitionRecord(topic_id, index, replicas=one, isr=one, leader=one[0])
        for index, one in enumerate(replicas)
    ]
    return [TopicRecord(name, topic_id), *partitions]


def broker(broker_id: int, rack: str | None) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id, b"i" * 16, 1, (), rack=rack)


def test_a_topic_with_racks() -> None:
    """Sorted racks of the replicas whose brokers have one; as Kafka's hash library has it."""
    cache = metadata(
        broker(1, "rack-b"),
        broker(2, "a"),
        broker(3, None),
        *topic("topic", TOPIC_ID, (1, 2), (3,)),
    )
    found = cache.topic("topic")
    assert found is not None
    assert hash_topic(found, racks_of(cache.image)) == 3983768566517136599
    assert TopicHashes(cache).of_group(["topic", "absent"]) == -3951956661957183372


def test_the_group_of_a_recorded_log() -> None:
    """The hash that Apache Kafka 4.3 has written for a group of this topic."""
    cache = metadata(*topic("plain", uuid_from_text("nhZEL7knQ9mPkpKCbIc_pA"), (1,), (1,)))
    assert TopicHashes(cache).of_group(["plain"]) == int.from_bytes(
        bytes.fromhex("9174eee4baf7eb74"), "big", signed=True
    )


def test_a_group_without_topics() -> None:
    """Of none that exists."""
    assert TopicHashes(metadata()).of_group(["absent"]) == 0


def test_a_topic_that_grows_has_another_hash() -> None:
    """And so has its group; what was kept is not of the new topic."""
    cache = metadata(*topic("topic", TOPIC_ID, (1,)))
    hashes = TopicHashes(cache)
    before = hashes.of_group(["topic"])
    assert hashes.of_group(["topic"]) == before
    delta = MetadataDelta(cache.image)
    delta.replay(PartitionRecord(TOPIC_ID, 1, replicas=(1,), isr=(1,), leader=1))
    cache.image = delta.apply(9, 1)
    assert hashes.of_group(["topic"]) != before


def test_a_large_topic_with_racks_takes_no_long_turn() -> None:
    """A heartbeat after each change of the topic computes it in one step of the event loop."""
    brokers = [broker(number, f"rack-{number % 3}") for number in range(6)]
    replicas = [tuple((index + step) % 6 for step in range(3)) for index in range(10_000)]
    cache = metadata(*brokers, *topic("topic", TOPIC_ID, *replicas))
    found = cache.topic("topic")
    assert found is not None
    began_s = time.thread_time()
    hash_topic(found, racks_of(cache.image))
    assert time.thread_time() - began_s < 0.020
