"""Keys and values that are not bytes: there, back, and what happens where that fails."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kraftrio.clients import serialization
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.errors import RecordDeserializationError
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.fake_cluster import fake_cluster
from tests.unit.clients.simulated import Kafka

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("json", {"é": [1, None, 2.5]}, '{"é":[1,null,2.5]}'.encode()),
        ("string", "é", "é".encode()),
        ("msgpack", {"a": [1, b"x"], 5: None}, b"\x82\xa1a\x92\x01\xc4\x01x\x05\xc0"),
        ("msgpack", datetime(2024, 1, 1, tzinfo=UTC), b"\xd6\xffe\x92\x00\x80"),
    ],
)
def test_there_and_back(kind: str, value: object, data: bytes) -> None:
    """The bytes are those that others write."""
    assert getattr(serialization, f"{kind}_serializer")(value) == data
    assert getattr(serialization, f"{kind}_deserializer")(data) == value


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [("json", float("nan"), b"{"), ("string", 5, b"\xff"), ("msgpack", object(), b"\x92\x01")],
)
def test_what_cannot_be_written_or_read(kind: str, value: object, data: bytes) -> None:
    """Errors are Python's own."""
    with pytest.raises((TypeError, ValueError)):
        getattr(serialization, f"{kind}_serializer")(value)
    with pytest.raises(ValueError):
        getattr(serialization, f"{kind}_deserializer")(data)


def test_none_is_not_asked_for() -> None:
    """What has no key or value has none on the other side."""
    read = serialization.Deserializers(None, serialization.json_deserializer)
    assert read.read(T0, 0, b"k", None, ()) == (b"k", None)
    assert not serialization.Deserializers(None, None)


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_what_is_no_function(client: Any) -> None:
    """It is raised when the client is made."""
    name = "value_serializer" if client is Producer else "value_deserializer"
    with pytest.raises(TypeError, match=f"{name} must be a function"):
        client("localhost:9092", **{name: "json"})


async def test_a_producer_writes_what_serializers_make() -> None:
    """What one raises comes out of that call, with a note; other records are written."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with Producer(
            fake.bootstrap,
            key_serializer=serialization.string_serializer,
            value_serializer=serialization.json_serializer,
        ) as producer:
            await producer.send("t", {"a": 1}, key="k")
            with pytest.raises(TypeError, match="JSON") as raised:
                await producer.send("t", object())
            assert raised.value.__notes__ == [
                "by the value_serializer, for a record to the topic 't'"
            ]
            await producer.send("t", None, key="k")
            await producer.send_values("t", [1, 2])
        assert fake.values("t") == [b'{"a":1}', None, b"1", b"2"]
        wrong: Any = lambda value: str(value)  # noqa: E731
        async with Producer(fake.bootstrap, value_serializer=wrong) as other:
            with pytest.raises(TypeError, match="what the value_serializer returns must be bytes"):
                await other.send("t", 5)


async def fill(kafka: Kafka) -> None:
    """Write four records, of which the third is no JSON."""
    await kafka.create("t")
    async with kafka.producer() as producer:
        for value in (b"0", b"1", b"{", b"3"):
            await producer.send_and_wait(
                "t", value, key=b"k", headers={"h": b"x"}, timestamp_ms=kafka.now_ms()
            )


def reader(kafka: Kafka) -> Consumer[bytes, Any]:
    return kafka.consumer(value_deserializer=serialization.json_deserializer)


async def one_by_one(consumer: Consumer[bytes, Any]) -> list[Any]:
    return [(await anext(consumer)).value]


async def in_batches(consumer: Consumer[bytes, Any]) -> list[Any]:
    batch = await anext(consumer.batches())
    first, rest = batch.split(1)
    return [*first.values(), *(rest.values() if rest is not None else ())]


async def at_once(consumer: Consumer[bytes, Any]) -> list[Any]:
    return [record.value for record in await consumer.poll()]


async def by_two(consumer: Consumer[bytes, Any]) -> list[Any]:
    return [record.value for record in await consumer.poll(max_records=2)]


@pytest.mark.parametrize("take", [one_by_one, in_batches, at_once, by_two])
async def test_a_record_that_cannot_be_read_raises_until_it_is_skipped(
    kafka: Kafka, take: Any
) -> None:
    """With where it is and what it was; those around it come, once each."""
    await fill(kafka)
    async with reader(kafka) as consumer:
        consumer.assign(T0)
        found: list[Any] = []
        while len(found) < 2:
            found += await take(consumer)
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as raised:
                await take(consumer)
            error = raised.value
            assert (error.topic_partition, error.offset) == (T0, 2)
            assert (error.key, error.value, error.headers) == (b"k", b"{", (("h", b"x"),))
            assert "the value of the record at offset 2 of t-0 cannot be read" in str(error)
            assert isinstance(error.__cause__, ValueError)
            assert await consumer.position(T0) == 2
        consumer.skip(error)
        found += await take(consumer)
        assert found == [0, 1, 3]
        assert await consumer.position(T0) == 4


async def test_what_cannot_be_skipped(kafka: Kafka) -> None:
    async with reader(kafka) as consumer:
        wrong: Any = ValueError("another")
        with pytest.raises(TypeError, match="error must be a RecordDeserializationError"):
            consumer.skip(wrong)
