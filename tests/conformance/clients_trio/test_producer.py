"""Our producer against a broker: what it sends, other clients read identically."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import pytest
import trio

from kraftrio import Producer, RecordMetadata
from kraftrio.errors import RecordTooLargeError
from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.records import Abilities, Record, make_record
from tests.conformance.clients_trio.producing import TrioProducer, read_log, send_all
from tests.conformance.java_tools import KafkaTools

pytestmark = scenarios.MARKS

Names = Callable[[], str]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MIB = 1 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_the_same(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, codec: str
) -> None:
    """Keys, values, headers, nulls, timestamps and offsets, for records of all kinds."""
    topic = kafka.create_topic(unique_topic())
    records = [make_record(number, Abilities()) for number in range(1200)]
    places = TrioProducer(bootstrap).produce(topic, codec, records)
    assert places == [(0, offset) for offset in range(1200)]
    assert [found.record for found in read_log(bootstrap, topic)] == records


@pytest.mark.parametrize("codec", CODECS)
def test_sizes(bootstrap: str, kafka: KafkaTools, unique_topic: Names, codec: str) -> None:
    """From one byte to a MiB, of keys and of values, empty and null."""
    topic = kafka.create_topic(unique_topic(), max_message_bytes=3 * MIB)
    noise = random.Random(codec).randbytes(MIB)
    sizes = (1, 2, 63, 64, 8191, 8192, 16_383, 16_384, 100_000, MIB - 1, MIB)
    records = [Record(b"", b""), Record(None, None), Record(b"k", None), Record(None, b"v")]  # type: ignore[arg-type]
    records += [Record(b"%d" % size, noise[:size]) for size in sizes]
    records += [Record(noise[:size], b"a" * size) for size in (64, 70_000)]
    client = TrioProducer(bootstrap, max_request_size=3 * MIB)
    places = client.produce(topic, codec, records)
    assert [offset for _, offset in places] == list(range(len(records)))
    read = [found.record._replace(timestamp_ms=None) for found in read_log(bootstrap, topic)]
    assert read == records


@pytest.mark.parametrize("codec", CODECS)
def test_the_java_consumer_reads_the_same(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, codec: str
) -> None:
    """The console consumer prints timestamp, partition, offset, headers, key and value as sent."""
    topic = kafka.create_topic(unique_topic(), partitions=2)
    now_ms = int(time.time() * 1000)
    records = [
        Record(
            b"key %d" % number,
            None if number % 7 == 3 else "wért €%d ".encode() % number * (number % 40),
            ((f"h{number}", b"%d" % number), ("empty", b"")) if number % 3 else (),
            now_ms + number,
        )
        for number in range(200)
    ]
    places = TrioProducer(bootstrap).produce(topic, codec, records)
    options = [
        option
        for part in ("timestamp", "partition", "offset", "headers", "key")
        for option in ("--formatter-property", f"print.{part}=true")
    ]
    printed = kafka.consume(topic, *options, count=len(records))
    wanted = []
    for record, (partition, offset) in zip(records, places, strict=True):
        headers = ",".join(f"{name}:{(value or b'').decode()}" for name, value in record.headers)
        value = "null" if record.value is None else record.value.decode()
        wanted.append(
            f"CreateTime:{record.timestamp_ms}\tPartition:{partition}\tOffset:{offset}"
            f"\t{headers or 'NO_HEADERS'}\t{record.key.decode()}\t{value}"
        )
    assert sorted(printed) == sorted(wanted)


def test_keys_go_where_java_sends_them(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names
) -> None:
    """The same keys, from our producer and from Java's, lie in the same partitions."""
    ours = kafka.create_topic(unique_topic(), partitions=7)
    javas = kafka.create_topic(unique_topic(), partitions=7)
    keys = [f"N{number:05}" for number in range(300)]
    records = [Record(key.encode(), b"v") for key in keys]
    TrioProducer(bootstrap).produce(ours, "none", records)
    kafka.produce(javas, [f"{key}\tv" for key in keys], "--reader-property", "parse.key=true")
    for partition in range(7):
        mine, theirs = (
            {found.record.key for found in read_log(bootstrap, topic, partition)}
            for topic in (ours, javas)
        )
        assert mine == theirs


