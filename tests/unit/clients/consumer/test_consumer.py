"""The consumer as programs use it, against a whole broker in simulated time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftrio.clients.consumer.consumer import (
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
)
from kraftrio.clients.errors import (
    ClosedError,
    ConfigError,
    InvalidGroupIdError,
    InvalidTopicError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0 = TopicPartition("t", 0)


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Take some records, one by one."""
    records = []
    async for record in consumer:
        records.append(record)
        if len(records) == count:
            break
    return records


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


# -- taking records -------------------------------------------------------------------------------


async def test_records_come_one_by_one_in_order(kafka: Kafka) -> None:
    """With the position behind the last one taken."""
    await kafka.create("t")
    await kafka.fill("t", 50)
    async with kafka.consumer() as consumer:
        consumer.assign([T0])
        records = await take(consumer, 20)
        assert offsets(records) == list(range(20))
        assert [record.value for record in records] == [b"%d" % i for i in range(20)]
        assert await consumer.position(T0) == 20
        assert consumer.current_lag(T0) == 30
        assert offsets(await take(consumer, 30)) == list(range(20, 50))


async def test_batches_and_polls_and_records_mix(kafka: Kafka) -> None:
    """What is left of a batch is handed over whichever way is used next."""
    await kafka.create("t")
    await kafka.fill("t", 40, linger_ms=100)
    async with kafka.consumer() as consumer:
        consumer.assign([T0])
        assert offsets(await take(consumer, 3)) == [0, 1, 2]
        polled = await consumer.poll(max_records=4)
        assert offsets(polled) == [3, 4, 5, 6]
        assert await consumer.position(T0) == 7
        assert offsets(await take(consumer, 1)) == [7]
        async for batch in consumer.batches():
            assert offsets(batch) == list(range(8, 40))
            break
        assert await consumer.position(T0) == 40


async def test_poll_returns_nothing_when_its_time_is_over(kafka: Kafka) -> None:
    """And what comes later with the next one."""
    await kafka.create("t")
    async with kafka.consumer() as consumer:
        consumer.assign([T0])
        before = trio.current_time()
        assert not await consumer.poll(timeout_ms=1_500)
        assert trio.current_time() - before == pytest.approx(1.5, abs=0.01)
        await kafka.fill("t", 3)
        assert offsets(await consumer.poll(timeout_ms=5_000))[0] == 0


async def test_poll_without_time_makes_progress(kafka: Kafka) -> None:
    """A loop of polls that do not wait gets everything in the end."""
    await kafka.create("t")
    await kafka.fill("t", 30)
    found: list[int] = []
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe("t")
        while len(found) < 30:
            found += offsets(await consumer.poll(timeout_ms=0))
            await trio.sleep(0.01)
    assert found == list(range(30))


async def test_max_poll_records_is_kept(kafka: Kafka) -> None:
    """Also within a batch."""
    await kafka.create("t")
    await kafka.fill("t", 25, linger_ms=100)
    async with kafka.consumer(max_poll_records=10) as consumer:
        consumer.assign([T0])
        sizes = [len(await consumer.poll()) for _ in range(3)]
    assert sizes == [10, 10, 5]


async def test_every_partition_has_its_turn(kafka: Kafka) -> None:
    """A long one does not keep the others waiting for its end."""
    await kafka.create("t", 3)
    for partition in range(3):
        await kafka.fill("t", 2_000, partition, batch_size=1_000)
    async with kafka.consumer(max_partition_fetch_bytes=4_000) as consumer:
        consumer.assign([TopicPartition("t", i) for i in range(3)])
        records = await take(consumer, 3_000)
    counts = [sum(record.partition == i for record in records) for i in range(3)]
    assert min(counts) > 700
    for partition in range(3):
        mine = [record.offset for record in records if record.partition == partition]
        assert mine == list(range(len(mine)))


async def test_two_tasks_do_not_take_from_one_consumer(kafka: Kafka) -> None:
    """The second one gets an error."""
    await kafka.create("t")
    async with kafka.consumer() as consumer, trio.open_nursery() as nursery:
        consumer.assign([T0])
        nursery.start_soon(consumer.poll)
        await trio.sleep(0.1)
        with pytest.raises(trio.BusyResourceError):
            await consumer.poll()
        nursery.cancel_scope.cancel()


