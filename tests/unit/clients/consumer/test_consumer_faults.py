"""Consumers of a cluster whose brokers die, in simulated time: all records, once, in order."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.errors import LogTruncationError, TimedOutError
from kraftrio.testing.simulation.cluster import SimNode
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka, simulate

PARTITIONS = 3
RECORDS = 120  # in each partition
T0 = TopicPartition("t", 0)
REPLICATED: dict[str, object] = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
}


async def crash_for(node: SimNode, seconds: float) -> None:
    """Let a node be dead for a while."""
    node.crash()
    await trio.sleep(seconds)
    node.restore()
    node.start()


async def write(kafka: Kafka, count: int) -> None:
    """Write numbered records to all partitions, each until it is acknowledged, in order."""
    async with kafka.producer(
        acks="all",
        max_in_flight_requests_per_connection=1,
        delivery_timeout_ms=590_000,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=1,
    ) as producer:
        for number in range(count):
            for partition in range(PARTITIONS):
                await producer.send(
                    "t",
                    b"%d" % number,
                    partition=partition,
                    timestamp_ms=kafka.now_ms(),
                )
            await trio.sleep(0.05)
        await producer.flush()


class Reading:
    """What some consumers got, by partition."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {i: [] for i in range(PARTITIONS)}
        self.numbers: dict[int, set[int]] = {i: set() for i in range(PARTITIONS)}

    def add(self, record: Any) -> None:
        self.offsets[record.partition].append(record.offset)
        self.numbers[record.partition].add(int(record.value))

    def has_all(self, count: int) -> bool:
        return all(len(numbers) == count for numbers in self.numbers.values())


@pytest.mark.parametrize("seed", range(2))
def test_a_reader_over_crashes(seed: int) -> None:
    """Leaders die and come back; the reader sees each offset once, in order, and every record."""

    async def main(kafka: Kafka) -> None:
        await kafka.create("t", PARTITIONS, 3)
        rng = random.Random(seed)
        reading = Reading()

        async def read(consumer: Consumer) -> None:
            consumer.assign([TopicPartition("t", i) for i in range(PARTITIONS)])
            async for record in consumer:
                reading.add(record)

        async with kafka.consumer() as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(read, consumer)
            async with trio.open_nursery() as writers:
                writers.start_soon(write, kafka, RECORDS)
                for _ in range(3):
                    await trio.sleep(rng.uniform(1, 4))
                    await crash_for(rng.choice(kafka.cluster.brokers), rng.uniform(0.5, 6))
            await kafka.wait_for(lambda: reading.has_all(RECORDS))
            nursery.cancel_scope.cancel()
        for offsets in reading.offsets.values():
            assert offsets == sorted(set(offsets))

    simulate(main, seed, 3, REPLICATED)


@pytest.mark.parametrize("seed", range(2))
def test_a_group_over_crashes(seed: int) -> None:
    """Members share the work while brokers, coordinators among them, die and come back."""

    async def main(kafka: Kafka) -> None:
        await kafka.create("t", PARTITIONS, 3)
        rng = random.Random(seed)
        reading = Reading()
        strategy = rng.choice(["range", "cooperative-sticky"])

        async def member(number: int, *, task_status: Any) -> None:
            async with kafka.consumer(
                group_id="g",
                session_timeout_ms=8_000,
                heartbeat_interval_ms=1_000,
                auto_commit_interval_ms=1_000,
                partition_assignment_strategy=strategy,
            ) as consumer:
                await consumer.subscribe(["t"])
                task_status.started()
                async for record in consumer:
                    reading.add(record)

        async with trio.open_nursery() as nursery:
            await nursery.start(member, 1)
            async with trio.open_nursery() as writers:
                writers.start_soon(write, kafka, RECORDS)
                for number in range(3):
                    await trio.sleep(rng.uniform(1, 4))
                    await crash_for(rng.choice(kafka.cluster.brokers), rng.uniform(0.5, 6))
                    if number == 1:
                        await nursery.start(member, 2)
            await kafka.wait_for(lambda: reading.has_all(RECORDS))
            nursery.cancel_scope.cancel()

    simulate(main, seed, 3, REPLICATED)


@pytest.mark.parametrize("policy", ["none", "earliest"])
def test_a_truncated_log_is_noticed(policy: str) -> None:
    """KIP-320: the only replica that is left never had what was consumed; offsets are the same."""

    async def main(kafka: Kafka) -> None:
        await kafka.create("t", 1, 2, unclean_leader_election_enable="true", min_insync_replicas=1)
        await kafka.fill("t", 5)
        async with kafka.consumer(auto_offset_reset=policy) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            leader_id, behind_id = kafka.replicas_of("t")
            leader, behind = kafka.cluster.nodes[leader_id], kafka.cluster.nodes[behind_id]
            assert [(await anext(consumer)).offset for _ in range(5)] == list(range(5))
            behind.crash()
            await kafka.wait_for(lambda: kafka.isr_of("t") == [leader_id])
            await kafka.fill("t", 5)
            assert [(await anext(consumer)).offset for _ in range(5)] == list(range(5, 10))
            leader.crash()
            await trio.sleep(5)
            behind.restore()
            behind.start()
            await kafka.wait_for(lambda: kafka.leader_of("t") == behind_id)
            await kafka.fill("t", 20)
            if policy == "earliest":
                assert (await anext(consumer)).offset == 5
                assert (await anext(consumer)).offset == 6
            else:
                with pytest.raises(LogTruncationError) as truncation:
                    await anext(consumer)
                assert truncation.value.topic_partition == T0
                assert (truncation.value.offset, truncation.value.divergent_offset) == (10, 5)
                consumer.seek(T0, 5)
                assert (await anext(consumer)).offset == 5
            leader.restore()
            leader.start()

    simulate(main, 1, 4, REPLICATED)


async def test_no_broker_at_all(kafka: Kafka) -> None:
    """Requests raise after their time; polls return nothing, and go on when one is back."""
    await kafka.create("t")
    await kafka.fill("t", 3)
    [node] = kafka.cluster.brokers
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe(["t"])
        assert (await anext(consumer)).offset == 0
        node.crash()
        await trio.sleep(1)
        with pytest.raises(TimedOutError):
            await consumer.commit(timeout_ms=3_000)
        with pytest.raises(TimedOutError):
            await consumer.offsets.end([T0], timeout_ms=3_000)
        assert [r.offset for r in await consumer.poll(timeout_ms=1_000)] == [1, 2]
        assert not await consumer.poll(timeout_ms=5_000)
        node.restore()
        node.start()
        await kafka.fill("t", 1)
        assert (await anext(consumer)).offset == 3
        await consumer.commit()


async def test_closing_without_a_broker_ends(kafka: Kafka) -> None:
    """Within the time for it."""
    await kafka.create("t")
    await kafka.fill("t", 3)
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe(["t"])
        assert (await anext(consumer)).offset == 0
        for node in kafka.cluster.brokers:
            node.crash()
        before = trio.current_time()
    assert trio.current_time() - before < 31
