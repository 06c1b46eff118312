"""Commits after the body: an exception skips no record, and what is finished comes once."""

from __future__ import annotations

import pytest
import trio

from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.errors import ClosedError, InvalidGroupIdError
from tests.unit.clients.consumer.test_consumer import T0
from tests.unit.clients.simulated import Kafka


class BodyError(Exception):
    """What a program's work raises."""


async def committed_offset(kafka: Kafka) -> int | None:
    """Return what the group has committed, as another client sees it."""
    async with kafka.consumer(group_id="g") as other:
        found = (await other.offsets.committed([T0]))[T0]
    return None if found is None else found.offset


async def wait_committed(kafka: Kafka, offset: int) -> None:
    """Wait until the group has committed that."""
    with trio.fail_after(5):
        while await committed_offset(kafka) != offset:
            pass


async def work(consumer: Consumer, *, fail_at: int) -> list[int]:
    """Work on records until one cannot be worked on; return those that came."""
    seen: list[int] = []
    try:
        async for record in consumer.committed():
            seen.append(record.offset)
            if record.offset == fail_at:
                raise BodyError
    except BodyError:
        return seen
    raise AssertionError("the loop has no end")


async def test_an_exception_skips_no_record(kafka: Kafka) -> None:
    """Not in the next loop, not after a restart; those before it do not come again."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with kafka.consumer(group_id="g", enable_auto_commit=False) as consumer:
        await consumer.subscribe("t")
        assert await work(consumer, fail_at=3) == [0, 1, 2, 3]
        assert await work(consumer, fail_at=5) == [3, 4, 5]
    assert await committed_offset(kafka) == 5
    with pytest.raises(BodyError):
        async with kafka.consumer(group_id="g") as consumer:
            await consumer.subscribe("t")
            async for record in consumer.committed():
                if record.offset == 7:
                    raise BodyError
    assert await committed_offset(kafka) == 7


async def test_what_is_finished_is_committed_while_the_program_waits(kafka: Kafka) -> None:
    """Soon, and all of it, though no more records come."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with (
        kafka.consumer(group_id="g", enable_auto_commit=False) as consumer,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe("t")

        async def loop() -> None:
            async for _ in consumer.committed():
                pass

        nursery.start_soon(loop)
        await wait_committed(kafka, 10)
        nursery.cancel_scope.cancel()


async def test_nothing_of_a_body_is_committed_before_it_has_ended(kafka: Kafka) -> None:
    """However long it takes."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with kafka.consumer(group_id="g", auto_commit_interval_ms=10) as consumer:
        await consumer.subscribe("t")
        async for record in consumer.committed():
            await trio.sleep(1)
            if record.offset == 2:
                assert await committed_offset(kafka) == 2
                break


@pytest.mark.parametrize(("declares", "first"), [(False, 1), (True, 2)])
async def test_a_break_finishes_no_body_unless_the_program_says_so(
    kafka: Kafka, declares: bool, first: int
) -> None:
    """It cannot be distinguished from an exception; `commit` says so."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    for _ in range(2):
        async with kafka.consumer(group_id="g") as consumer:
            await consumer.subscribe("t")
            async for record in consumer.committed():
                if record.offset == 1:
                    break
                assert record.offset in (0, first)
                if record.offset == first:
                    return
            if declares:
                await consumer.commit()
            else:
                assert (await anext(consumer.committed())).offset == 1


async def test_batches(kafka: Kafka) -> None:
    """A batch is finished as a whole."""
    await kafka.create("t")
    await kafka.fill("t", 4)
    await kafka.fill("t", 4)
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe("t")
        starts: list[int] = []
        for _ in range(2):
            with pytest.raises(BodyError):
                async for batch in consumer.committed().batches():
                    starts.append(batch.first_offset)
                    if batch.next_offset == 8:
                        raise BodyError
        again = starts[-1]
        assert starts.count(again) == 2 and starts == sorted(starts)
    assert (await committed_offset(kafka) or 0) == again


async def test_without_a_group(kafka: Kafka) -> None:
    """There is nobody to commit for."""
    async with kafka.consumer() as consumer:
        with pytest.raises(InvalidGroupIdError):
            consumer.committed()
    with pytest.raises(ClosedError):
        consumer.committed()


async def test_partitions_are_given_up_with_what_is_finished(kafka: Kafka) -> None:
    """Another member goes on behind it, and with what was not."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with kafka.consumer(group_id="g", enable_auto_commit=False) as consumer:
        await consumer.subscribe("t")
        assert await work(consumer, fail_at=4) == [0, 1, 2, 3, 4]
        await consumer.unsubscribe()
        await consumer.subscribe("t")
        assert await work(consumer, fail_at=4) == [4]
