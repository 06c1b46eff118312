"""Worlds that go back, and go two ways from one past."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kraftrio import Consumer, Producer, TopicPartition
from kraftrio.testing import KafkaWorld
from kraftrio.testing.snapshots.errors import SnapshotError
from kraftrio.testing.snapshots.snapshot import Snapshot
from tests.unit.kraftrio.testing.snapshots import past
from tests.unit.kraftrio.testing.snapshots.past import COMPACTED, COMPACTING, Picture, picture

pytestmark = pytest.mark.kafka(config=COMPACTING)

DAY_S = 86_400
MOST_MS = 100  # of a processor, of which others may use a part: for each broker


@asynccontextmanager
async def _past(world: KafkaWorld) -> AsyncIterator[Picture]:
    """The past, with a transaction that is open within the body."""
    await world.create_topic("orders", partitions=2)
    await world.create_topic("states", partitions=1, config=COMPACTED)
    for number in range(8):
        await world.produce("states", str(number), key=f"key {number % 2}")
        await trio.sleep(2)
    await trio.sleep(20)
    await world.restore(await world.snapshot())  # the newest records are in memory till then
    await past.make(world.bootstrap_servers)
    async with (
        Producer(world.bootstrap_servers, transactional_id="open") as producer,
        producer.transaction(),
    ):
        await (await producer.send("payments", b"not paid"))
        yield await picture(world)


async def test_all_of_it_comes_back(kafka_world: KafkaWorld, tmp_path: Path) -> None:
    """Twice, whatever happened in between, and from a file in a world of its own."""
    async with _past(kafka_world) as before:
        snapshot = await kafka_world.snapshot()
    assert len(before.states) < 8, "it was compacted"
    assert before.transactions == {"ended": "CompleteCommit", "open": "Ongoing"}
    assert len(before.payments) > len(before.paid) == 3
    assert before.committed == {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 10}
    assert (await picture(kafka_world)).transactions["open"] == "CompleteCommit"
    for _ in range(2):
        await kafka_world.produce("orders", "too much", partition=0)
        await kafka_world.create_topic("more")
        await kafka_world.restore(snapshot)
        assert await picture(kafka_world) == before
        assert "more" not in await kafka_world.topics()
    snapshot.save(tmp_path / "case.tar.zst")
    assert Snapshot.load(tmp_path / "case.tar.zst") == snapshot
    await kafka_world.create_topic("more")
    await kafka_world.restore(tmp_path / "case.tar.zst")
    assert "more" not in await kafka_world.topics()


@pytest.mark.kafka(brokers=1)
async def test_two_futures(kafka_world: KafkaWorld) -> None:
    """What happens in one is not seen in the other, nor by the snapshot."""
    async with _past(kafka_world) as before:
        async with kafka_world.fork() as other:
            async with Producer(other.bootstrap_servers, transactional_id="open"):
                await other.transaction("open").ended()
            await other.produce("orders", "there")
            async with Consumer(other.bootstrap_servers, group_id="billing") as consumer:
                await consumer.commit({TopicPartition("orders", 0): 1})
            assert await picture(kafka_world) == before
            await kafka_world.produce("orders", "here", "here")
            other.node(1).kill()
            assert kafka_world.node(1).is_running
            other.node(1).start()
            there = await picture(other)
        with pytest.raises(RuntimeError, match="this world does not run"):
            await other.topics()
    assert there.transactions["open"] == "Empty", "a new producer has begun"
    assert there.committed[TopicPartition("orders", 0)] == 1
    assert len(there.orders) == len(before.orders) + 1
    here = await picture(kafka_world)
    assert here.transactions["open"] == "CompleteCommit"
    assert here.committed == before.committed
    assert len(here.orders) == len(before.orders) + 2


@pytest.mark.kafka(brokers=1)
async def test_both_of_one_snapshot(kafka_world: KafkaWorld) -> None:
    """Forks of forks, and of an earlier time, have clocks in common and nodes of their own."""
    await kafka_world.produce("orders", "one")
    snapshot = await kafka_world.snapshot()
    await kafka_world.produce("orders", "two")
    kafka_world.move_clocks(DAY_S)
    async with kafka_world.fork(snapshot) as first, first.fork() as second:
        assert first.bootstrap_servers == "fork1-n1:9092"
        assert second.bootstrap_servers == "fork2-n1:9092"
        (sent,) = await second.produce("orders", "second")
        assert abs(sent.timestamp / 1000 - time.time()) < 1
        assert time.time() - snapshot.wall_ms / 1000 >= DAY_S
        assert [record.value for record in await first.records("orders")] == [b"one"]
    assert "fork2-n1" in kafka_world.story()


async def test_clients_that_go_on(kafka_world: KafkaWorld) -> None:
    """They are cut off, and find what is there now, also what they had read otherwise."""
    seen: list[bytes | None] = []

    async def consume() -> None:
        async with Consumer(
            kafka_world.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            await consumer.subscribe(["orders"])
            while True:
                seen.extend(record.value for record in await consumer.poll())

    await kafka_world.produce("orders", "one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await kafka_world.topic("orders").drained(by="billing", timeout_s=30)
        snapshot = await kafka_world.snapshot()
        assert "crash" not in kafka_world.story()
        await kafka_world.produce("orders", "two")
        await kafka_world.topic("orders").drained(by="billing", timeout_s=30)
        kafka_world.node(2).kill()
        await kafka_world.restore(snapshot)
        await kafka_world.healthy()
        await kafka_world.produce("orders", "another")
        await kafka_world.topic("orders").drained(by="billing", timeout_s=60)
        nursery.cancel_scope.cancel()
    assert seen == [b"one", b"two", b"another"]


def test_a_world_begins_with_it(tmp_path: Path) -> None:
    """At its time, with the properties that it is given itself."""
    first = KafkaWorld(brokers=1, config={"num.partitions": 3})

    async def write() -> None:
        first.move_clocks(900 * DAY_S)
        await first.produce("orders", "one", partition=2)
        await first.save(tmp_path / "case.tar.zst")

    first.run(write)
    second = KafkaWorld(3, brokers=1, start=tmp_path / "case.tar.zst")

    async def look() -> None:
        (record,) = await second.records("orders")
        assert 0 <= time.time() - record.timestamp / 1000 < 60
        await second.create_topic("more")
        topics = await second.topics()
        assert (len(topics["orders"].partitions), len(topics["more"].partitions)) == (3, 1)

    second.run(look)


async def test_what_does_not_fit(kafka_world: KafkaWorld) -> None:
    alone = KafkaWorld(brokers=1)
    snapshot = Snapshot({1: (await kafka_world.snapshot()).disks[1]}, 0)
    sentence = "a cluster with 1 node, and this one has 3 nodes: make it with brokers=1"
    with pytest.raises(SnapshotError, match=sentence):
        KafkaWorld(start=snapshot)
    with pytest.raises(SnapshotError, match=sentence):
        await kafka_world.restore(snapshot)
    with pytest.raises(SnapshotError, match=sentence):
        async with kafka_world.fork(snapshot):
            pass
    with pytest.raises(RuntimeError, match="this world does not run"):
        await alone.snapshot()


@pytest.mark.parametrize("brokers", [1, 3])
def test_how_long_it_takes(brokers: int) -> None:
    world = KafkaWorld(brokers=brokers)
    times: dict[str, list[float]] = {"snapshot": [], "restore": [], "fork": []}

    async def measure() -> None:
        await world.create_topic("orders", partitions=4)
        await world.produce("orders", *map(str, range(1000)))
        for _ in range(5):
            began_s = time.process_time()
            snapshot = await world.snapshot()
            times["snapshot"].append(time.process_time() - began_s)
            began_s = time.process_time()
            await world.restore(snapshot)
            times["restore"].append(time.process_time() - began_s)
            began_s = time.process_time()
            async with world.fork(snapshot):
                times["fork"].append(time.process_time() - began_s)

    world.run(measure)
    median_ms = {name: 1000 * statistics.median(found) for name, found in times.items()}
    print(f"{brokers} brokers:", {name: f"{found:.1f} ms" for name, found in median_ms.items()})
    assert all(found < MOST_MS * brokers for found in median_ms.values())


@pytest.mark.kafka(brokers=1)
async def test_faults_of_a_fork(kafka_world: KafkaWorld) -> None:
    """They, and what is reported of it, are of its own clients' requests."""
    await kafka_world.create_topic("orders")
    async with kafka_world.fork() as other:
        other.lose_answer("Produce")
        async with (
            Producer(kafka_world.bootstrap_servers) as here,
            Producer(other.bootstrap_servers) as there,
        ):
            await (await here.send("orders", b"here"))
            assert "its answer is lost" not in kafka_world.story()
            await (await there.send("orders", b"there"))
            assert "its answer is lost" in kafka_world.story()
        assert "offset 0" in str(other.explain("orders", 0, 0))
        assert [record.value for record in await other.records("orders")] == [b"there"]


async def test_who_waits_meanwhile(kafka_world: KafkaWorld) -> None:
    """Goes on to wait, also where a question was under way."""

    async def wait() -> None:
        await kafka_world.partition("orders").high_watermark(3, timeout_s=90)

    await kafka_world.produce("orders", "one")
    snapshot = await kafka_world.snapshot()
    await kafka_world.produce("orders", "two")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(wait)
            await trio.sleep(0.003)
        await kafka_world.restore(snapshot)
        await kafka_world.produce("orders", "a", "b")
    assert " back   to 0." in kafka_world.story()