async def test_a_consumer_is_used_within_async_with(kafka: Kafka) -> None:
    """Before and after it is closed."""
    consumer = kafka.consumer(group_id="g")
    with pytest.raises(ClosedError):
        await consumer.poll()
    async with consumer:
        pass
    with pytest.raises(ClosedError):
        await anext(consumer)
    with pytest.raises(ClosedError):
        await consumer.subscribe(["t"])


# -- where to read --------------------------------------------------------------------------------


async def test_seek(kafka: Kafka) -> None:
    """To an offset, the beginning, the end and a time; also in the middle of a batch."""
    await kafka.create("t")
    async with kafka.producer(linger_ms=50) as producer:
        for i in range(20):
            await producer.send("t", b"%d" % i, timestamp_ms=1_000 + 10 * i)
    async with kafka.consumer() as consumer:
        consumer.assign([T0])
        assert offsets(await take(consumer, 3)) == [0, 1, 2]
        consumer.seek(T0, 10)
        assert await consumer.position(T0) == 10
        assert offsets(await take(consumer, 2)) == [10, 11]
        consumer.seek_to_beginning()
        assert offsets(await take(consumer, 2)) == [0, 1]
        await consumer.seek_to_time(1_150, T0)
        assert offsets(await take(consumer, 2)) == [15, 16]
        consumer.seek_to_end(T0)
        assert await consumer.position(T0) == 20
        assert not await consumer.poll(timeout_ms=100)
        await consumer.seek_to_time(99_999)
        assert await consumer.position(T0) == 20
        consumer.seek(T0, OffsetAndMetadata(5))
        assert offsets(await take(consumer, 1)) == [5]
        with pytest.raises(ValueError, match="t-1 is not assigned"):
            consumer.seek(TopicPartition("t", 1), 0)
        with pytest.raises(ValueError, match="offset"):
            consumer.seek(T0, -1)


async def test_topics(kafka: Kafka) -> None:
    """All of them, and the partitions of one."""
    await kafka.create("t", 2)
    async with kafka.consumer() as consumer:
        assert [each.partition for each in await consumer.partitions_for("t")] == [0, 1]
        assert "t" in await consumer.list_topics()


async def test_pause_and_resume(kafka: Kafka) -> None:
    """Also of what is being handed over; nothing is lost by it."""
    await kafka.create("t", 2)
    for partition in range(2):
        await kafka.fill("t", 10, partition, linger_ms=50)
    other = TopicPartition("t", 1)
    async with kafka.consumer() as consumer:
        consumer.assign([T0, other])
        [first] = await take(consumer, 1)
        consumer.pause(first.topic_partition)
        assert consumer.paused == {first.topic_partition}
        records = await take(consumer, 10)
        assert {record.partition for record in records} == {1 - first.partition}
        assert not await consumer.poll(timeout_ms=1_000)
        consumer.resume(first.topic_partition)
        assert consumer.paused == frozenset()
        assert offsets(await take(consumer, 9)) == list(range(1, 10))


@pytest.mark.parametrize(
    ("policy", "wanted"), [("earliest", 0), ("latest", 5), ("by_duration:PT1H", 5)]
)
async def test_auto_offset_reset(kafka: Kafka, policy: str, wanted: int) -> None:
    """Where a partition without a position begins, and one that has left the log goes on."""
    await kafka.create("t")
    async with kafka.producer() as producer:
        for _ in range(5):
            await producer.send("t", b"v", timestamp_ms=1_000)
    async with kafka.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([T0])
        assert await consumer.position(T0) == wanted
        consumer.seek(T0, 999)
        assert len(await consumer.poll(timeout_ms=1_000)) == 5 - wanted
        await kafka.fill("t", 1)
        assert offsets(await take(consumer, 1)) == [5]


async def test_no_reset_is_an_error_each_time(kafka: Kafka) -> None:
    """With no committed offset, and with one that is not in the log."""
    await kafka.create("t")
    await kafka.fill("t", 5)
    async with kafka.consumer(auto_offset_reset="none", group_id="g") as consumer:
        consumer.assign([T0])
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="t-0"):
                await consumer.poll(timeout_ms=5_000)
        with pytest.raises(NoOffsetForPartitionError, match="t-0"):
            await consumer.position(T0)
        consumer.seek(T0, 7)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="no offset 7"):
                await consumer.poll(timeout_ms=5_000)
        consumer.seek(T0, 4)
        assert offsets(await consumer.poll(timeout_ms=5_000)) == [4]


