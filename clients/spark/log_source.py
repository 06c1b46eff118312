"""Log directories as a Spark data source, without a broker: `format("kraftrio-log")`.

    spark.dataSource.register(KraftrioLogSource)
    spark.read.format("kraftrio-log").option("subscribe", "flights").load("/var/lib/kafka/data")

Owns `KraftrioLogSource`. It reads what a stopped broker left, or a copy of it; also Apache Kafka's.
The columns are those of Spark's `kafka` format. Rules:
1. One Spark partition for each segment; the files must be there on the executors, too.
2. Options: `path` (directories, separated by commas), `subscribe`, `subscribePattern` or `assign`
   (default: all topics but internal ones), `startingOffsets`, `endingOffsets`, `includeHeaders`,
   `kafka.isolation.level`, `kafka.check.crcs`, `failOnDataLoss`, `pushFilters`, as in the formats
   that read from brokers. Instead of starting at a time, use a condition on `timestamp`.
3. With read_committed the log ends where the first transaction begins that is still open.

Needs pyspark and pyarrow (`kraftrio[spark]`). Called by: Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kraftrio.clients.errors import ConfigError, UnknownTopicOrPartitionError
from kraftrio.clients.spark.arrow import RecordColumns, RowBounds
from kraftrio.clients.spark.filters import PushedFilters
from kraftrio.clients.spark.log_files import (
    MAX_OFFSET,
    AbortedRange,
    PartitionLogFiles,
    SegmentFile,
    TransactionOutcomes,
    aborted_by_producer,
    find_partitions,
    is_aborted,
    iter_segment_batches,
    scan_transactions,
)
from kraftrio.clients.spark.options import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    OffsetChoice,
    TopicChoice,
    boolean,
    check_names,
    isolation_level,
    offset_spec,
    partition_text,
    topic_choice,
)
from kraftrio.clients.spark.ranges import OffsetRange
from kraftrio.clients.spark.schema import check_schema, table_schema
from kraftrio.clients.spark.workers import NeedsKraftrio
from kraftrio.wire.primitives import TopicPartition

# Names of internal topics begin with __: those are read only when they are named.
_ALL_BUT_INTERNAL = TopicChoice(pattern="(?!__).*")
_OPTIONS = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "failOnDataLoss",
    "pushFilters",
)
_BY_TIME = (
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a query over log directories."""

    path: str
    topics: TopicChoice
    starting: OffsetChoice
    ending: OffsetChoice
    include_headers: bool
    read_committed: bool
    check_crcs: bool
    fail_on_data_loss: bool
    push_filters: bool


def log_options(options: Mapping[str, str]) -> LogOptions:
    """Check and take the options.

    Raises:
        ConfigError: one is missing or wrong.
    """
    values = {name.lower(): text for name, text in options.items()}
    for name in _BY_TIME:
        if name.lower() in values:
            raise ConfigError(f"{name} is not for logs: use a condition on the column timestamp")
    check_names(options, _OPTIONS, ("isolation.level", "check.crcs"))
    if not values.get("path", "").strip():
        raise ConfigError("the directory is missing: give it to load(), or as the option path")
    return LogOptions(
        path=values["path"],
        topics=topic_choice(values, default=_ALL_BUT_INTERNAL),
        starting=offset_spec(values, "starting", EARLIEST),
        ending=offset_spec(values, "ending", LATEST),
        include_headers=boolean(values, "includeHeaders", False),
        read_committed=isolation_level(values, "kafka.") is IsolationLevel.READ_COMMITTED,
        check_crcs=boolean(values, "kafka.check.crcs", True),
        fail_on_data_loss=boolean(values, "failOnDataLoss", True),
        push_filters=boolean(values, "pushFilters", False),
    )


class KraftrioLogSource(DataSource, metaclass=NeedsKraftrio):
    """The format "kraftrio-log"."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kraftrio-log"

    def schema(self) -> StructType:
        """Return the columns."""
        return table_schema(include_headers=boolean(self.options, "includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the logs."""
        check_schema(schema, self.schema(), self.name())
        options = log_options(self.options)
        return FilteringLogReader(options) if options.push_filters else LogReader(options)


