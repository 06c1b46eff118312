"""Disks, clocks and links that fail when a test says so, and what is said of what is not there."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from kraftrio import Producer
from kraftrio.errors import KafkaStorageError
from kraftrio.testing import KafkaWorld


async def _leader(world: KafkaWorld) -> int:
    return (await world.topics())["orders"].partitions[0].leader_id


async def test_a_disk_fills_up(kafka_world: KafkaWorld) -> None:
    """Another replica leads; with room again the node is as before."""
    await kafka_world.create_topic("orders", 1)
    full = await _leader(kafka_world)
    kafka_world.node(full).fill_disk()
    async with Producer(kafka_world.bootstrap_servers) as producer:
        await (await producer.send("orders", b"one"))
    assert await _leader(kafka_world) != full
    kafka_world.node(full).free_disk()
    if not kafka_world.node(full).is_running:
        kafka_world.node(full).start()
    await kafka_world.healthy()
    assert [record.value for record in await kafka_world.records("orders")] == [b"one"]


async def test_a_disk_fails(kafka_world: KafkaWorld) -> None:
    """Its node ends; mended and started again it has what it had."""
    await kafka_world.produce("orders", "one", partition=0)
    node_id = await _leader(kafka_world)
    node = kafka_world.node(node_id)
    node.fail_disk()
    await kafka_world.produce("orders", "two", partition=0)
    assert await _leader(kafka_world) != node_id
    assert not node.is_running
    node.heal_disk()
    node.start()
    await kafka_world.healthy()
    await kafka_world.move_leader("orders", to=node_id)
    assert [record.value for record in await kafka_world.records("orders")] == [b"one", b"two"]


@pytest.mark.kafka(brokers=1)
async def test_the_only_disk_is_full(kafka_world: KafkaWorld) -> None:
    """The program gets an error."""
    await kafka_world.create_topic("orders", 1)
    kafka_world.node(1).fill_disk()
    async with Producer(kafka_world.bootstrap_servers, retries=0) as producer:
        with pytest.raises(KafkaStorageError):
            await (await producer.send("orders", b"one"))


def test_a_power_cut_takes_what_was_not_synced() -> None:
    """With one replica, as in Kafka; with `flush.messages=1` it is synced."""

    async def left(world: KafkaWorld) -> int:
        await world.create_topic("orders", 1)
        await world.create_topic("synced", 1, config={"flush.messages": 1})
        for topic in ("orders", "synced"):
            await world.produce(topic, *map(str, range(50)))
        world.node(1).cut_power()
        world.node(1).start()
        await world.healthy()
        assert len(await world.records("synced")) == 50
        return len(await world.records("orders"))

    worlds = [KafkaWorld(seed, 1) for seed in range(8)]
    assert min(world.run(partial(left, world)) for world in worlds) < 50


async def test_one_clock_is_wrong(kafka_world: KafkaWorld) -> None:
    """Of the leader, which stamps what it writes."""
    config = {"message.timestamp.type": "LogAppendTime"}
    await kafka_world.create_topic("orders", 1, config=config)
    (before,) = await kafka_world.produce("orders", "one")
    kafka_world.node(await _leader(kafka_world)).move_clock(-3600)
    (after,) = await kafka_world.produce("orders", "two")
    assert before.timestamp is not None
    assert after.timestamp is not None
    assert 3_590_000 < before.timestamp - after.timestamp < 3_610_000


async def test_one_direction_is_healed(kafka_world: KafkaWorld) -> None:
    await kafka_world.create_topic("orders", 1)
    leader = f"n{await _leader(kafka_world)}"
    async with Producer(kafka_world.bootstrap_servers) as producer:
        await (await producer.send("orders", b"one"))
        kafka_world.links.cut("program", leader)
        kafka_world.links.cut(leader, "program")
        delivery = await producer.send("orders", b"two")
        await trio.sleep(5)
        kafka_world.links.heal("program", leader)
        await kafka_world.partition("orders").high_watermark(2)
        assert not delivery.done
        kafka_world.links.heal(leader, "program")
        await delivery
    with pytest.raises(ValueError, match=r"one direction is heal\(source, target\)"):
        kafka_world.links.heal("program")
    with pytest.raises(ValueError, match="there is no machine 'n7'"):
        kafka_world.links.heal("program", "n7")
