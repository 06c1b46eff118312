"""What the tests of Spark's data sources do again and again: fill topics, read them, compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import NewTopic
from kraftrio.clients.producer.producer import Producer
from tests.conformance.clients_trio import consuming

# Spark forks its workers and leaves sockets to the garbage collector.
MARKS = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
PARTITIONS = 3
PER_CODEC = 120

Sent = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def records(codec: str) -> list[Sent]:
    """Return records of every kind: (partition, key, value, headers, timestamp)."""
    base = CODECS.index(codec) * PER_CODEC
    found: list[Sent] = []
    for index in range(base, base + PER_CODEC):
        key = (None, b"", b"k%d" % index)[index % 3]
        value = (None, b"", b"%s %d" % (codec.encode() * (index % 40), index))[index % 5 % 3]
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if index % 4 == 0:
            headers = (("codec", codec.encode()), ("nothing", None), ("empty", b""))
        elif index % 4 == 1:
            headers = (("größe", b"%d" % index),)
        # Time goes forwards in the large and back in the small.
        found.append((index % PARTITIONS, key, value, headers, START_MS + 10 * index - index % 7))
    return found


def create_topic(address: str, topic: str, partitions: int = PARTITIONS, replicas: int = 1) -> None:
    """Create a topic, whose records are kept though their timestamps are old."""
    kept = {"retention.ms": "-1"}

    async def create() -> None:
        async with Admin(address) as admin:
            await admin.create_topics([NewTopic(topic, partitions, replicas, kept)])

    trio.run(create)


def wait_decided(address: str, topic: str) -> None:
    """Wait until no transaction is open in a topic."""

    async def wait() -> None:
        async with Admin(address) as admin:
            await consuming.wait_decided(admin, [topic])

    trio.run(wait)


def make_anew(address: str, topic: str, partitions: int) -> None:
    """Delete a topic, and create another of its name."""

    async def delete() -> None:
        async with Admin(address) as admin:
            await admin.delete_topics([topic])

    trio.run(delete)
    create_topic(address, topic, partitions)


def delete_records(address: str, topic: str, offsets: dict[int, int]) -> None:
    """Delete what lies before these offsets."""
    from kraftrio.wire.primitives import TopicPartition

    async def delete() -> None:
        async with Admin(address) as admin:
            await admin.delete_records(
                {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
            )

    trio.run(delete)


def send(address: str, topic: str, sent: Iterable[Sent], codec: Any = "none") -> None:
    """Send records and wait until they are written."""

    async def send_all() -> None:
        async with Producer(address, compression_type=codec) as producer:
            for partition, key, value, headers, timestamp_ms in sent:
                await producer.send(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                )

    trio.run(send_all)


def send_numbers(address: str, topic: str, numbers: Iterable[int]) -> None:
    """Send records that hold a number, to the partitions in turn."""
    send(
        address,
        topic,
        [(n % PARTITIONS, b"%d" % n, b"value %d" % n, (), START_MS + n) for n in numbers],
    )


def fill_with_all_kinds(address: str, topic: str) -> None:
    """Create a topic and send records of every kind in every codec."""
    create_topic(address, topic)
    for codec in CODECS:
        send(address, topic, records(codec), codec)


def reader(spark: Any, kind: str, address: str, **options: str) -> Any:
    """Return a DataFrame that reads topics in batch."""
    frame = spark.read.format(kind).option("kafka.bootstrap.servers", address)
    return frame.options(**options).load()


def stream(spark: Any, kind: str, address: str, **options: str) -> Any:
    """Return a DataFrame that reads topics as a stream."""
    frame = spark.readStream.format(kind).option("kafka.bootstrap.servers", address)
    return frame.options(**options).load()


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """Return a frame's rows in the order of topic, partition and offset."""
    return sorted(map(tuple, frame.collect()), key=lambda row: row[2:5])


def failure(frame: Any) -> str:
    """Return the message with which reading a frame fails."""
    with pytest.raises(Exception) as caught:
        frame.collect()
    return str(caught.value)
