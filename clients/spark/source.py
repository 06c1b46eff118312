"""Kafka topics as a Spark data source without jars: `format("kraftrio")`.

    spark.dataSource.register(KraftrioSource)
    spark.read.format("kraftrio").option("kafka.bootstrap.servers", ...).option("subscribe", ...)

Owns `KraftrioSource` and its readers; columns and options are those of Spark's `kafka` format, so
that switching is one word. Rules:
1. The driver plans, in short-lived processes of Spark's: it asks the cluster for partitions and
   offsets and hands out ranges. Executors read one range each, as Arrow batches.
2. Offsets of a stream are `{topic: {partition: next offset}}`, as the `kafka` format writes them.
3. Spark hands conditions down only to a reader that takes them, and fails a query with such a
   reader unless spark.sql.python.filterPushdown.enabled: so the option `pushFilters` chooses it.

Needs pyspark and pyarrow (`kraftrio[spark]`), here and on the executors. Called by: Spark.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
import trio
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraftrio.clients.errors import ConfigError, OffsetOutOfRangeError
from kraftrio.clients.spark.fetch import DATA_LOSS_ADVICE, TimeBounds, read_range
from kraftrio.clients.spark.filters import PushedFilters
from kraftrio.clients.spark.options import LATEST, ReadOptions, boolean, read_options
from kraftrio.clients.spark.planning import Planner, Positions
from kraftrio.clients.spark.ranges import (
    OffsetRange,
    batch_ranges,
    from_json,
    limit_rows,
    row_count,
    split_ranges,
    to_json,
)
from kraftrio.clients.spark.schema import check_schema, table_schema
from kraftrio.clients.spark.sink import KraftrioStreamWriter, KraftrioWriter, sink_options
from kraftrio.clients.spark.workers import NeedsKraftrio
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

JsonOffsets = dict[str, dict[str, int]]


class KraftrioSource(DataSource, metaclass=NeedsKraftrio):
    """The format "kraftrio": topics as tables, read and written in batches and as streams.

    | option | values (default) | of |
    | --- | --- | --- |
    | `kafka.bootstrap.servers` | HOST:PORT,HOST:PORT; must be given | all |
    | `kafka.*` | settings of Kafka's consumer, or producer, under their names there | all |
    | `subscribe` | topics, separated by commas; this or one of the next two | reading |
    | `subscribePattern` | a pattern that whole names of topics match | reading |
    | `assign` | `{"topic": [partition, ...]}` | reading |
    | `startingOffsets` | earliest, latest, `{"topic": {"partition": offset}}`, where -2 means \
earliest and -1 latest (a batch: earliest, a stream: latest) | reading |
    | `endingOffsets` | the same (latest) | batches |
    | `startingTimestamp`, `endingTimestamp` | milliseconds since 1970, before offsets | reading, \
batches |
    | `startingOffsetsByTimestamp`, `endingOffsetsByTimestamp` | `{"topic": {"partition": \
milliseconds}}` | reading, batches |
    | `startingOffsetsByTimestampStrategy` | error, latest: if none is as new (error) | reading |
    | `includeHeaders` | true, false: whether there is a column `headers` (false) | all |
    | `failOnDataLoss` | true, false: whether lost records fail the query (true) | reading |
    | `minPartitions` | at least so many Spark partitions (as many as the topics have) | reading |
    | `maxRecordsPerPartition` | so many offsets at most in a Spark partition (no limit) | reading |
    | `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` | of a micro-batch (all, any) | streams |
    | `maxTriggerDelay` | how long minOffsetsPerTrigger may wait, as 500ms (15m) | streams |
    | `fetchOffset.numRetries`, `fetchOffset.retryIntervalMs` | attempts at lookups, and their \
distance (3, 1000) | reading |
    | `kafkaConsumer.pollTimeoutMs` | how long a task waits for records (120000) | reading |
    | `groupIdPrefix` | taken, without effect: no group is used | reading |
    | `pushFilters` | true, false: whether conditions are handed down, which needs \
