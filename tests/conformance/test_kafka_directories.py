"""A cluster for tests begins with the log directory of a node of Apache Kafka that was killed."""

from __future__ import annotations

from pathlib import Path

import trio

from kraftrio import Producer, TopicPartition
from kraftrio.testing import KafkaWorld
from tests.conformance.broker_process import ApacheBroker
from tests.unit.kraftrio.testing.snapshots import past
from tests.unit.kraftrio.testing.snapshots.past import picture


async def _work_until_killed(broker: ApacheBroker) -> None:
    await past.make(broker.address)
    with trio.CancelScope() as scope:
        async with (
            Producer(broker.address, transactional_id="open") as producer,
            producer.transaction(),
        ):
            await (await producer.send("payments", b"not paid"))
            broker.kill9()
            scope.cancel()


def test_what_a_killed_node_left(tmp_path: Path) -> None:
    """Records, offsets and transactions are there, the open one, too, and can be ended."""
    config = {"auto_create_topics_enable": "true", "num_partitions": "2"}
    with ApacheBroker(tmp_path, **config) as broker:
        trio.run(_work_until_killed, broker)
    world = KafkaWorld(brokers=1, start=broker.data_directory)

    async def look() -> None:
        await world.create_topic("states")
        found = await picture(world)
        assert len(found.orders) == 20
        assert sorted(found.paid, key=str) == [b"paid 0", b"paid 1", b"paid 2"]
        assert b"not paid" in found.payments
        assert found.committed == {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 10}
        assert found.transactions == {"ended": "CompleteCommit", "open": "Ongoing"}
        async with Producer(world.bootstrap_servers, transactional_id="open"):
            await world.transaction("open").ended()
        assert len((await picture(world)).paid) == 3

    world.run(look)
