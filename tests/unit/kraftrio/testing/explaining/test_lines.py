"""What clients asked for, as lines of the story."""

from __future__ import annotations

import re

import pytest

from kraftrio import Admin, Consumer, Producer, TopicPartition
from kraftrio.testing import KafkaWorld

pytestmark = pytest.mark.kafka(brokers=1)


def _asked(world: KafkaWorld, name: str) -> list[str]:
    return re.findall(rf"program +asks +({name} .*?)(?: after \d+ ms)?\n", world.story() + "\n")


async def test_lines(kafka_world: KafkaWorld) -> None:
    """Each names the broker, what it was about, and how it ended."""
    orders = TopicPartition("orders", 0)
    await kafka_world.create_topic("orders")
    async with (
        Producer(kafka_world.bootstrap_servers, transactional_id="t") as producer,
        producer.transaction(),
    ):
        await producer.send("orders", b"one")
        await producer.send("orders", b"two")
    async with Consumer(kafka_world.bootstrap_servers, group_id="billing") as consumer:
        consumer.assign([orders])
        await consumer.commit({orders: 2})
        kafka_world.lose_answer("OffsetCommit")
        await consumer.commit({orders: 1})
    async with Admin(kafka_world.bootstrap_servers) as admin:
        await admin.delete_records({orders: 1})
        await admin.delete_topics(["orders"])
    assert _asked(kafka_world, "Produce") == ["Produce to n1: t orders-0 2 records; orders-0=0"]
    assert _asked(kafka_world, "EndTxn") == ["EndTxn to n1: t commit; done"]
    assert _asked(kafka_world, "OffsetCommit")[0] == "OffsetCommit to n1: billing orders-0=2; done"
    assert "OffsetCommit to n1: billing orders-0=1; done" in _asked(kafka_world, "OffsetCommit")
    assert "but the answer was lost" in kafka_world.story()
    assert _asked(kafka_world, "DeleteRecords") == ["DeleteRecords to n1: orders-0=1; orders-0=1"]
    assert _asked(kafka_world, "DeleteTopics") == ["DeleteTopics to n1: orders; done"]
    assert "asks   CreateTopics to n1: orders; done" in kafka_world.story()
    assert not _asked(kafka_world, "Fetch")


async def test_cut_links_are_in_the_story(kafka_world: KafkaWorld) -> None:
    await kafka_world.create_topic("orders")
    kafka_world.links.cut("n1", "test")
    kafka_world.links.heal()
    assert re.search(r"net +hang +n1>test\n.*net +mend +n1>test", kafka_world.story())
    assert not re.search(r"net +data", kafka_world.story())
    assert re.search(r"net +data", kafka_world.story(packets=True))