spark.sql.python.filterPushdown.enabled (false) | reading |
    | `topic` | where all rows go, instead of a column `topic` | writing |
    | `transactional` | true, false: a batch in one transaction (false) | writing |
    | `batchId` | the number of the batch, within foreachBatch | writing |

    A broker that cannot be reached is reported after six seconds; kafka.default.api.timeout.ms
    changes that for reading, and a smaller kafka.max.block.ms for writing.

    Spark does not let a source in Python do two things that its `kafka` format can: a batch is
    written by mode("append") only, since Spark refuses its default "errorifexists" before the
    source is asked; it also refuses the output mode "update" of a stream, which foreachBatch can
    do.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kraftrio"

    def schema(self) -> StructType:
        """Return the columns."""
        return table_schema(include_headers=boolean(self.options, "includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch query."""
        check_schema(schema, self.schema(), self.name())
        options = read_options(self.options, streaming=False)
        return FilteringReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what reads a streaming query."""
        check_schema(schema, self.schema(), self.name())
        return StreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> KraftrioWriter:
        """Return what writes a batch query."""
        if overwrite:
            raise ConfigError('topics cannot be overwritten: use mode("append")')
        return KraftrioWriter(sink_options(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KraftrioStreamWriter:
        """Return what writes a streaming query."""
        return KraftrioStreamWriter(sink_options(self.options, schema, streaming=True))


class RangePartition(InputPartition):
    """A range of offsets that one Spark task reads, of the topic with that id."""

    def __init__(self, item: OffsetRange, times: TimeBounds, topic_id: bytes) -> None:
        super().__init__(None)
        self.item = item
        self.times = times
        self.topic_id = topic_id


class BatchReader(DataSourceReader, metaclass=NeedsKraftrio):
    """Reads the offsets between two ends that are found when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planner = Planner(options)
        self._filters = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Plan: one Spark partition for each topic partition, or more with minPartitions."""
        ranges = trio.run(self._ranges)
        options = self._options
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        times = TimeBounds(self._filters.min_timestamp_us, self._filters.max_timestamp_us)
        ids = self._planner.topic_ids
        return [RangePartition(piece, times, ids.get(piece.topic, ZERO_UUID)) for piece in pieces]

    async def _ranges(self) -> list[OffsetRange]:
        planner = self._planner
        starts, ends = await planner.both_ends()
        ranges = []
        for item, start in sorted(starts.items()):
            end = ends[item]
            if start > end:
                raise ConfigError(
                    f"{item.topic}-{item.partition} would be read from offset {start} to {end}"
                )
            ranges.append(OffsetRange(item.topic, item.partition, start, end))
        ranges = self._filters.narrow(ranges)
        time_ms = self._filters.min_timestamp_ms
        if time_ms is None:
            return ranges
        wanted = {TopicPartition(item.topic, item.partition): time_ms for item in ranges}
        firsts = await planner.at_time(wanted)
        return [
            item._replace(start=max(item.start, first))
            for item in ranges
            if (first := firsts[TopicPartition(item.topic, item.partition)]) != LATEST
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        return _read(partition, self._options)


class FilteringReader(BatchReader):
    """A reader that takes conditions from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what can be taken; return the rest."""
        return [condition for condition in filters if not self._filters.push(condition)]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow, metaclass=NeedsKraftrio):
    """Plans the micro-batches of a stream; lives in one process of the driver's."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planner = Planner(options)
        self._initial: JsonOffsets | None = None
        self._latest: Positions | None = None
        self._is_available_now = False
        self._target: Positions | None = None
        self._last_batch_at_s = -math.inf

    def initialOffset(self) -> JsonOffsets:
        """Return where a new query starts."""
        if self._initial is None:
            self._initial = to_json(trio.run(self._planner.starting))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a micro-batch may hold."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only what is there by the time the first micro-batch is planned."""
        self._is_available_now = True

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Return where the next micro-batch ends: at `start` if there is none yet."""
        starts = from_json(start)
        if self._target is not None:
            latest = self._target
        else:
            latest = trio.run(self._look_up, starts)
            if self._is_available_now:
                self._target = latest
        self._latest = latest
        if isinstance(limit, ReadAllAvailable):
            return to_json(latest)
        if self._is_too_little(starts, latest):
            return start
        if not isinstance(limit, ReadMaxRows):
            return to_json(latest)
        new = trio.run(self._planner.earliest, latest.keys() - starts.keys())
        return to_json(limit_rows(limit.max_rows, starts, latest, new))

    async def _look_up(self, starts: Positions) -> Positions:
        """Return where the logs end; asks again if one ends before what was read already."""
        latest = await self._planner.latest()
        for _ in range(1, self._options.num_retries):
            recreated = self._planner.recreated
            if all(
                item.topic in recreated or latest.get(item, start) >= start
                for item, start in starts.items()
            ):
                break
            await trio.sleep(self._options.retry_interval_ms / 1000)
            latest = await self._planner.latest()
        return latest

    def _is_too_little(self, starts: Positions, latest: Positions) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._is_available_now:
            return False
        now_s = time.monotonic()
        is_due = now_s - self._last_batch_at_s >= self._options.max_trigger_delay_ms / 1000
        if not is_due and row_count(starts, latest) < least:
            return True
        self._last_batch_at_s = now_s
        return False

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return where the logs ended when last asked, for the query's progress."""
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """Plan a micro-batch."""
        starts, ends = self._leave_former_topics(from_json(start)), from_json(end)
        earliest = trio.run(self._planner.earliest, ends.keys() - starts.keys())
        ranges = batch_ranges(starts, ends, earliest, self._report_loss)
        options = self._options
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        ids = self._planner.topic_ids
        return [
            RangePartition(piece, TimeBounds(), ids.get(piece.topic, ZERO_UUID)) for piece in pieces
        ]

    def _leave_former_topics(self, starts: Positions) -> Positions:
        """Return where to begin: topics that were re-created are read like new ones."""
        recreated = {item.topic for item in starts} & self._planner.recreated
        self._planner.recreated.clear()
        for topic in sorted(recreated):
            self._report_loss(f"The topic {topic!r} was re-created")
        return {item: offset for item, offset in starts.items() if item.topic not in recreated}

    def _report_loss(self, message: str) -> None:
        if self._options.fetch.fail_on_data_loss:
            raise OffsetOutOfRangeError(f"{message}. {DATA_LOSS_ADVICE}")
        logger.warning("%s", message)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        return _read(partition, self._options)


def _read(partition: InputPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, RangePartition):  # Spark invents one where there is none
        yield from read_range(
            partition.item, options.fetch, partition.times, topic_id=partition.topic_id
        )
