"""What the source does between Spark's calls: ranges over faults, micro-batches as planned.

No Spark session takes part: the readers are called as Spark calls them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kraftrio.clients.errors import (
    OffsetOutOfRangeError,
    TimedOutError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.spark.options import read_options
from kraftrio.clients.spark.planning import Planner
from tests.conformance.broker_process import Broker
from tests.conformance.cluster_process import Cluster
from tests.spark import support

pytestmark = support.MARKS

COUNT = 30_000


def stream_reader(address: str, topic: str, **options: str) -> Any:
    """Make the reader of a stream."""
    from kraftrio.clients.spark.source import KraftrioSource

    needed = {"kafka.bootstrap.servers": address, "subscribe": topic}
    source = KraftrioSource(needed | {"startingOffsets": "earliest"} | options)
    return source.streamReader(source.schema())


def read(reader: Any, partitions: Iterable[Any]) -> list[int]:
    """Return the offsets that partitions of a query hold."""
    return [
        offset
        for partition in partitions
        for batch in reader.read(partition)
        for offset in batch["offset"].to_pylist()
    ]


def single(address: str, topic: str, start: int, end: int, **options: str) -> tuple[Any, Any]:
    """Return a reader and the one partition that it reads."""
    reader = stream_reader(address, topic, **options)
    [partition] = reader.partitions({topic: {"0": start}}, {topic: {"0": end}})
    return reader, partition


@pytest.fixture(scope="module")
def many(broker: Broker) -> str:
    """A topic with one partition of many records."""
    support.create_topic(broker.address, "many", 1)
    support.send(broker.address, "many", ((0, None, b"x" * 1000, (), support.START_MS),) * COUNT)
    return "many"


def test_range(broker: Broker, many: str) -> None:
    """A range is read from its start to before its end, in many answers and batches."""
    options = {"kafka.max.partition.fetch.bytes": "100000"}
    for start, end in ((0, COUNT), (7, 8), (1234, 23_456)):
        reader, partition = single(broker.address, many, start, end, **options)
        assert read(reader, [partition]) == list(range(start, end))


def test_dropped_half_way(broker: Broker, many: str) -> None:
    """Who stops reading leaves no thread behind."""
    reader, partition = single(
        broker.address, many, 0, COUNT, **{"kafka.max.partition.fetch.bytes": "50000"}
    )
    before = threading.active_count()
    batches = reader.read(partition)
    next(batches)
    batches.close()
    assert threading.active_count() == before


def test_broker_killed_while_reading(make_broker: Callable[[], Broker]) -> None:
    """A broker that dies and comes back costs time, no record, and brings none twice."""
    broker = make_broker()
    support.create_topic(broker.address, "t", 1)
    support.send(broker.address, "t", ((0, None, b"x" * 1000, (), support.START_MS),) * 40_000)
    reader, partition = single(
        broker.address, "t", 0, 40_000, **{"kafka.max.partition.fetch.bytes": "1000000"}
    )
    batches = reader.read(partition)
    found = next(batches)["offset"].to_pylist()
    broker.kill9()
    restart = threading.Timer(1.0, broker.start)
    restart.start()
    for batch in batches:
        found += batch["offset"].to_pylist()
    restart.join()
    assert found == list(range(40_000))


def test_leader_killed_while_reading(tmp_path: Path) -> None:
    """When the leader dies, its successor serves the rest: none is missing, none comes twice."""
    with Cluster(tmp_path, 3, None) as cluster:
        support.create_topic(cluster.bootstrap, "t", 1, replicas=3)
        sent = ((0, None, b"x" * 1000, (), support.START_MS),) * 30_000
        support.send(cluster.bootstrap, "t", sent)
        reader, partition = single(
            cluster.bootstrap, "t", 0, 30_000, **{"kafka.max.partition.fetch.bytes": "1000000"}
        )
        batches = reader.read(partition)
        found = next(batches)["offset"].to_pylist()
        cluster.node(cluster.leader("t")).kill9()
        for batch in batches:
            found += batch["offset"].to_pylist()
        assert found == list(range(30_000))
        cluster.heal()


def test_nothing_comes(broker: Broker, many: str) -> None:
    """Offsets that are not there yet are waited for as long as the option says."""
    options = {"kafkaConsumer.pollTimeoutMs": "300", "kafka.fetch.max.wait.ms": "100"}
    reader, partition = single(broker.address, many, COUNT - 3, COUNT + 5, **options)
    with pytest.raises(TimedOutError, match=f"many-0 gave nothing from offset {COUNT} on"):
        read(reader, [partition])
    reader, partition = single(
        broker.address, many, COUNT - 3, COUNT + 5, failOnDataLoss="false", **options
    )
    assert read(reader, [partition]) == [COUNT - 3, COUNT - 2, COUNT - 1]


def test_offsets_beyond_the_log(broker: Broker, many: str) -> None:
    """A range that starts behind the end of the log is lost."""
    reader, partition = single(broker.address, many, COUNT + 10, COUNT + 20)
    with pytest.raises(OffsetOutOfRangeError, match=f"has no offsets {COUNT + 10} to {COUNT + 19}"):
        read(reader, [partition])


def test_broker_down() -> None:
    """A broker that is not there is named, with how long was waited."""
    reader = stream_reader("127.0.0.1:1", "t", **{"kafka.default.api.timeout.ms": "500"})
    with pytest.raises(TimedOutError, match=r"no broker of 127.0.0.1:1 answered within 0.5 s"):
        reader.initialOffset()


async def test_broker_down_is_told_within_ten_seconds(autojump_clock: MockClock) -> None:
    """Of reading and of writing, without any option; Spark needs some of the ten for itself."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from kraftrio.clients.spark.sink import check_reachable, sink_options

    needed = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    schema = StructType([StructField("value", BinaryType())])
    sink = sink_options(needed | {"topic": "t"}, schema, streaming=False)
    source = read_options(needed | {"subscribe": "t"}, streaming=True)
    for ask in (Planner(source).starting, Planner(source).latest, partial(check_reachable, sink)):
        began_at = trio.current_time()
        with pytest.raises(TimedOutError, match=r"no broker of 127.0.0.1:1 answered within 6 s"):
            await ask()
        assert trio.current_time() - began_at < 7


