"""Clients whose topic is deleted and re-created while they use it, in simulated time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.errors import LogTruncationError, TimedOutError
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0 = TopicPartition("t", 0)
FRESH = {"metadata_max_age_ms": 3_000}


async def recreate(kafka: Kafka, partitions: int = 1, *, after_s: float = 0.5) -> None:
    """Delete the topic, and make another of its name."""
    async with Admin(kafka.bootstrap) as admin:
        await admin.delete_topics(["t"])
        await trio.sleep(after_s)
    await kafka.create("t", partitions)


async def raise_epochs(kafka: Kafka, times: int) -> None:
    """Restart the broker: each time, leaders lead in a new epoch."""
    node = kafka.cluster.nodes[1]
    for _ in range(times):
        await node.stop()
        node.start()
        await kafka.wait_for(lambda: node.is_ready)


async def read(consumer: Consumer, count: int) -> list[tuple[int, bytes | None]]:
    """Take so many records, in bounded time."""
    found: list[tuple[int, bytes | None]] = []
    with trio.fail_after(60):
        while len(found) < count:
            found += [(r.offset, r.value) for r in await consumer.poll(1_000)]
    return found


def written(count: int) -> list[tuple[int, bytes | None]]:
    return [(number, b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("later", [3, 12])
@pytest.mark.parametrize("settings", [{}, {"group_id": "g"}], ids=["assigned", "group"])
@pytest.mark.kafka(brokers=1, config={"auto.create.topics.enable": "false"})
async def test_a_consumer_reads_the_new_topic_from_its_beginning(
    kafka: Kafka, epochs: int, later: int, settings: dict[str, Any]
) -> None:
    """Whether its epochs are lower or the same, and it holds fewer records or more."""
    await kafka.create("t")
    await raise_epochs(kafka, epochs)
    await kafka.fill("t", 5)
    async with kafka.consumer(**FRESH, **settings) as consumer:
        if settings:
            await consumer.subscribe("t")
        else:
            consumer.assign([T0])
        assert await read(consumer, 5) == written(5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recreate, kafka)
            await consumer.poll(2_000)
        await kafka.fill("t", later)
        assert await read(consumer, later) == written(later)


@pytest.mark.kafka(brokers=1, config={"auto.create.topics.enable": "false"})
async def test_without_a_policy_an_error_is_raised_and_the_application_decides(
    kafka: Kafka,
) -> None:
    """auto_offset_reset=none: an error at each poll until it seeks."""
    await kafka.create("t")
    await kafka.fill("t", 5)
    async with kafka.consumer(auto_offset_reset="none", **FRESH) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await read(consumer, 5) == written(5)
        await recreate(kafka)
        await kafka.fill("t", 9)
        for _ in range(2):
            with pytest.raises(LogTruncationError, match="t-0 was re-created") as raised:
                await read(consumer, 1)
            assert (raised.value.topic_partition, raised.value.offset) == (T0, 5)
        consumer.seek(T0, 2)
        assert (await read(consumer, 7))[0] == (2, b"2")


async def _send(producer: Producer, kafka: Kafka, count: int, prefix: bytes) -> list[Any]:
    return [
        await producer.send(
            "t", prefix + b"%d" % number, key=b"%d" % number, timestamp_ms=kafka.now_ms()
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("before", "later"), [(4, 2), (2, 4), (3, 3)])
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.kafka(brokers=1, config={"auto.create.topics.enable": "false"})
async def test_a_producer_spreads_over_the_partitions_there_are(
    kafka: Kafka, before: int, later: int, idempotent: bool
) -> None:
    """Fewer or more: every record is written, and where the key belongs."""
    await kafka.create("t", before)
    settings: dict[str, Any] = {"enable_idempotence": idempotent, "linger_ms": 0, **FRESH}
    async with kafka.producer(**settings) as producer:
        sent = await _send(producer, kafka, 40, b"a")
        assert len({(await delivery).partition for delivery in sent}) == before
        await recreate(kafka, later)
        await trio.sleep(5)
        sent = await _send(producer, kafka, 40, b"b")
        places = Counter([(await delivery).partition for delivery in sent])
        assert sorted(places) == list(range(later))
    async with kafka.consumer() as consumer:
        consumer.assign(TopicPartition("t", index) for index in range(later))
        values = [value for _, value in await read(consumer, 40)]
        assert sorted(filter(None, values)) == sorted(b"b%d" % number for number in range(40))
        assert not await consumer.poll(500)


@pytest.mark.kafka(brokers=1, config={"auto.create.topics.enable": "false"})
async def test_records_for_a_partition_that_is_gone_are_given_up_with_the_reason(
    kafka: Kafka,
) -> None:
    """They were accepted for the former topic; nobody puts them elsewhere behind one's back."""
    await kafka.create("t", 4)
    async with kafka.producer(
        linger_ms=10_000, request_timeout_ms=2_000, delivery_timeout_ms=15_000, **FRESH
    ) as producer:
        now_ms = kafka.now_ms()
        gone = await producer.send("t", b"x", partition=3, timestamp_ms=now_ms)
        kept = await producer.send("t", b"y", partition=0, timestamp_ms=now_ms)
        await recreate(kafka, 2)
        assert (await kept).offset == 0
        with pytest.raises(TimedOutError, match="the topic was re-created, without that"):
            await gone


@pytest.mark.kafka(brokers=1, config={"auto.create.topics.enable": "false"})
async def test_a_producer_goes_on_while_the_topic_changes_again_and_again(kafka: Kafka) -> None:
    """Idempotent, several requests in flight: within each topic no record twice, all in order."""
    await kafka.create("t")
    async with kafka.producer(
        enable_idempotence=True, linger_ms=1, batch_size=200, **FRESH
    ) as producer:
        sent: list[Any] = []
        stop = trio.Event()

        async def write() -> None:
            while not stop.is_set():
                value = b"%d" % len(sent)
                sent.append(await producer.send("t", value, timestamp_ms=kafka.now_ms()))
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for pause_s in (0.0, 0.3, 1.0):
                await trio.sleep(0.7)
                await recreate(kafka, after_s=pause_s)
            await trio.sleep(2)
            stop.set()
        for delivery in sent:
            await delivery
    async with kafka.consumer() as consumer:
        consumer.assign([T0])
        await consumer.seek_to_time(0)
        ends = await consumer.offsets.end([T0])
        values = [int(value or b"") for _, value in await read(consumer, ends[T0])]
    assert values == sorted(set(values))
    assert values[-1] == len(sent) - 1
