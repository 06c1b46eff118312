"""Why records went to their partitions: by key, by name, or as the producer chose."""

from __future__ import annotations

import pytest
import trio

from kraftrio import Admin, Producer
from kraftrio.testing import KafkaWorld
from kraftrio.testing.explaining.evidence import Reason

pytestmark = pytest.mark.kafka(brokers=1)


async def test_by_key(kafka_world: KafkaWorld) -> None:
    """By the partitions that its producer knew of: there may be more by now."""
    await kafka_world.create_topic("orders", partitions=4)
    async with Producer(kafka_world.bootstrap_servers) as producer:
        sent = await (await producer.send("orders", b"one", key=b"k"))
    async with Admin(kafka_world.bootstrap_servers) as admin:
        await admin.create_partitions({"orders": 7})
        await trio.sleep(1)
    answer = kafka_world.explain(sent).placement
    assert answer.reason is Reason.BY_KEY, answer
    assert answer.text == (
        f"the hash of its key b'k' gives {sent.partition} of 4 partitions, as they were then"
    )
    assert answer.event is not None
    assert f"Produce to n1: orders-{sent.partition} 1 record" in answer.event.text


async def test_named_by_the_program(kafka_world: KafkaWorld) -> None:
    """In spite of its key, or without one."""
    await kafka_world.create_topic("orders", partitions=4)
    async with Producer(kafka_world.bootstrap_servers) as producer:
        hashed = await (await producer.send("orders", b"one", key=b"k"))
        other = (hashed.partition + 1) % 4
        named = await (await producer.send("orders", b"two", key=b"k", partition=other))
        keyless = await (await producer.send("orders", b"three", partition=other))
    answer = kafka_world.explain(named).placement
    assert answer.reason is Reason.EXPLICIT
    assert f"gives {hashed.partition} of 4 partitions" in answer.text
    assert f"and not {other}: the program named it" in answer.text
    answer = kafka_world.explain(keyless).placement
    assert answer.reason is Reason.EXPLICIT
    assert answer.text.startswith("it has no key, and its producer had not chosen")


async def test_as_the_producer_chose(kafka_world: KafkaWorld) -> None:
    await kafka_world.create_topic("orders", partitions=4)
    async with Producer(kafka_world.bootstrap_servers) as producer:
        sent = await (await producer.send("orders", b"one"))
    answer = kafka_world.explain(sent).placement
    assert answer.reason is Reason.STICKY
    assert answer.event is not None
    assert answer.event.text.endswith(f"go to partition=orders-{sent.partition}")
    assert "placed sticky: program sent records without a key to orders" in str(
        kafka_world.explain("orders", value=b"one")
    )


async def test_not_known(kafka_world: KafkaWorld) -> None:
    """Nobody has sent what is not there."""
    answer = kafka_world.explain("orders", 0, 0).placement
    assert answer.reason is Reason.UNKNOWN
    assert answer.text.endswith("; the trace does not say why")
