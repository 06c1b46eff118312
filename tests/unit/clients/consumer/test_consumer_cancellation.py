"""A consumer that is cancelled at each of its checkpoints in turn: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kraftrio.clients.consumer.consumer import Consumer, RebalanceListener
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

PARTITIONS = 2
RECORDS = 6  # in each partition
EVERYTHING = [(p, o) for p in range(PARTITIONS) for o in range(RECORDS)]

Seen = list[tuple[int, int]]
Reader = Callable[[Consumer, Seen], Awaitable[None]]


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when a task has taken so many steps; it then ends at its next checkpoint."""

    def __init__(self, step: int) -> None:
        self.task = trio.lowlevel.current_task()
        self.scope = trio.CancelScope()
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self._left -= 1
            if self._left == 0:
                self.scope.cancel()

    def __enter__(self) -> trio.CancelScope:
        trio.lowlevel.add_instrument(self)
        return self.scope.__enter__()

    def __exit__(self, *error: object) -> bool | None:
        trio.lowlevel.remove_instrument(self)
        return self.scope.__exit__(*error)  # type: ignore[arg-type]


async def read_records(consumer: Consumer, seen: Seen) -> None:
    async for record in consumer:
        seen.append((record.partition, record.offset))
        if len(seen) >= len(EVERYTHING):
            return


async def read_batches(consumer: Consumer, seen: Seen) -> None:
    async for batch in consumer.batches():
        seen += [(record.partition, record.offset) for record in batch]
        if len(seen) >= len(EVERYTHING):
            return


async def read_polls(consumer: Consumer, seen: Seen) -> None:
    while len(seen) < len(EVERYTHING):
        polled = await consumer.poll(timeout_ms=300, max_records=4)
        seen += [(record.partition, record.offset) for record in polled]


READERS = {"records": read_records, "batches": read_batches, "polls": read_polls}


async def prepare(kafka: Kafka) -> None:
    await kafka.create("t", PARTITIONS)
    for partition in range(PARTITIONS):
        await kafka.fill("t", RECORDS // 2, partition, linger_ms=50)
        await kafka.fill("t", RECORDS // 2, partition, linger_ms=50)


@pytest.mark.parametrize("assigned", ["by hand", "range", "cooperative-sticky"])
@pytest.mark.parametrize("way", sorted(READERS))
async def test_calls_cancelled_at_each_checkpoint(kafka: Kafka, way: str, assigned: str) -> None:
    """The next call goes on exactly where the cancelled one was."""

    async def read(consumer: Consumer, step: int) -> bool:
        """Read everything; True if the cancellation hit."""
        seen: Seen = []
        with CancelAt(step) as scope:
            await READERS[way](consumer, seen)
        if scope.cancelled_caught:
            await READERS[way](consumer, seen)
        assert sorted(seen) == EVERYTHING, f"cancelled at step {step}"
        partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        for partition in partitions:
            assert await consumer.position(partition) == RECORDS
        return scope.cancelled_caught

    await prepare(kafka)
    step = 1
    is_hit = True
    while is_hit:
        if assigned == "by hand":
            async with kafka.consumer() as consumer:
                consumer.assign([TopicPartition("t", i) for i in range(PARTITIONS)])
                is_hit = await read(consumer, step)
        else:
            async with kafka.consumer(
                group_id=f"g{step}", partition_assignment_strategy=assigned
            ) as consumer:
                await consumer.subscribe(["t"])
                is_hit = await read(consumer, step)
        step += 1
    assert step > 4


@pytest.mark.parametrize("way", sorted(READERS))
async def test_cancelled_between_two_records(kafka: Kafka, way: str) -> None:
    """A scope that is cancelled already: the call notices, and takes nothing."""
    await prepare(kafka)
    for stop in range(len(EVERYTHING)):
        seen: Seen = []
        async with kafka.consumer() as consumer:
            consumer.assign([TopicPartition("t", i) for i in range(PARTITIONS)])
            while len(seen) < len(EVERYTHING):
                with trio.CancelScope() as scope:
                    if len(seen) == stop:
                        scope.cancel()
                        await READERS[way](consumer, seen)
                        raise AssertionError("it did not notice")
                    async for record in consumer:
                        seen.append((record.partition, record.offset))
                        if len(seen) in (stop, len(EVERYTHING)):
                            break
                if scope.cancelled_caught:
                    assert len(seen) == stop
                    async for record in consumer:
                        seen.append((record.partition, record.offset))
                        if len(seen) == len(EVERYTHING):
                            break
        assert sorted(seen) == EVERYTHING


@pytest.mark.parametrize("way", sorted(READERS))
async def test_programs_cancelled_at_each_checkpoint(kafka: Kafka, way: str) -> None:
    """Opening and closing too: the next member of the group gets what is left, and all of it.

    What was handed over before is committed on the way out, unless that itself is cancelled.
    """

    async def program(kafka: Kafka, group: str, seen: Seen) -> None:
        async with kafka.consumer(group_id=group, session_timeout_ms=6_000) as consumer:
            await consumer.subscribe(["t"])
            await READERS[way](consumer, seen)
            closing.append(True)

    closing: list[bool] = []
    await prepare(kafka)
    step = 1
    while True:
        seen: Seen = []
        closing.clear()
        with CancelAt(step) as scope:
            await program(kafka, f"g{step}", seen)
        if not scope.cancelled_caught:
            break
        async with kafka.consumer(group_id=f"g{step}") as consumer:
            await consumer.subscribe(["t"])
            if closing:
                assert sorted(seen) == EVERYTHING
            elif len(seen) < len(EVERYTHING):
                await READERS[way](consumer, seen)
                assert sorted(seen) == EVERYTHING, f"cancelled at step {step}"
        step += 1
    assert step > 10


async def test_a_listener_is_not_cancelled_with_the_call(kafka: Kafka) -> None:
    """The call's time is over, the rebalance goes on, and the next call waits for it."""

    class Slow(RebalanceListener):
        def __init__(self) -> None:
            self.ends: list[float] = []

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await trio.sleep(5)
            self.ends.append(trio.current_time())

    await prepare(kafka)
    listener = Slow()
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe(["t"], listener=listener)
        calls = 0
        while True:
            with trio.move_on_after(0.7) as scope:
                record = await anext(consumer)
            calls += 1
            if not scope.cancelled_caught:
                break
        assert record.offset == 0
        assert calls > 6
        assert len(listener.ends) == 1
        assert trio.current_time() >= listener.ends[0]
