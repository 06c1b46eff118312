"""The console producer and consumer: what goes in comes out, in every way they offer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.broker_process import GROUP_PROTOCOLS
from tests.conformance.java_tools import KafkaTools

PRODUCER = "kafka-console-producer"
CONSUMER = "kafka-console-consumer"

PRINT_ALL = [
    option
    for part in ("key", "headers", "offset", "partition")
    for option in ("--formatter-property", f"print.{part}=true")
]


def test_lines_come_out_in_order(kafka: KafkaTools, topic: str) -> None:
    """What was produced is consumed from the beginning, in order, text of any kind."""
    lines = ["first", "", "ünïcödé ≠ ascii", "x" * 10_000, "last"]
    kafka.produce(topic, lines)
    assert kafka.consume(topic, count=5) == lines
    assert kafka.consume(topic, count=5) == lines, "consuming takes nothing away"


def test_keys_headers_partition_and_offset(kafka: KafkaTools, topic: str) -> None:
    """Keys, headers and nulls come back as they were sent, with offsets counted from 0."""
    reader = [
        option
        for name in ("parse.key=true", "parse.headers=true", "null.marker=NULL")
        for option in ("--reader-property", name)
    ]
    lines = ["h1:v1,h2:v2\tkey\tvalue", "NULL\tNULL\tplain", "h:\tdeleted\tNULL"]
    kafka.produce(topic, lines, *reader)
    assert kafka.consume(topic, *PRINT_ALL, count=3) == [
        "Partition:0\tOffset:0\th1:v1,h2:v2\tkey\tvalue",
        "Partition:0\tOffset:1\tNO_HEADERS\tnull\tplain",
        "Partition:0\tOffset:2\th:\tdeleted\tnull",
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(kafka: KafkaTools, topic: str, codec: str) -> None:
    """Batches of each codec are kept and read back; several small and one large record."""
    lines = [f"record {i} " + "abc" * (i % 50) for i in range(200)] + ["y" * 200_000]
    kafka.produce(topic, lines, "--compression-codec", codec)
    assert kafka.consume(topic, count=len(lines)) == lines


@pytest.mark.parametrize("topic_codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_topic_compression_type(
    kafka: KafkaTools, unique_topic: Callable[[], str], topic_codec: str
) -> None:
    """A topic's own compression.type is applied to whatever the producer sends."""
    topic = kafka.create_topic(unique_topic(), compression_type=topic_codec)
    lines = [f"record {i}" for i in range(100)]
    kafka.produce(topic, lines[:50], "--compression-codec", "none")
    kafka.produce(topic, lines[50:], "--compression-codec", "lz4")
    assert kafka.consume(topic, count=100) == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(kafka: KafkaTools, topic: str, acks: str) -> None:
    """Each level of acknowledgement delivers; 0 gets no reply and is read all the same."""
    idempotence = ["--command-property", "enable.idempotence=false"]
    kafka.produce(topic, ["a", "b", "c"], "--request-required-acks", acks, *idempotence)
    assert kafka.consume(topic, count=3) == ["a", "b", "c"]


def test_idempotent_producer(kafka: KafkaTools, topic: str) -> None:
    """The default producer (idempotent) writes many small batches, each once and in order."""
    lines = [str(i) for i in range(500)]
    kafka.produce(topic, lines, "--batch-size", "64", "--command-property", "linger.ms=0")
    assert kafka.consume(topic, count=500) == lines


def test_synchronous_producer(kafka: KafkaTools, topic: str) -> None:
    """--sync waits for each record's acknowledgement."""
    kafka.produce(topic, ["one", "two", "three"], "--sync")
    assert kafka.consume(topic, count=3) == ["one", "two", "three"]