def test_reading_while_it_is_sent(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """A consumer of another kind reads all codecs as they come."""
    scenarios.check_reading(TrioProducer(bootstrap), unique_topic(), unique_group())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, kafka: KafkaTools, unique_topic: Names, acks: object) -> None:
    """Every level of acknowledgement delivers, idempotent or not; with 0 there are no offsets."""
    topic = kafka.create_topic(unique_topic())
    records = [make_record(number, Abilities()) for number in range(300)]
    client = TrioProducer(bootstrap, acks=acks, enable_idempotence=False)
    places = client.produce(topic, "lz4", records)
    if acks == 0:
        assert set(places) == {(0, -1)}
        deadline = time.monotonic() + 20
        while len(found := read_log(bootstrap, topic)) < 300 and time.monotonic() < deadline:
            time.sleep(0.1)  # with acks=0 nothing says when they are there
        assert [one.record for one in found] == records
    else:
        assert places == [(0, offset) for offset in range(300)]
        assert [found.record for found in read_log(bootstrap, topic)] == records


def test_log_append_time_is_returned(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names
) -> None:
    """On a topic with LogAppendTime the broker's timestamp comes back, as consumers see it."""
    topic = kafka.create_topic(unique_topic(), message_timestamp_type="LogAppendTime")

    async def send() -> RecordMetadata:
        async with Producer(bootstrap) as producer:
            return await (await producer.send(topic, b"v", timestamp_ms=1))

    metadata = trio.run(send)
    assert metadata.timestamp > 1_700_000_000_000
    assert read_log(bootstrap, topic)[0].record.timestamp_ms == metadata.timestamp


def test_batches_that_are_too_large_are_split(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names
) -> None:
    """A topic that takes less than batch_size gets smaller batches; a record that it does not take
    fails alone."""
    topic = kafka.create_topic(unique_topic(), max_message_bytes=2000)

    async def send() -> list[object]:
        async with Producer(bootstrap, linger_ms=100) as producer:
            values = [b"%d" % number * 100 for number in range(60)]
            values.insert(30, b"x" * 3000)
            deliveries = [await producer.send(topic, value) for value in values]
            await producer.flush()
            results: list[object] = []
            for delivery in deliveries:
                try:
                    results.append(delivery.result().offset)
                except RecordTooLargeError as error:
                    results.append(error.code.name)
            return results

    results = trio.run(send)
    assert results[30] == "MESSAGE_TOO_LARGE"
    assert results[:30] + results[31:] == list(range(60))
    values = [found.record.value for found in read_log(bootstrap, topic)]
    assert values == [b"%d" % number * 100 for number in range(60)]


def test_many_producers_side_by_side(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names
) -> None:
    """Several producers with many tasks each; every task's records are in its order."""
    topic = kafka.create_topic(unique_topic())

    async def work(name: str) -> None:
        async with (
            Producer(bootstrap, buffer_memory=200_000) as producer,
            trio.open_nursery() as nursery,
        ):
            for task in range(5):
                nursery.start_soon(task_of, producer, f"{name}.{task}")

    async def task_of(producer: Producer, name: str) -> None:
        for number in range(400):
            await producer.send(topic, f"{name}.{number:04}".encode() * 10)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(work, name)

    trio.run(run)
    orders: dict[str, list[str]] = {}
    for found in read_log(bootstrap, topic):
        assert found.record.value is not None
        text = found.record.value[: len(found.record.value) // 10].decode()
        matched = re.fullmatch(r"(\w\.\d)\.(\d{4})", text)
        assert matched, text
        orders.setdefault(matched[1], []).append(matched[2])
    assert len(orders) == 15
    for order in orders.values():
        assert order == [f"{number:04}" for number in range(400)]


def test_a_new_topic_is_created_by_its_first_record(bootstrap: str, unique_topic: Names) -> None:
    """Where the broker creates topics by itself, sending is enough."""
    topic = unique_topic()
    assert TrioProducer(bootstrap).produce(topic, "none", [Record(b"k", b"v")]) == [(0, 0)]


def test_sequences_survive_a_restart(
    make_broker: Callable[..., Broker], unique_topic: Names
) -> None:
    """One producer over a stop, a crash and the starts after them: no record twice, none lost."""
    broker = make_broker()
    topic = unique_topic()
    records = [make_record(number, Abilities()) for number in range(900)]

    async def run() -> list[RecordMetadata]:
        async with Producer(broker.address, retry_backoff_ms=50, linger_ms=1) as producer:
            places = await send_all(producer, topic, records[:300])
            await trio.to_thread.run_sync(broker.restart)
            places += await send_all(producer, topic, records[300:600])
            await trio.to_thread.run_sync(broker.kill9)
            await trio.to_thread.run_sync(broker.start)
            return places + await send_all(producer, topic, records[600:])

    places = trio.run(run)
    assert [place.offset for place in places] == list(range(900))
    assert [found.record for found in read_log(broker.address, topic)] == records
