"""The measurements: producing, consuming, and from end to end.

Each uses a topic that `own_topic` makes for it, and deletes. Called by: the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from kraftrio.base.clock import wall_ms
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import NewTopic
from kraftrio.clients.cli.perf.results import Measurement
from kraftrio.clients.cli.session import Session
from kraftrio.clients.config import AdminConfig, ProducerConfig
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.primitives import TopicPartition

_CHUNK = 500
_BATCH_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent.

    Attributes:
        rate: records a second; None: as fast as they are taken.
    """

    records: int
    size_bytes: int
    partitions: int = 1
    rate: float | None = None
    acks: str = "all"
    compression: str = "none"


@asynccontextmanager
async def own_topic(session: Session, servers: str, load: Load) -> AsyncIterator[str]:
    """Make a topic, and delete it after the body; yield its name."""
    name = f"kraftrio-perf-{wall_ms()}"
    async with Admin(servers, **session.settings(AdminConfig)) as admin:
        await admin.create_topics([NewTopic(name, load.partitions)])
        try:
            yield name
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                await admin.delete_topics([name])


async def measure_produce(session: Session, servers: str, topic: str, load: Load) -> Measurement:
    """Send records; the latency of a batch is that of its first record.

    Raises:
        KafkaClientError: records were given up.
    """
    measured = Measurement("produce", servers)
    values = _values(load)
    seen: set[Batch] = set()
    failures: list[KafkaClientError] = []
    began_at = trio.current_time()

    def end(batch: Batch, at: float) -> None:
        now = trio.current_time()
        if batch.error is not None:
            failures.append(batch.error)
        measured.latencies_ms.append((now - at) * 1000)
        count = batch.record_count
        measured.note(now - began_at, count, count * load.size_bytes)

    async with Producer(servers, **_producer_settings(session, load)) as producer:
        sent = 0
        while sent < load.records and not failures:
            if load.rate is not None:
                await trio.sleep_until(began_at + sent / load.rate)
            count = min(_step(load), load.records - sent)
            at = trio.current_time()
            for batch in await producer.send_values(topic, values[:count]):
                if batch in seen:
                    continue
                seen.add(batch)
                if batch.is_done:
                    end(batch, at)
                else:
                    batch.callbacks.append(partial(end, batch, at))
            sent += count
        await producer.flush()
    if failures:
        raise failures[0]
    measured.duration_s = trio.current_time() - began_at
    return measured


async def measure_consume(session: Session, servers: str, topic: str, load: Load) -> Measurement:
    """Read what is in a topic; the latency is that of a call for records."""
    measured = Measurement("consume", servers)
    settings = session.settings(ConsumerConfig)
    settings["group_id"] = None
    async with Consumer(servers, **settings) as consumer:
        partitions = await consumer.partitions_for(topic)
        consumer.assign([TopicPartition(topic, each.partition) for each in partitions])
        consumer.seek_to_beginning()
        began_at = trio.current_time()
        while measured.records < load.records:
            asked_at = trio.current_time()
            found = await consumer.poll(10_000, max_records=10_000)
            if not found:
                break
            now = trio.current_time()
            measured.latencies_ms.append((now - asked_at) * 1000)
            for batch in found.batches:
                values = batch.values()
                measured.note(now - began_at, len(values), sum(len(each or b"") for each in values))
    measured.duration_s = trio.current_time() - began_at
    return measured


async def measure_end_to_end(session: Session, servers: str, topic: str, load: Load) -> Measurement:
    """Send a record, and wait until a consumer has it; one after the other."""
    measured = Measurement("end-to-end", servers)
    settings = session.settings(ConsumerConfig)
    settings["group_id"] = None
    producer_settings = {**_producer_settings(session, load), "linger_ms": 0}
    value = _values(load)[0]
    async with (
        Producer(servers, **producer_settings) as producer,
        Consumer(servers, **settings) as consumer,
    ):
        item = TopicPartition(topic, 0)
        consumer.assign([item])
        consumer.seek_to_end()
        await consumer.position(item)
        began_at = trio.current_time()
        for number in range(load.records):
            if load.rate is not None:
                await trio.sleep_until(began_at + number / load.rate)
            sent_at = trio.current_time()
            await producer.send(topic, value, partition=0)
            await consumer.poll(10_000, max_records=1)
            now = trio.current_time()
            measured.latencies_ms.append((now - sent_at) * 1000)
            measured.note(now - began_at, 1, len(value))
    measured.duration_s = trio.current_time() - began_at
    return measured


def _producer_settings(session: Session, load: Load) -> dict[str, Any]:
    return {
        "batch_size": _BATCH_BYTES,
        **session.settings(ProducerConfig),
        "acks": load.acks,
        "compression_type": load.compression,
    }


def _step(load: Load) -> int:
    """Return how many records are sent at once: at a low rate fewer, to send them evenly."""
    return _CHUNK if load.rate is None else max(1, min(_CHUNK, int(load.rate / 50)))


def _values(load: Load) -> list[bytes]:
    """Make values of the size, all different, that compress about as well as text."""
    words = b"the quick brown fox jumps over the lazy dog and runs away from it "
    text = words * (load.size_bytes // len(words) + 2)
    return [
        (b"%08d " % number + text[number % len(words) :])[: load.size_bytes]
        for number in range(min(load.records, _CHUNK))
    ]
