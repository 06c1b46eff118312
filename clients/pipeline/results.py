"""What a batch puts out, so that a batch done twice leaves what it leaves when done once.

A batch may be done again: the driver, a broker or a worker died in it, and Spark's checkpoint then
gives the same offsets and the same state to the same batch. What has to hold at any moment:

1. Topic of results: a batch sends its rows keyed by window, origin and carrier. Done again it sends
   the same rows; compaction keeps one per key. Values go forward only, since a key's rows go to one
   partition, and batches do not overlap.
2. Parquet: one file per date, which a rename replaces (POSIX: in one step). The new file is the old
   one without the batch's keys, and the batch's rows; so doing it twice changes nothing, and a
   reader sees each result exactly once, before and after, whenever the driver dies. An overwrite of
   partitions as Spark does it would delete a date first and could lose its other hours.
3. Dead letters: they cannot be taken back, so the first batch after a start, the only one that may
   have been done before, first looks for its own ones in the topic and leaves those out. One gap is
   left: a worker that dies just while it sends them; Spark then repeats that task by itself.
4. Order: dead letters, topic, Parquet, and then Spark notes that the batch is done.
5. With a transactional id dead letters and results of a batch are one transaction of our sink's,
   which leaves out a batch that is committed: read_committed readers see each batch whole and once,
   without a gap in rule 3. Parquet comes after it, as ever.

The output folder must be one path for the driver and all workers. Called by: `query`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from kraftrio.clients.pipeline.batches import BatchCounts
from kraftrio.clients.pipeline.brokers import BrokerAccess
from kraftrio.clients.pipeline.failures import PipelineError
from kraftrio.clients.pipeline.parsing import header_text
from kraftrio.clients.pipeline.plan import DEAD_LETTER_KIND, GROUP_KIND
from kraftrio.clients.pipeline.schemas import (
    DEAD_LETTER_TOPIC,
    RESULTS_TOPIC,
    SOURCE_HEADERS,
)

JSON_FIELDS: Final = (
    "window_start",
    "origin",
    "carrier",
    "flights",
    "cancelled",
    "dep_delay_mean",
    "dep_delay_median",
    "dep_delay_p95",
    "wind_speed",
    "visib",
)
# The Parquet files also say how many of the flights' planes are known, and their seats.
PARQUET_SCHEMA: Final = (
    "window_start timestamp, origin string, carrier string, flights bigint, cancelled bigint,"
    " dep_delay_mean double, dep_delay_median double, dep_delay_p95 double, wind_speed double,"
    " visib double, planes_known bigint, seats bigint, date date"
)
KEY_COLUMNS: Final = ["window_start", "origin", "carrier"]
FILE_NAME: Final = "delays.parquet"
_STAGING: Final = "_staging"
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss'Z'"
# Few large requests; the producer is idempotent and waits for all replicas by itself.
_SINK: Final = {
    "includeHeaders": "true",
    "kafka.linger.ms": "20",
    "kafka.batch.size": str(256 << 10),
    "kafka.compression.type": "lz4",
}
_CLOCK_MARGIN_MS: Final = 3_600_000  # how far the clocks of driver and brokers may be apart


def results_of(groups: DataFrame) -> DataFrame:
    """Return the results of groups: one row per hour, origin and carrier."""
    flights = groups.select(
        "window_start", "origin", "weather", F.explode("flights").alias("flight")
    )
    delay = F.col("flight.dep_delay")
    halves = F.percentile(delay, F.array(F.lit(0.5), F.lit(0.95)))
    gathered = flights.groupBy("window_start", "origin", F.col("flight.carrier")).agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("flight.cancelled")).alias("cancelled"),
        F.avg(delay).alias("dep_delay_mean"),
        halves.alias("halves"),
        F.first("weather").alias("weather"),
        F.count("flight.seats").alias("planes_known"),
        F.coalesce(F.sum("flight.seats"), F.lit(0)).alias("seats"),
    )
    return gathered.select(
        *KEY_COLUMNS,
        "flights",
        "cancelled",
        "dep_delay_mean",
        F.col("halves")[0].alias("dep_delay_median"),
        F.col("halves")[1].alias("dep_delay_p95"),
        "weather.wind_speed",
        "weather.visib",
        "planes_known",
        "seats",
        F.to_date("window_start").alias("date"),
    )


def as_records(results: DataFrame) -> DataFrame:
    """Return results as the key and value of Kafka records."""
    start = F.date_format("window_start", _ISO)
    values = [start.alias("window_start"), *(F.col(name) for name in JSON_FIELDS[1:])]
    return results.select(
        F.concat_ws("|", start, "origin", "carrier").alias("key"),
        F.to_json(F.struct(*values), {"ignoreNullFields": "false"}).alias("value"),
    )


@dataclass(slots=True)
class TopicsWriter:
    """Puts dead letters and results into their topics.

    Args:
        unsure_since_ms: the earliest moment at which the first batch may have begun before; None:
            it is new.
        transactional_id: what a batch puts into topics goes in one transaction of this id; None: as
            rules 1 and 3 say.
    """

    brokers: BrokerAccess
    unsure_since_ms: int | None
    transactional_id: str | None = None

    def write(self, letters: DataFrame | None, results: DataFrame | None, batch_id: int) -> None:
        """Put into topics what a batch has."""
        frames = {}
        if letters is not None:
            frames[DEAD_LETTER_TOPIC] = self._unsent(letters)
        self.unsure_since_ms = None
        if results is not None:
            frames[RESULTS_TOPIC] = as_records(results)
        if self.transactional_id is None:
            for topic, records in frames.items():
                self._save(records.write.format("kafka").option("topic", topic))
        elif frames:
            parts = [frame.withColumn("topic", F.lit(name)) for name, frame in frames.items()]
            records = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
            writer = records.write.format("kraftrio").option("transactional", "true")
            writer = writer.option("kafka.transactional.id", self.transactional_id)
            self._save(writer.option("batchId", str(batch_id)).mode("append"))

    def _save(self, writer: DataFrameWriter) -> None:
        writer.options(**_SINK, **self.brokers.spark_options).save()

    def _unsent(self, letters: DataFrame) -> DataFrame:
        """Return the records of the dead letters that are not in the topic already."""
        if self.unsure_since_ms is not None:
            sent = self._sent_dead_letters(letters.sparkSession, self.unsure_since_ms)
            letters = letters.join(sent, ["topic", "partition", "offset"], "left_anti")
        # One task: were it done again, it alone would have been at fault for a repeated letter.
        ordered = letters.coalesce(1).sortWithinPartitions("topic", "partition", "offset")
        return ordered.select("key", "value", "headers")

    def _sent_dead_letters(self, spark: SparkSession, since_ms: int) -> DataFrame:
        """Return the sources of the dead letters that have been sent since a moment."""
        reader = spark.read.format("kafka").option("subscribe", DEAD_LETTER_TOPIC)
        reader = reader.options(**self.brokers.spark_options)
        reader = reader.option("kafka.isolation.level", "read_committed")
        reader = reader.option("includeHeaders", "true")
        reader = reader.option("startingTimestamp", str(max(0, since_ms - _CLOCK_MARGIN_MS)))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
        topic, partition, offset = (header_text(name) for name in SOURCE_HEADERS)
        return reader.load().select(
            topic.alias("topic"),
            partition.cast("int").alias("partition"),
            offset.cast("bigint").alias("offset"),
        )


@dataclass(slots=True)
class Publisher:
    """Puts batches out; one at a time."""

    topics: TopicsWriter
    output: Path
    counts: dict[int, BatchCounts] = field(default_factory=dict)
    failure: BaseException | None = None  # what ended the last batch, if not well

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Put one batch out (Spark's foreachBatch)."""
        try:
            self._put_out(batch, batch_id)
        finally:
            self.failure = sys.exception()  # Spark hands on its text only

    def _put_out(self, batch: DataFrame, batch_id: int) -> None:
        counts = self.counts.setdefault(batch_id, BatchCounts())
        with cached(batch) as rows:
            found = {row["kind"]: row["count"] for row in rows.groupBy("kind").count().collect()}
            letters = None
            if count := found.get(DEAD_LETTER_KIND, 0):
                counts.dead_letters = count
                letters = rows.where(F.col("kind") == DEAD_LETTER_KIND)
            if not found.get(GROUP_KIND):
                self.topics.write(letters, None, batch_id)
                return
            with cached(results_of(rows.where(F.col("kind") == GROUP_KIND))) as results:
                dates = results.groupBy("date").count().collect()
                counts.results = sum(row["count"] for row in dates)
                self.topics.write(letters, results if dates else None, batch_id)
                if dates:
                    self._replace(results, [str(row["date"]) for row in dates], batch_id)

    def _replace(self, results: DataFrame, dates: list[str], batch_id: int) -> None:
        """Put results into the files of their dates; rule 2."""
        spark = results.sparkSession
        present = [path for date in dates if (path := date_file(self.output, date)).exists()]
        merged = results
        if present:
            old = spark.read.schema(PARQUET_SCHEMA).option("basePath", str(self.output))
            keys = F.broadcast(results.select(*KEY_COLUMNS))
            kept = old.parquet(*map(str, present)).join(keys, KEY_COLUMNS, "left_anti")
            merged = kept.unionByName(results)
        staging = self.output / _STAGING / f"batch-{batch_id}"
        tidy = merged.repartition("date").sortWithinPartitions("date", *KEY_COLUMNS)
        tidy.write.mode("overwrite").partitionBy("date").parquet(str(staging))
        for date in dates:
            parts = list((staging / f"date={date}").glob("part-*.parquet"))
            if len(parts) != 1:
                raise PipelineError(
                    f"{self.output} must be one folder for the driver and all workers"
                )
            replace_file(parts[0], date_file(self.output, date))
        shutil.rmtree(self.output / _STAGING, ignore_errors=True)


def date_file(output: Path, date: str) -> Path:
    """Return the path of a date's results."""
    return output / f"date={date}" / FILE_NAME


def replace_file(source: Path, target: Path) -> None:
    """Put a finished file where another one may be, in one step, and on the disk for good."""
    target.parent.mkdir(exist_ok=True)
    _sync(source)
    os.replace(source, target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clean_output(output: Path) -> None:
    """Remove what an interrupted batch left; the same batch writes it again."""
    shutil.rmtree(output / _STAGING, ignore_errors=True)


@contextlib.contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep a frame's rows while the body uses them more than once."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
