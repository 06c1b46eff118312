"""What clients asked for: how far requests and answers came, as frames come in any pieces."""

from __future__ import annotations

import pytest
import trio

from kraftrio import Producer
from kraftrio.testing import KafkaWorld
from kraftrio.testing.explaining.exchanges import Exchange, Exchanges
from kraftrio.wire.protocol.api import ApiKey

pytestmark = pytest.mark.kafka(brokers=1)


def _kept(world: KafkaWorld) -> Exchanges:
    return world._running().exchanges


def _produced(world: KafkaWorld) -> list[Exchange]:
    return [
        each
        for each in _kept(world)
        if each.api_key == ApiKey.PRODUCE and each.machine == "program"
    ]


async def test_how_far_they_came(kafka_world: KafkaWorld) -> None:
    """Answered, answered in vain, never arrived, and never to be answered."""
    await kafka_world.create_topic("orders")
    async with Producer(kafka_world.bootstrap_servers) as producer:
        await (await producer.send("orders", bytes(100_000)))  # in several pieces
        kafka_world.lose_answer("Produce")
        await (await producer.send("orders", b"one"))
    async with Producer(kafka_world.bootstrap_servers, acks=0) as producer:
        await (await producer.send("orders", b"two"))
        await trio.sleep(1)
        kafka_world.links.cut("program", "n1")
        await (await producer.send("orders", b"three"))
    whole, lost, again, unasked, stuck = _produced(kafka_world)
    assert whole.sent_s < (whole.reached_s or 0) <= (whole.answered_s or 0)
    assert (whole.answered_s or 0) < (whole.arrived_s or 0)
    assert whole.answer.responses[0].partition_responses[0].base_offset == 0
    assert lost.answered_s is not None
    assert lost.arrived_s is None
    assert again.arrived_s is not None
    assert again.reader == whole.reader
    assert (unasked.answered_s, unasked.answer) == (None, None)
    assert unasked.reached_s is not None
    assert stuck.reached_s is None
    assert repr(stuck).startswith("<PRODUCE of program to n1 at ")


async def test_the_newest_are_kept(kafka_world: KafkaWorld) -> None:
    """The explanation says that it does not know the beginning."""
    _kept(kafka_world)._limit_bytes = 50_000
    await kafka_world.create_topic("orders")
    async with Producer(kafka_world.bootstrap_servers) as producer:
        for _ in range(10):
            await (await producer.send("orders", bytes(20_000)))
            await trio.sleep(0.1)
    assert not _kept(kafka_world).is_whole
    assert 1 <= len(_produced(kafka_world)) <= 2
    answer = kafka_world.explain("orders", 0, 0).placement
    assert answer.text.endswith("it has no beginning, which is too long ago or before a snapshot")
