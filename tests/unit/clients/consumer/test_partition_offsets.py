"""What a consumer looks up of partitions that it need not read."""

from __future__ import annotations

import pytest

from kraftrio.clients.consumer.consumer import OffsetAndMetadata
from kraftrio.clients.errors import ClosedError, InvalidGroupIdError, TimedOutError
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_the_ends_of_logs_and_offsets_by_time(kafka: Kafka) -> None:
    """Of the records from some time on the first; None where there is none."""
    await kafka.create("t", 2)
    async with kafka.producer() as producer:
        for i in range(5):
            await producer.send("t", b"v", partition=0, timestamp_ms=1_000 + i)
    async with kafka.consumer() as consumer:
        assert await consumer.offsets.beginning([T0, T1]) == {T0: 0, T1: 0}
        assert await consumer.offsets.end([T0, T1]) == {T0: 5, T1: 0}
        found = await consumer.offsets.for_times({T0: 1_003, T1: 0})
        at_time = found[T0]
        assert at_time is not None
        assert at_time[:2] == (3, 1_003)
        assert found[T1] is None
        assert await consumer.offsets.for_times({T0: 2_000}) == {T0: None}
        assert consumer.assignment == frozenset()


async def test_what_the_group_has_committed(kafka: Kafka) -> None:
    """None of a partition without a commit."""
    await kafka.create("t", 2)
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.commit({T0: OffsetAndMetadata(5, -1, "note")})
        assert await consumer.offsets.committed([T0, T1]) == {
            T0: OffsetAndMetadata(5, -1, "note"),
            T1: None,
        }


async def test_what_cannot_be_looked_up(kafka: Kafka) -> None:
    """A time before 1970, a partition that is not there, commits of no group."""
    await kafka.create("t")
    async with kafka.consumer() as consumer:
        with pytest.raises(ValueError, match="negative"):
            await consumer.offsets.for_times({T0: -1})
        with pytest.raises(TimedOutError):
            await consumer.offsets.end([TopicPartition("t", 7)], timeout_ms=2_000)
        with pytest.raises(InvalidGroupIdError):
            await consumer.offsets.committed(T0)


async def test_before_and_after_the_consumer_is_open(kafka: Kafka) -> None:
    consumer = kafka.consumer()
    with pytest.raises(ClosedError):
        await consumer.offsets.end(T0)
    async with consumer:
        pass
    with pytest.raises(ClosedError):
        await consumer.offsets.end(T0)