def test_topic_that_is_not_there(broker: Broker) -> None:
    """It is looked for as often as the option says, and not created."""
    options = {"fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "100"}
    started_at = time.monotonic()
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic 'never'"):
            stream_reader(broker.address, "never", **options).initialOffset()
    assert time.monotonic() - started_at >= 0.4


def test_available_now(broker: Broker, unique_topic: Callable[[], str]) -> None:
    """What comes after the first look belongs to the next run."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    topic = unique_topic()
    support.create_topic(broker.address, topic)
    support.send_numbers(broker.address, topic, range(60))
    reader = stream_reader(broker.address, topic, maxOffsetsPerTrigger="45")
    reader.prepareForTriggerAvailableNow()
    assert reader.getDefaultReadLimit() == ReadMaxRows(45)
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0, "2": 0}}
    first = reader.latestOffset(start, ReadMaxRows(45))
    assert first == {topic: {"0": 15, "1": 15, "2": 15}}
    support.send_numbers(broker.address, topic, range(60, 90))
    assert reader.initialOffset() == start
    end = {topic: {"0": 20, "1": 20, "2": 20}}
    assert reader.latestOffset(first, ReadMaxRows(45)) == end
    assert reader.latestOffset(end, ReadMaxRows(45)) == end
    assert reader.reportLatestOffset() == end
    assert len(read(reader, reader.partitions(first, end))) == 15
    assert reader.partitions(end, end) == []


def test_least_size_of_a_batch(broker: Broker, unique_topic: Callable[[], str]) -> None:
    """A micro-batch waits for enough records, but no longer than it may."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

    topic = unique_topic()
    support.create_topic(broker.address, topic)
    options = {"minOffsetsPerTrigger": "30", "maxTriggerDelay": "1s"}
    reader = stream_reader(broker.address, topic, **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(30)
    start = reader.initialOffset()
    reader.latestOffset(start, limit)  # the first is due at once
    support.send_numbers(broker.address, topic, range(12))
    some = {topic: {"0": 4, "1": 4, "2": 4}}
    assert reader.latestOffset(start, limit) == start
    assert reader.latestOffset(start, ReadAllAvailable()) == some
    support.send_numbers(broker.address, topic, range(12, 30))
    enough = {topic: {"0": 10, "1": 10, "2": 10}}
    assert reader.latestOffset(start, limit) == enough
    support.send_numbers(broker.address, topic, range(30, 33))
    deadline = time.monotonic() + 10
    for _ in itertools.count():
        if reader.latestOffset(enough, limit) != enough:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_headers_survive_the_way(broker: Broker, unique_topic: Callable[[], str]) -> None:
    """Headers come as they were sent; nothing stands for none."""
    topic = unique_topic()
    support.create_topic(broker.address, topic, 1)
    headers = (("a", b"1"), ("a", None), ("", b""))
    support.send(broker.address, topic, [(0, None, b"x", headers, 1), (0, None, b"y", (), 1)])
    reader, partition = single(broker.address, topic, 0, 2, includeHeaders="true")
    [batch] = reader.read(partition)
    first, second = batch["headers"].to_pylist()
    assert tuple((item["key"], item["value"]) for item in first) == headers
    assert second is None


def _numbers(count: int) -> list[support.Sent]:
    return [(0, None, b"%d" % number, (), support.START_MS) for number in range(count)]


@pytest.mark.parametrize("later", [3, 12])
def test_a_stream_whose_topic_was_recreated_fails(
    broker: Broker, unique_topic: Callable[[], str], later: int
) -> None:
    """Also when the new topic has more records than were read of the former one."""
    topic = unique_topic()
    support.create_topic(broker.address, topic, 1)
    support.send(broker.address, topic, _numbers(5))
    reader = stream_reader(broker.address, topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert read(reader, reader.partitions(start, end)) == list(range(5))
    support.make_anew(broker.address, topic, 1)
    support.send(broker.address, topic, _numbers(later))
    newer = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert newer == {topic: {"0": later}}
    with pytest.raises(OffsetOutOfRangeError, match=f"The topic '{topic}' was re-created"):
        reader.partitions(end, newer)


@pytest.mark.parametrize("later", [3, 12])
def test_a_stream_may_go_on_with_the_new_topic(
    broker: Broker, unique_topic: Callable[[], str], later: int
) -> None:
    """With failOnDataLoss=false it reads all of it, and then what comes."""
    topic = unique_topic()
    support.create_topic(broker.address, topic, 1)
    support.send(broker.address, topic, _numbers(5))
    reader = stream_reader(broker.address, topic, failOnDataLoss="false")
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    support.make_anew(broker.address, topic, 2)
    support.send(broker.address, topic, _numbers(later))
    newer = reader.latestOffset(end, limit)
    assert read(reader, reader.partitions(end, newer)) == list(range(later))
    support.send(broker.address, topic, _numbers(2))
    newest = reader.latestOffset(newer, limit)
    assert read(reader, reader.partitions(newer, newest)) == [later, later + 1]


def test_a_topic_recreated_between_planning_and_reading(
    broker: Broker, unique_topic: Callable[[], str]
) -> None:
    """The range is not read from a topic that it was not planned for."""
    topic = unique_topic()
    support.create_topic(broker.address, topic, 1)
    support.send(broker.address, topic, _numbers(5))
    for lenient in ("false", "true"):
        reader = stream_reader(broker.address, topic, failOnDataLoss=lenient)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        planned = reader.partitions(start, end)
        support.make_anew(broker.address, topic, 1)
        support.send(broker.address, topic, _numbers(9))
        if lenient == "false":
            assert read(reader, planned) == []
        else:
            with pytest.raises(
                OffsetOutOfRangeError, match="0 to 8 any more: the topic was re-created"
            ):
                read(reader, planned)
