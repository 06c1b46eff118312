"""Streaming queries over topics: nothing twice, nothing left out, also over restarts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.spark import support
from tests.spark.support import reader, stream

pytestmark = support.MARKS

DEADLINE_S = 120
_names = (f"stream{number}" for number in itertools.count(1))


class Query:
    """A streaming query that keeps what it reads in files, batch by batch."""

    def __init__(self, frame: Any, folder: Path) -> None:
        self.output = str(folder / "output")
        self.checkpoint = folder / "checkpoint"
        self.batches: list[int] = []  # rows of each
        self._frame = frame

    def run_available(self) -> None:
        """Read what is there, in as many micro-batches as that takes."""
        writer = self._frame.writeStream.format("parquet").option("path", self.output)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(DEADLINE_S), "the query does not end"
            self.batches = [progress.numInputRows for progress in query.recentProgress]
        finally:
            query.stop()

    def rows(self, spark: Any) -> list[tuple[Any, ...]]:
        """Return all rows that were written."""
        return support.rows(spark.read.parquet(self.output))

    def offsets(self) -> dict[str, dict[str, int]]:
        """Return where the last planned micro-batch ends, as its checkpoint says."""
        logs = [path for path in (self.checkpoint / "offsets").iterdir() if path.name.isdigit()]
        newest = max(logs, key=lambda path: int(path.name))
        found: dict[str, dict[str, int]] = json.loads(newest.read_text().splitlines()[-1])
        return found


def test_available_now_and_restart(
    spark: Any, broker: Broker, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Micro-batches are bounded; a restart goes on at the next offset; rows are those of kafka."""
    topic = unique_topic()
    support.create_topic(broker.address, topic)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    support.send_numbers(broker.address, topic, range(150))
    for first, then in ((150, 100), (0, 0)):
        frame = stream(spark, "kraftrio", broker.address, includeHeaders="true", **options)
        query = Query(frame, tmp_path)
        query.run_available()
        assert sum(query.batches) == first
        assert max(query.batches, default=0) <= 60
        if then:
            support.send_numbers(broker.address, topic, range(150, 150 + then))
            query.run_available()
            assert sum(query.batches) == then
        expected = reader(spark, "kafka", broker.address, subscribe=topic, includeHeaders="true")
        assert query.rows(spark) == support.rows(expected)
        assert query.offsets() == {topic: {"0": 84, "1": 83, "2": 83}}


def test_offsets_are_those_of_kafka(
    spark: Any, broker: Broker, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Both formats cut a stream into the same micro-batches, and write the same offsets."""
    topic = unique_topic()
    support.create_topic(broker.address, topic)
    support.send_numbers(broker.address, topic, range(100))
    support.send_numbers(broker.address, topic, range(1, 40, 3))  # partitions of unequal size
    found = {}
    for kind in ("kafka", "kraftrio"):
        frame = stream(
            spark,
            kind,
            broker.address,
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="35",
        )
        query = Query(frame, tmp_path / kind)
        query.run_available()
        found[kind] = (query.batches, query.offsets(), query.rows(spark))
    batches, offsets, rows = found["kraftrio"]
    assert [size for size in batches if size] == [size for size in found["kafka"][0] if size]
    assert (offsets, rows) == found["kafka"][1:]


def test_new_topics_and_partitions(
    spark: Any, broker: Broker, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """What fits the pattern later is read from its beginning."""
    name = unique_topic()
    support.create_topic(broker.address, f"{name}-a", 3)
    support.send_numbers(broker.address, f"{name}-a", range(30))
    frame = stream(
        spark,
        "kraftrio",
        broker.address,
        subscribePattern=f"{name}-.*",
        startingOffsets="earliest",
        minPartitions="5",
    )
    query = Query(frame, tmp_path)
    query.run_available()
    support.create_topic(broker.address, f"{name}-b", 3)
    support.send_numbers(broker.address, f"{name}-b", range(12))
    query.run_available()
    expected = reader(spark, "kafka", broker.address, subscribe=f"{name}-a,{name}-b")
    assert query.rows(spark) == support.rows(expected)


def test_data_loss(
    spark: Any, broker: Broker, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """A query whose next records were deleted fails, its checkpoint as it was; or goes on."""
    topic = unique_topic()
    support.create_topic(broker.address, topic)
    support.send_numbers(broker.address, topic, range(90))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    query = Query(stream(spark, "kraftrio", broker.address, **options), tmp_path)
    query.run_available()
    support.send_numbers(broker.address, topic, range(90, 180))
    support.delete_records(broker.address, topic, {0: 45})
    with pytest.raises(Exception, match="has no offsets 30 to 44 any more"):
        query.run_available()
    options["failOnDataLoss"] = "false"
    query = Query(stream(spark, "kraftrio", broker.address, **options), tmp_path)
    query.run_available()
    offsets = [row[4] for row in query.rows(spark) if row[3] == 0]
    assert offsets == [*range(30), *range(45, 60)]


def test_bad_options(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """What is for batch queries only is refused, in one sentence."""
    frame = stream(spark, "kraftrio", broker.address, subscribe="a", endingOffsets="latest")
    with pytest.raises(Exception, match="endingOffsets is not valid in streaming queries"):
        Query(frame, tmp_path).run_available()
