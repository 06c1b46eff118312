"""Leaders, coordinators and partitions move when a test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
import trio

from kraftrio import Consumer, Producer, RebalanceListener, TopicPartition
from kraftrio.testing import KafkaWorld


@asynccontextmanager
async def _member(
    world: KafkaWorld, protocol: Literal["classic", "consumer"] = "classic"
) -> AsyncIterator[tuple[list[bytes | None], list[str]]]:
    """A member of the group "billing", once it has its partitions.

    What it has read, and its listener's calls.
    """
    read: list[bytes | None] = []
    calls: list[str] = []
    listener = _Listener(calls)

    async def consume() -> None:
        async with Consumer(
            world.bootstrap_servers,
            group_id="billing",
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            await consumer.subscribe("orders", listener=listener)
            async for record in consumer.committed():
                read.extend([record.value])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await world.group("billing").stable(members=1)
        await listener.is_assigned.wait()
        yield read, calls
        nursery.cancel_scope.cancel()


class _Listener(RebalanceListener):
    def __init__(self, calls: list[str]) -> None:
        self._calls = calls
        self.is_assigned = trio.Event()

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.is_assigned.set()
        self._calls.append(f"assigned {len(partitions)}")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._calls.append(f"revoked {len(partitions)}")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._calls.append(f"lost {len(partitions)}")


async def test_a_leader_moves(kafka_world: KafkaWorld) -> None:
    await kafka_world.create_topic("orders", 2)
    partition = (await kafka_world.topics())["orders"].partitions[1]
    to = await kafka_world.move_leader("orders", 1)
    assert to in partition.replicas and to != partition.leader_id
    await kafka_world.partition("orders", 1).led_by(to)
    assert await kafka_world.move_leader("orders", 1, to=partition.leader_id) == partition.leader_id
    assert await kafka_world.move_leader("orders", 1, to=partition.leader_id) == partition.leader_id
    assert await kafka_world.produce("orders", "one", partition=1)
    other = next(iter(set(partition.replicas) - {partition.leader_id}))
    kafka_world.node(other).kill()
    await trio.sleep(20)
    with pytest.raises(ValueError, match=rf"node {other} cannot lead orders-1: its replicas in"):
        await kafka_world.move_leader("orders", 1, to=other)


@pytest.mark.kafka(brokers=1)
async def test_no_other_replica_can_lead(kafka_world: KafkaWorld) -> None:
    await kafka_world.create_topic("orders", 1)
    with pytest.raises(ValueError, match="nobody else can lead orders-0: only node 1 is in sync"):
        await kafka_world.move_leader("orders")


@pytest.mark.kafka(config={"offsets.topic.num.partitions": 5})
async def test_a_coordinator_moves(kafka_world: KafkaWorld) -> None:
    """Of a group and of a transactional id; both go on."""
    with pytest.raises(ValueError, match="group 'billing' has no coordinator yet"):
        await kafka_world.move_coordinator(group="billing")
    await kafka_world.produce("orders", "one")
    async with (
        _member(kafka_world) as (read, _),
        Producer(kafka_world.bootstrap_servers, transactional_id="t") as producer,
    ):
        before = (await kafka_world.groups())["billing"].coordinator
        to = await kafka_world.move_coordinator(group="billing")
        assert to != before
        async with producer.transaction():
            await producer.send("orders", b"two")
            await kafka_world.move_coordinator(transactional_id="t")
        await kafka_world.topic("orders").drained(by="billing", timeout_s=60)
        assert (await kafka_world.groups())["billing"].coordinator == to
        assert read == [b"one", b"two"]
    with pytest.raises(ValueError, match="name one of the two"):
        await kafka_world.move_coordinator(group="billing", transactional_id="t")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_rebalanced(
    kafka_world: KafkaWorld, protocol: Literal["classic", "consumer"]
) -> None:
    """Its member gives partitions away, and gets them again."""
    with pytest.raises(ValueError, match="group 'billing' has no members: wait with"):
        await kafka_world.rebalance("billing")
    await kafka_world.create_topic("orders", 4)
    async with _member(kafka_world, protocol) as (read, calls):
        assert calls == ["assigned 4"]
        await kafka_world.rebalance("billing")
        await kafka_world.produce("orders", "one", partition=0)
        await kafka_world.produce("orders", "two", partition=3)
        await kafka_world.topic("orders").drained(by="billing")
        assert sorted(map(str, read)) == ["b'one'", "b'two'"]
        given = sum(int(text.split()[1]) for text in calls if text.startswith("revoked"))
        got = sum(int(text.split()[1]) for text in calls if text.startswith("assigned"))
        assert given >= 2 and got == given + 4, calls


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_records_come_again(
    kafka_world: KafkaWorld, protocol: Literal["classic", "consumer"]
) -> None:
    await kafka_world.produce("orders", "one", "two", "three", partition=0)
    async with _member(kafka_world, protocol) as (read, calls):
        await kafka_world.topic("orders").drained(by="billing")
        await kafka_world.deliver_again("billing", records=2)
        await kafka_world.topic("orders").drained(by="billing", timeout_s=60)
        assert read == [b"one", b"two", b"three", b"two", b"three"]
        assert await kafka_world.committed("billing") == {TopicPartition("orders", 0): 3}
        assert "lost 1" in calls
        await kafka_world.deliver_again("billing", records=100)
        await kafka_world.topic("orders").drained(by="billing", timeout_s=60)
        assert read[5:] == [b"one", b"two", b"three"]
    with pytest.raises(ValueError, match="has no members"):
        await kafka_world.deliver_again("billing")