async def test_a_topic_that_cannot_be(kafka: Kafka) -> None:
    """A name that no topic can have is an error, again and again."""
    async with kafka.consumer(group_id="g", metadata_max_age_ms=1_000) as consumer:
        await consumer.subscribe(["what is this"])
        for _ in range(2):
            with pytest.raises(InvalidTopicError, match="what is this"):
                await consumer.poll(timeout_ms=20_000)
    async with kafka.consumer(metadata_max_age_ms=1_000) as consumer:
        consumer.assign([TopicPartition("what is this", 0)])
        with pytest.raises(InvalidTopicError, match="what is this"):
            await consumer.poll(timeout_ms=20_000)


async def test_what_is_fetched_ahead_is_bounded(kafka: Kafka) -> None:
    """However long the program looks at what it has; paused partitions count as well."""
    await kafka.create("t", 3)
    for partition in range(3):
        await kafka.fill("t", 3_000, partition, batch_size=2_000)
    partitions = [TopicPartition("t", i) for i in range(3)]
    async with kafka.consumer(max_partition_fetch_bytes=5_000) as consumer:
        consumer.assign(partitions)
        await take(consumer, 10)
        consumer.pause(partitions[1])
        await trio.sleep(10)
        assert 0 < consumer._partitions.buffer.buffered_bytes(1) <= 2 * 3 * 5_000
        consumer.resume(partitions[1])
        assert len(await take(consumer, 8_990)) == 8_990
    async with kafka.consumer(max_partition_fetch_bytes=5_000, fetch_max_bytes=6_000) as consumer:
        consumer.assign(partitions)
        await take(consumer, 10)
        await trio.sleep(10)
        assert 0 < consumer._partitions.buffer.buffered_bytes(1) <= 2 * 6_000
        assert len(await take(consumer, 8_990)) == 8_990


async def test_a_topic_that_comes_later(kafka: Kafka) -> None:
    """Both ways of reading wait for it."""
    async with (
        kafka.consumer(group_id="g", allow_auto_create_topics=False) as member,
        kafka.consumer(allow_auto_create_topics=False) as reader,
    ):
        await member.subscribe(["t"])
        reader.assign([T0])
        assert not await member.poll(timeout_ms=3_000)
        assert not await reader.poll(timeout_ms=3_000)
        await kafka.create("t")
        await kafka.fill("t", 1)
        assert offsets(await member.poll(timeout_ms=30_000)) == [0]
        assert offsets(await reader.poll(timeout_ms=30_000)) == [0]


async def test_settings_and_misuse(kafka: Kafka) -> None:
    """One plain sentence each."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"auto_offset_reset": "middle"}, "auto_offset_reset must be"),
        ({"isolation_level": "chaos"}, "isolation_level must be"),
        ({"partition_assignment_strategy": "best"}, "partition_assignment_strategy must be"),
        ({"group_instance_id": "i"}, "needs a group_id"),
        ({"fetch_max_bytes": 0}, "fetch_max_bytes must be"),
        ({"heartbeat_interval_ms": 50_000}, "heartbeat_interval_ms"),
        ({"nonsense": 1}, "unknown setting nonsense"),
    ]
    for settings, sentence in cases:
        with pytest.raises(ConfigError, match=sentence):
            Consumer("localhost:9092", **settings)
    async with kafka.consumer() as consumer:
        with pytest.raises(InvalidGroupIdError):
            await consumer.subscribe(["t"])
        with pytest.raises(InvalidGroupIdError):
            await consumer.commit()
    async with kafka.consumer(group_id="g") as consumer:
        consumer.assign([T0])
        with pytest.raises(ValueError, match="unsubscribe first"):
            await consumer.subscribe(["t"])
        await consumer.unsubscribe()
        await consumer.subscribe(["t"])
        with pytest.raises(ValueError, match="unsubscribe first"):
            consumer.assign([T0])
