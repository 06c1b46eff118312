"""Queries that write to topics through our sink, read back by Spark's own format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.spark import support
from tests.spark.support import reader, rows, stream

pytestmark = support.MARKS


def write(frame: Any, address: str, **options: str) -> None:
    """Write a frame in batch."""
    writer = frame.write.format("kraftrio").option("kafka.bootstrap.servers", address)
    writer.options(**options).mode("append").save()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batch(
    spark: Any, broker: Broker, filled_topic: str, unique_topic: Callable[[], str], codec: str
) -> None:
    """Keys, values, headers and partitions arrive as they were."""
    topic = unique_topic()
    support.create_topic(broker.address, topic)
    source = reader(spark, "kafka", broker.address, subscribe=filled_topic, includeHeaders="true")
    columns = ["key", "value", "headers", "partition"]
    write(
        source.select(*columns).coalesce(1),
        broker.address,
        topic=topic,
        **{"kafka.compression.type": codec, "kafka.linger.ms": "20"},
    )
    copy = reader(spark, "kafka", broker.address, subscribe=topic, includeHeaders="true")

    def contents(frame: Any) -> list[str]:
        return sorted(repr(row) for row in frame.select(*columns).collect())

    assert contents(copy) == contents(source)


def test_topic_of_each_row(spark: Any, broker: Broker, unique_topic: Callable[[], str]) -> None:
    """The column topic tells where a row goes; strings are written as UTF-8."""
    topics = [unique_topic(), unique_topic()]
    for topic in topics:
        support.create_topic(broker.address, topic)
    frame = spark.range(40).selectExpr(
        f"if(id % 2 = 0, '{topics[0]}', '{topics[1]}') as topic",
        "concat('schlüssel ', id) as key",
        "cast(id as string) as value",
        "id as ignored",
    )
    write(frame, broker.address)
    for parity, topic in enumerate(topics):
        found = rows(reader(spark, "kafka", broker.address, subscribe=topic))
        numbers = range(parity, 40, 2)
        assert sorted((bytes(row[0]).decode(), bytes(row[1])) for row in found) == sorted(
            (f"schlüssel {n}", b"%d" % n) for n in numbers
        )


def test_stream(
    spark: Any, broker: Broker, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """A stream from topic to topic, both ends ours, copies each record once."""
    source, target = unique_topic(), unique_topic()
    for topic in (source, target):
        support.create_topic(broker.address, topic)
    for numbers in (range(100), range(100, 160)):
        support.send_numbers(broker.address, source, numbers)
        frame = stream(
            spark, "kraftrio", broker.address, subscribe=source, startingOffsets="earliest"
        )
        writer = frame.select("key", "value").writeStream.format("kraftrio")
        writer = writer.option("kafka.bootstrap.servers", broker.address).option("topic", target)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        query.stop()
    found = rows(reader(spark, "kafka", broker.address, subscribe=target))
    assert sorted(bytes(row[0]) for row in found) == sorted(b"%d" % n for n in range(160))


BAD = [
    ("select 'a' as key", {"topic": "t"}, "the column 'value' is missing"),
    ("select 'a' as value", {}, "where to write must be named"),
    ("select 1 as value", {"topic": "t"}, "the column 'value' must be of type string or binary"),
    ("select 'a' as value, cast(null as string) as topic", {}, "a row has no topic"),
    ("select 'a' as value", {"topic": "t", "kafka.acks": "7"}, "acks must be one of"),
    ("select 'a' as value", {"topic": "t", "kafka.key.serializer": "x"}, "is not supported"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "options", "sentence"), BAD)
def test_bad_input(
    spark: Any, broker: Broker, query: str, options: dict[str, str], sentence: str
) -> None:
    """What is wrong is said in one sentence."""
    with pytest.raises(Exception, match=sentence):
        write(spark.sql(query), broker.address, **options)


def test_overwrite(spark: Any, broker: Broker) -> None:
    """Topics are not overwritten."""
    writer = spark.sql("select 'a' as value").write.format("kraftrio").option("topic", "t")
    with pytest.raises(Exception, match="topics cannot be overwritten"):
        writer.option("kafka.bootstrap.servers", broker.address).mode("overwrite").save()
