"""Why records are read again: each reason is caused in a world, and given with its event."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from kraftrio import Consumer, TopicPartition
from kraftrio.errors import KafkaClientError
from kraftrio.testing import KafkaWorld
from kraftrio.testing.explaining.evidence import Answer, Reason

ORDERS = TopicPartition("orders", 0)
GROUP = "billing (new)"
pytestmark = pytest.mark.kafka(brokers=1)


def _event(answer: Answer) -> str:
    assert answer.event is not None, answer
    return " ".join(answer.event[1:])


def _consumer(world: KafkaWorld, **settings: Any) -> Consumer[Any, Any]:
    return Consumer(
        world.bootstrap_servers,
        **{
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **settings,
        },
    )


async def _read(
    world: KafkaWorld, then: Callable[[Consumer[Any, Any]], Any] | None = None, **settings: Any
) -> None:
    """Read a record as a member of a group, do what the test wants, and leave."""
    async with _consumer(world, **settings) as consumer:
        await consumer.subscribe(["orders"])
        with trio.fail_after(60):
            while not await consumer.poll():
                pass
        if then is not None:
            await then(consumer)


async def _commit(consumer: Consumer[Any, Any]) -> None:
    await consumer.commit()


async def test_read_once_and_not_at_all(kafka_world: KafkaWorld) -> None:
    (sent,) = await kafka_world.produce("orders", "one")
    assert kafka_world.explain(sent).reading.reason is Reason.NOT_READ
    await _read(kafka_world, _commit)
    await kafka_world.records("orders")  # the test's own look is none
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.READ_ONCE
    assert answer.text.startswith("program (client.id consumer-billing-1) fetched it")


async def test_a_rebalance_without_a_commit(kafka_world: KafkaWorld) -> None:
    """A member is cut off before it commits: another one begins where the group had been."""
    await kafka_world.produce("orders", "one")
    await _read(kafka_world, _commit, group_id=GROUP)
    (sent,) = await kafka_world.produce("orders", "two")
    async with trio.open_nursery() as nursery:
        with kafka_world.machine("a"):

            async def hang(_consumer: Consumer[Any, Any]) -> None:
                kafka_world.links.isolate("a")
                await trio.sleep_forever()

            nursery.start_soon(partial(_read, kafka_world, hang, group_id=GROUP))
        await kafka_world.group(GROUP).stable(members=1)
        await kafka_world.group(GROUP).empty(timeout_s=120)
        with kafka_world.machine("b"):
            await _read(kafka_world, group_id=GROUP)
        nursery.cancel_scope.cancel()
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.NOT_COMMITTED
    taken_over = "had committed offset 1 when its partitions were taken over"
    assert answer.text == f"group {GROUP} {taken_over}"
    assert f'member expired group="{GROUP}"' in _event(answer)


async def test_a_commit_that_is_refused(kafka_world: KafkaWorld) -> None:
    """Its member could not be reached, and was given up for dead."""
    await kafka_world.produce("orders", "zero")
    await _read(kafka_world, _commit)
    (sent,) = await kafka_world.produce("orders", "one")

    async def too_late(consumer: Consumer[Any, Any]) -> None:
        kafka_world.links.isolate("a")
        await kafka_world.group("billing").empty(timeout_s=60)
        kafka_world.links.heal()
        with pytest.raises(KafkaClientError):
            await consumer.commit()

    with kafka_world.machine("a"):
        await _read(kafka_world, too_late)
    await _read(kafka_world)
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.COMMIT_REFUSED, answer
    assert "its commit of 2 was refused: " in answer.text
    assert "asks OffsetCommit to n1: billing orders-0=2" in _event(answer)


async def test_a_commit_that_never_arrived(kafka_world: KafkaWorld) -> None:
    await kafka_world.produce("orders", "zero")
    await _read(kafka_world, _commit)
    (sent,) = await kafka_world.produce("orders", "one")

    async def cut_off(consumer: Consumer[Any, Any]) -> None:
        kafka_world.links.cut("a", "n1")
        with trio.move_on_after(5):
            await consumer.commit()
        kafka_world.node(1).kill()  # and with it what is under way
        kafka_world.links.heal()
        kafka_world.node(1).start()
        await kafka_world.healthy()

    with kafka_world.machine("a"), trio.move_on_after(60):
        await _read(kafka_world, cut_off)
    await _read(kafka_world)
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.COMMIT_LOST, answer
    assert answer.text.endswith("its commit of 2 never reached n1")


async def test_a_commit_whose_answer_is_lost(kafka_world: KafkaWorld) -> None:
    """A program that takes it for undone goes back to the record."""
    (sent,) = await kafka_world.produce("orders", "one")

    async def go_back(consumer: Consumer[Any, Any]) -> None:
        await consumer.poll(100)
        kafka_world.lose_answer("OffsetCommit")
        await consumer.commit()
        consumer.seek(ORDERS, 0)
        await consumer.poll(5000)

    await _read(kafka_world, go_back)
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.COMMIT_ANSWER_LOST, answer
    assert answer.text.endswith("after the answer to its commit of 1 was lost")
    assert "but the answer was lost" in _event(answer)


async def test_a_seek_and_a_smaller_commit(kafka_world: KafkaWorld) -> None:
    (sent,) = await kafka_world.produce("orders", "one")

    async def go_back(consumer: Consumer[Any, Any]) -> None:
        await consumer.poll(100)
        await consumer.commit()
        consumer.seek(ORDERS, 0)
        await consumer.poll(5000)
        await consumer.commit({ORDERS: 0})

    await _read(kafka_world, go_back)
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.SEEK, answer
    assert answer.text.endswith("fetched from offset 0 again, which no broker gave it")
    assert "asks Fetch to n1: orders-0=0" in _event(answer)
    await _read(kafka_world)
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.COMMITTED_BACK, answer
    assert "its commit of 1 was followed by one of 0" in answer.text


async def test_an_offset_reset(kafka_world: KafkaWorld) -> None:
    """The group has committed nothing, so its next member begins at the beginning."""
    (sent,) = await kafka_world.produce("orders", "one")
    await _read(kafka_world)
    await _read(kafka_world)
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.OFFSET_RESET, answer
    assert answer.text == (
        "its position was set to the earliest offset, 0, since group billing had committed nothing"
    )
    assert "asks OffsetFetch to n1: billing orders-0; orders-0=-1" in _event(answer)


async def test_two_groups(kafka_world: KafkaWorld) -> None:
    (sent,) = await kafka_world.produce("orders", "one")
    await _read(kafka_world, _commit)
    await _read(kafka_world, _commit, group_id="audit")
    answer = kafka_world.explain(sent).reading
    assert answer.reason is Reason.OTHER_GROUP
    assert "in group billing, and program (client.id consumer-audit-" in answer.text


async def test_fetched_twice_and_given_once(kafka_world: KafkaWorld) -> None:
    """A program that goes back before it went on has its records fetched from where they were."""
    (sent,) = await kafka_world.produce("orders", "one")
    async with _consumer(kafka_world, group_id=None) as consumer:
        consumer.assign([ORDERS])
        consumer.seek(ORDERS, 0)
        await consumer.poll(5000)
        consumer.seek(ORDERS, 0)
        await consumer.poll(5000)
    answer = kafka_world.explain(sent).reading
    assert answer.reason in (Reason.FETCHED_AGAIN, Reason.SEEK), answer