def test_too_large_record(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """A batch over the topic's max.message.bytes is refused, and smaller ones go on."""
    topic = kafka.create_topic(unique_topic(), max_message_bytes=2000)
    refused = kafka.run(PRODUCER, "--topic", topic, input="z" * 3000 + "\n", check=False)
    assert "RecordTooLargeException" in refused.output, refused.describe()
    kafka.produce(topic, ["small enough"])
    assert kafka.consume(topic, count=1) == ["small enough"]


def test_null_key_on_compacted_topic(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """A compacted topic refuses records without a key."""
    topic = kafka.create_topic(unique_topic(), cleanup_policy="compact")
    refused = kafka.run(PRODUCER, "--topic", topic, input="no key\n", check=False)
    assert "InvalidRecordException" in refused.output, refused.describe()
    keyed = ["--reader-property", "parse.key=true"]
    kafka.produce(topic, ["k\tv"], *keyed)
    assert kafka.consume(topic, count=1) == ["v"]


def test_auto_created_topic(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """Producing to a topic that is not there makes it, as auto.create.topics.enable says."""
    topic = unique_topic()
    kafka.produce(topic, ["first"])
    assert kafka.consume(topic, count=1) == ["first"]
    assert topic in kafka.run("kafka-topics", "--list").lines


def test_consume_from_partition_and_offset(
    kafka: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """One partition is read from a given offset, or from its end."""
    topic = kafka.create_topic(unique_topic(), partitions=3)
    keyed = ["--reader-property", "parse.key=true"]
    kafka.produce(topic, [f"same\t{i}" for i in range(10)], *keyed)
    partition = kafka.consume(topic, *PRINT_ALL, count=1)[0].split("\t")[0].split(":")[1]
    chosen = ["--partition", partition, "--offset"]
    assert kafka.consume(topic, *chosen, "7", count=3) == ["7", "8", "9"]
    assert kafka.consume(topic, *chosen, "earliest", count=2) == ["0", "1"]
    assert kafka.consume(topic, *chosen, "latest", timeout_ms=1000) == []
    other = str((int(partition) + 1) % 3)
    empty = kafka.consume(topic, "--partition", other, "--offset", "earliest", timeout_ms=1000)
    assert empty == []


def test_keys_choose_partitions(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """Equal keys share a partition, each partition keeps its order, and nothing is lost."""
    topic = kafka.create_topic(unique_topic(), partitions=4)
    sent = [(f"key-{i % 10}", str(i)) for i in range(100)]
    kafka.produce(topic, [f"{k}\t{v}" for k, v in sent], "--reader-property", "parse.key=true")
    seen: dict[str, list[str]] = {}
    places: dict[str, set[str]] = {}
    for line in kafka.consume(topic, *PRINT_ALL, count=100):
        partition, _offset, _headers, key, value = line.split("\t")
        seen.setdefault(key, []).append(value)
        places.setdefault(key, set()).add(partition)
    assert seen == {f"key-{n}": [str(i) for i in range(n, 100, 10)] for n in range(10)}
    assert all(len(partitions) == 1 for partitions in places.values())


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_group_goes_on_where_it_stopped(
    kafka: KafkaTools, topic: str, unique_group: Callable[[], str], protocol: str
) -> None:
    """A second consumer of the group reads what the first left, and other groups read all."""
    chosen = ["--command-property", f"group.protocol={protocol}", "--from-beginning"]
    group = unique_group()
    kafka.produce(topic, [str(i) for i in range(10)])
    first = kafka.consume(topic, "--group", group, *chosen, count=4)
    second = kafka.consume(topic, "--group", group, *chosen, count=6)
    assert (first, second) == (["0", "1", "2", "3"], ["4", "5", "6", "7", "8", "9"])
    assert len(kafka.consume(topic, "--group", unique_group(), *chosen, count=10)) == 10


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_isolation_levels_on_plain_records(kafka: KafkaTools, topic: str, level: str) -> None:
    """Records outside transactions are read at both levels."""
    kafka.produce(topic, ["a", "b"])
    assert kafka.consume(topic, "--isolation-level", level, count=2) == ["a", "b"]


def test_include_pattern(kafka: KafkaTools, unique_name: Callable[[str], str]) -> None:
    """--include subscribes to every topic that fits a pattern."""
    name = unique_name("pattern")
    for part in ("a", "b"):
        kafka.create_topic(f"{name}-{part}")
        kafka.produce(f"{name}-{part}", [part])
    options = ["--include", f"{name}-.*", "--from-beginning", "--max-messages", "2"]
    done = kafka.run(CONSUMER, *options, "--timeout-ms", "15000")
    assert sorted(done.lines) == ["a", "b"]


def test_timestamps(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """The consumer shows which clock a topic's timestamps come from."""
    for kind in ("CreateTime", "LogAppendTime"):
        topic = kafka.create_topic(unique_topic(), message_timestamp_type=kind)
        kafka.produce(topic, ["x"])
        shown = kafka.consume(topic, "--formatter-property", "print.timestamp=true", count=1)
        assert shown[0].startswith(f"{kind}:1")
        assert shown[0].endswith("\tx")


def test_waiting_consumer_gets_new_records(kafka: KafkaTools, topic: str) -> None:
    """A consumer that waits at the end gets what is produced later."""
    kafka.produce(topic, ["before"])
    options = ["--topic", topic, "--from-beginning", "--max-messages", "3"]
    with kafka.start(CONSUMER, *options, "--timeout-ms", "30000") as consumer:
        assert consumer.process.stdout is not None
        assert consumer.process.stdout.readline() == "before\n"
        kafka.produce(topic, ["later", "last"])
        assert consumer.wait().lines == ["later", "last"]
