"""What Spark's own Kafka source can do, against our broker: each option chooses what it should.

Records hold consecutive numbers, dealt to three partitions in turn, a second of event time apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.spark import support as sources

pytestmark = sources.MARKS

FIRST_MS = sources.START_MS
DEADLINE_S = 120


@pytest.fixture(scope="session")
def address(broker: Broker) -> str:
    """The broker with topics of its own: numbers-a (0 to 299) and numbers-b (300 to 599)."""
    for topic, first in (("numbers-a", 0), ("numbers-b", 300)):
        fill(broker.address, topic, range(first, first + 300))
    return broker.address


@pytest.fixture
def read(spark: Any, address: str) -> Callable[..., list[int]]:
    """Return the numbers that a batch with some options reads, in order."""

    def numbers(**options: Any) -> list[int]:
        return numbers_in(sources.reader(spark, "kafka", address, **as_text(options)))

    return numbers


def fill(address: str, topic: str, numbers: range) -> None:
    """Make a topic and send numbers to its partitions in turn, each a second after the other."""
    sources.create_topic(address, topic)
    records = [
        (n % 3, b"%d" % n, b"value %d" % n, (("n", b"%d" % n),), FIRST_MS + 1000 * n)
        for n in numbers
    ]
    sources.send(address, topic, records)


def as_text(options: dict[str, Any]) -> dict[str, str]:
    """Return options as Spark takes them: what is not text is JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in options.items()
    }


def numbers_in(frame: Any) -> list[int]:
    """Return the numbers of a frame's records, in order."""
    return sorted(int(row.key) for row in frame.select("key").collect())


def test_subscribe(read: Callable[..., list[int]]) -> None:
    """One topic, or several, from their beginnings to their ends."""
    assert read(subscribe="numbers-a") == list(range(300))
    assert read(subscribe="numbers-a,numbers-b") == list(range(600))


def test_subscribe_pattern(read: Callable[..., list[int]]) -> None:
    """All topics of a pattern, and no other."""
    assert read(subscribePattern="numbers-.*") == list(range(600))
    assert read(subscribePattern="numbers-[b-z]") == list(range(300, 600))


def test_assign(read: Callable[..., list[int]]) -> None:
    """Only the partitions that are named."""
    chosen = {"numbers-a": [0, 2], "numbers-b": [1]}
    expected = [n for n in range(300) if n % 3 != 1] + [n for n in range(300, 600) if n % 3 == 1]
    assert read(assign=chosen) == expected


def test_starting_and_ending_offsets(read: Callable[..., list[int]]) -> None:
    """Positions, and -2 and -1 for beginning and end, by partition."""
    found = read(
        subscribe="numbers-a",
        startingOffsets={"numbers-a": {"0": 10, "1": -2, "2": 90}},
        endingOffsets={"numbers-a": {"0": 20, "1": 5, "2": -1}},
    )
    expected = [*range(30, 60, 3), *range(1, 16, 3), *range(272, 300, 3)]
    assert found == sorted(expected)


def test_starting_offsets_by_timestamp(read: Callable[..., list[int]]) -> None:
    """Times by partition, or one for all; a time behind the end is an error or the end."""
    times = {"0": FIRST_MS, "1": FIRST_MS + 100_000, "2": FIRST_MS + 200_500}
    found = read(subscribe="numbers-a", startingOffsetsByTimestamp={"numbers-a": times})
    expected = [*range(0, 300, 3), *range(100, 300, 3), *range(203, 300, 3)]
    assert found == sorted(expected)
    assert read(subscribe="numbers-a", startingTimestamp=str(FIRST_MS + 290_000)) == list(
        range(290, 300)
    )
    window = {
        "startingTimestamp": str(FIRST_MS + 30_000),
        "endingTimestamp": str(FIRST_MS + 60_000),
    }
    assert read(subscribe="numbers-a", **window) == list(range(30, 60))
    late = {"subscribe": "numbers-a", "startingTimestamp": str(FIRST_MS + 10_000_000)}
    assert read(**late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match="No offset matched"):
        read(**late)


def test_include_headers(spark: Any, address: str) -> None:
    """Headers come as an array of key and value, and only when they are asked for."""
    frame = sources.reader(
        spark,
        "kafka",
        address,
        subscribe="numbers-a",
        includeHeaders="true",
        endingOffsets="latest",
    )
    for row in frame.collect():
        assert [(header.key, bytes(header.value)) for header in row.headers] == [
            ("n", bytes(row.key))
        ]
    plain = sources.reader(spark, "kafka", address, subscribe="numbers-a")
    assert "headers" not in plain.columns


def test_min_partitions(spark: Any, address: str) -> None:
    """Partitions are read in more pieces than there are; together they are the same."""
    frame = sources.reader(spark, "kafka", address, subscribe="numbers-a", minPartitions="8")
    assert frame.rdd.getNumPartitions() >= 8
    assert numbers_in(frame) == list(range(300))


def run_stream(frame: Any, folder: Path) -> list[int]:
    """Read a stream to where its topics end now; return how many records each batch had."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "output"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(DEADLINE_S), "the query does not end"
        return [progress["numInputRows"] for progress in query.recentProgress]
    finally:
        query.stop()


def test_max_offsets_per_trigger_and_restart(spark: Any, address: str, tmp_path: Path) -> None:
    """Batches are bounded, and a restart goes on at the next offset."""
    fill(address, "numbers-c", range(200))
    options = {"subscribe": "numbers-c", "startingOffsets": "earliest"}
    frame = sources.stream(spark, "kafka", address, **options, maxOffsetsPerTrigger="60")
    batches = run_stream(frame, tmp_path)
    assert sum(batches) == 200 and max(batches) <= 60
    more = [(n % 3, b"%d" % n, b"", (), FIRST_MS + n) for n in range(200, 250)]
    sources.send(address, "numbers-c", more)
    assert sum(run_stream(frame, tmp_path)) == 50
    assert numbers_in(spark.read.parquet(str(tmp_path / "output"))) == list(range(250))


def test_fail_on_data_loss(spark: Any, address: str, tmp_path: Path) -> None:
    """Deleted records stop a stream that must not lose any; another goes on behind them."""
    fill(address, "numbers-d", range(90))
    options = {"subscribe": "numbers-d", "startingOffsets": "earliest"}
    strict = sources.stream(spark, "kafka", address, **options)
    assert sum(run_stream(strict, tmp_path)) == 90
    more = [(n % 3, b"%d" % n, b"", (), FIRST_MS + n) for n in range(90, 180)]
    sources.send(address, "numbers-d", more)
    sources.delete_records(address, "numbers-d", {0: 45, 1: 45, 2: 45})
    with pytest.raises(Exception, match=r"(?i)data may have been lost|failOnDataLoss"):
        run_stream(strict, tmp_path)
    lenient = sources.stream(spark, "kafka", address, **options, failOnDataLoss="false")
    run_stream(lenient, tmp_path)
    expected = [*range(90), *range(135, 180)]
    assert numbers_in(spark.read.parquet(str(tmp_path / "output"))) == expected


def test_read_committed(read: Callable[..., list[int]]) -> None:
    """A reader of committed records gets all that were written outside of transactions."""
    options = {"subscribe": "numbers-a", "kafka.isolation.level": "read_committed"}
    assert read(**options) == list(range(300))


def test_a_topic_that_is_not_there(read: Callable[..., list[int]]) -> None:
    """Spark is told that there is no such topic, and none is made by its asking."""
    with pytest.raises(Exception, match="UnknownTopicOrPartition"):
        read(subscribe="numbers-z")
    assert read(subscribePattern="numbers-[z]") == []