class SegmentPartition(InputPartition):
    """What one Spark task reads of a segment."""

    def __init__(
        self, segment: SegmentFile, item: OffsetRange, aborted: dict[int, list[AbortedRange]]
    ) -> None:
        super().__init__(None)
        self.segment = segment
        self.item = item
        self.aborted = aborted


class LogReader(DataSourceReader, metaclass=NeedsKraftrio):
    """Reads segments."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._filters = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Plan: one Spark partition for each segment that is not ruled out."""
        options = self._options
        logs = [
            found
            for found in find_partitions(options.path)
            if options.topics.wants(found.topic_partition)
        ]
        present = [found.topic_partition for found in logs]
        _check_present(options, present)
        _check_named(options.starting, present, "startingOffsets")
        _check_named(options.ending, present, "endingOffsets")
        return [piece for found in logs for piece in self._pieces(found)]

    def _pieces(self, found: PartitionLogFiles) -> list[InputPartition]:
        topic, partition = found.topic_partition
        start = max(_offset(self._options.starting, found), found.log_start_offset)
        end = _offset(self._options.ending, found)
        narrowed = self._filters.narrow([OffsetRange(topic, partition, start, end)])
        if not narrowed:
            return []
        [whole] = narrowed
        transactions = TransactionOutcomes([], MAX_OFFSET)
        if self._options.read_committed:
            transactions = scan_transactions(found.segments)
        pieces: list[InputPartition] = []
        for segment in found.segments:
            first = max(segment.base_offset, whole.start)
            last = min(segment.next_base_offset, whole.end, transactions.last_stable_offset)
            if first < last:
                aborted = aborted_by_producer(transactions.aborted, first, last)
                item = whole._replace(start=first, end=last)
                pieces.append(SegmentPartition(segment, item, aborted))
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one segment."""
        if isinstance(partition, SegmentPartition):  # Spark makes one up where there is none
            yield from self._read(partition)

    def _read(self, partition: SegmentPartition) -> Iterator[pa.RecordBatch]:
        options, item = self._options, partition.item
        bounds = RowBounds(
            item.start, item.end, self._filters.min_timestamp_us, self._filters.max_timestamp_us
        )
        columns = RecordColumns(
            item.topic, item.partition, bounds, include_headers=options.include_headers
        )
        batches = iter_segment_batches(
            partition.segment,
            item.start,
            item.end,
            check_crcs=options.check_crcs,
            tolerate_damage=not options.fail_on_data_loss,
        )
        for data, header in batches:
            if header.is_control or is_aborted(header, partition.aborted):
                continue
            columns.add(data, header)
            if columns.is_full and (batch := columns.take()) is not None:
                yield batch
        if (batch := columns.take()) is not None:
            yield batch


class FilteringLogReader(LogReader):
    """A reader that takes conditions from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what can be taken; return the rest."""
        return [condition for condition in filters if not self._filters.push(condition)]


def _check_present(options: LogOptions, present: list[TopicPartition]) -> None:
    """Refuse a query for topics or partitions that are not there."""
    topics = options.topics
    for topic in topics.subscribe or ():
        if all(item.topic != topic for item in present):
            raise UnknownTopicOrPartitionError(f"there is no topic {topic!r} in {options.path}")
    for item in topics.assign or ():
        if item not in present:
            raise UnknownTopicOrPartitionError(
                f"there is no partition {partition_text(item)} in {options.path}"
            )


def _check_named(spec: OffsetChoice, present: list[TopicPartition], name: str) -> None:
    if spec.offsets is not None and spec.offsets.keys() != set(present):
        differing = ", ".join(map(partition_text, sorted(spec.offsets.keys() ^ set(present))))
        raise ConfigError(
            f"{name} must be given for every partition that is read and for no other,"
            f" unlike {differing}"
        )


def _offset(spec: OffsetChoice, found: PartitionLogFiles) -> int:
    offset = spec.everywhere
    if spec.offsets is not None:
        offset = spec.offsets[found.topic_partition]
    if offset == EARLIEST:
        return found.log_start_offset
    assert offset is not None
    return MAX_OFFSET if offset == LATEST else offset
