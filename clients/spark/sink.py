"""Rows of a Spark query into Kafka topics: what `format("kraftrio")` writes.

Owns the writers of batch and streaming queries. Rules:
1. Columns are those of Spark's `kafka` format: `value` (a string or binary), and optionally `key`,
   `topic` (or the option `topic`, which wins), `headers` and `partition`. Others are ignored.
2. A task has succeeded only when the cluster has every row of it. A task that is repeated writes
   its rows again: at least once, as Spark's own sink. With the option `transactional` a batch is
   written whole and once, by the driver (`transactions`).
3. `kafka.*` are settings of the producer; those that only Kafka's has are ignored. Rows come
   thousands at a time, so batches are larger and wait a little longer than by default.
4. Whether a broker can be reached is found out first, within ten seconds.

Called by: `spark/source`. Spark calls `write` in its executors, and `commit` in a process of the
driver's, with what each `write` returned. Rows come as Arrow batches, from a thread that waits for
the JVM, so that the producer's tasks go on meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import trio
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.errors import ConfigError
from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.producer import Producer
from kraftrio.clients.spark.kafka_names import PRODUCER_NAMES
from kraftrio.clients.spark.options import (
    REACH_TIMEOUT_MS,
    check_names,
    client_settings,
    kafka_settings,
)
from kraftrio.clients.spark.transactions import (
    BatchIdentity,
    TransactionOptions,
    id_of_query,
    settings_with_id,
    transaction_options,
    write_once,
)
from kraftrio.clients.spark.workers import NeedsKraftrio

_OPTIONS = ("topic", "includeHeaders", "transactional", "batchId")
_OF_SPARK = ("checkpointlocation", "queryname", "path")  # which Spark hands on to every sink
_REFUSED = {
    "key.serializer": "keys are strings or bytes already",
    "value.serializer": "values are strings or bytes already",
}
_DEFAULTS: dict[str, Any] = {
    "client_id": "kraftrio-spark",
    "batch_size": 128 << 10,
    "linger_ms": 20,
}
_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
}
_KINDS: dict[str, type] = {"int": int, "bool": bool, "bool | None": bool}
_QUERY_ID = "sql.streaming.queryId"  # what Spark calls it in the properties of a stream's tasks


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a query that writes."""

    bootstrap_servers: str
    settings: Mapping[str, Any] = field(repr=False)  # it may hold passwords
    topic: str | None
    transaction: TransactionOptions | None  # None: rows are written by the tasks, without any


def sink_options(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """Check the options and the columns of a query that writes.

    Raises:
        ConfigError: an option is missing or wrong, or a column.
    """
    own = {name: text for name, text in options.items() if name.lower() not in _OF_SPARK}
    check_names(own, _OPTIONS, PRODUCER_NAMES)
    values = {name.lower(): text for name, text in own.items()}
    topic = values.get("topic")
    if topic is not None:
        topic = topic.strip()
    _check_columns(schema, has_topic=topic is not None)
    kafka = kafka_settings(values, _REFUSED)
    servers = kafka.pop("bootstrap.servers")
    types = {
        name: _KINDS.get(str(field.type), str)
        for name, field in ProducerConfig.__dataclass_fields__.items()
        if name != "partitioner"
    }
    settings = _DEFAULTS | client_settings(kafka, types)
    transaction = transaction_options(values, settings, streaming=streaming)
    tried = settings
    if transaction is not None:
        tried = settings_with_id(settings, transaction.transactional_id or "id")
    Producer(servers, **tried)  # so that wrong ones are refused now
    return SinkOptions(servers, settings, topic, transaction)


def _check_columns(schema: StructType, *, has_topic: bool) -> None:
    found = {field.name: field.dataType for field in schema.fields}
    if "value" not in found:
        raise ConfigError("the column 'value' is missing")
    if not has_topic and "topic" not in found:
        raise ConfigError("where to write must be named: by the option topic, or a column 'topic'")
    for name, allowed in _COLUMNS.items():
        kind = found.get(name)
        if kind is None or (name == "topic" and has_topic):
            continue
        if not any(_is_same(kind, one) for one in allowed):
            kinds = " or ".join(one.simpleString() for one in allowed)
            raise ConfigError(
                f"the column '{name}' must be of type {kinds}, not {kind.simpleString()}"
            )


def _is_same(kind: DataType, other: DataType) -> bool:
    """Whether two types are the same but for what may be null."""
    return bool(kind.simpleString() == other.simpleString())


@dataclass(frozen=True, slots=True)
class TaskRows(WriterCommitMessage):
    """The rows of a task, on their way to the driver: a stream of Arrow's, None without any."""

    rows: bytes | None = None
    query_id: str | None = None  # of a streaming query


class KraftrioWriter(DataSourceArrowWriter, metaclass=NeedsKraftrio):
    """Writes the rows of a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, or hand them on for a transaction."""
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write all rows in one transaction, if it is to be one."""
        transaction, tasks = self._options.transaction, _task_rows(messages)
        if transaction is not None and tasks:
            name = transaction.transactional_id or id_of_query(str(uuid.uuid4()))
            batch = BatchIdentity(name, transaction.batch_id)
            _write_batch(self._options, batch, tasks)


class KraftrioStreamWriter(DataSourceStreamArrowWriter, metaclass=NeedsKraftrio):
    """Writes the rows of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, or hand them on for the batch's transaction."""
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write all rows of a batch in one transaction, if it is to be one."""
        transaction, tasks = self._options.transaction, _task_rows(messages)
        if transaction is None or not tasks:
            return
        query_id = tasks[0].query_id
        assert query_id is not None, "a task of a stream knows its query"
        name = transaction.transactional_id or id_of_query(query_id)
        _write_batch(self._options, BatchIdentity(name, batchId), tasks)


def _write(options: SinkOptions, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    if options.transaction is not None:
        task = TaskContext.get()
        assert task is not None, "rows are written by Spark's tasks"
        return TaskRows(_packed(iterator), task.getLocalProperty(_QUERY_ID))
    trio.run(_send_all, options, iterator)
    return WriterCommitMessage()


def _packed(iterator: Iterator[pa.RecordBatch]) -> bytes | None:
    """Return rows as a stream of Arrow's, only the columns that are written."""
    output = pa.BufferOutputStream()
    writer = None
    for rows in iterator:
        needed = rows.select([name for name in rows.schema.names if name in _COLUMNS])
        if writer is None and needed.num_rows:
            settings = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_stream(output, needed.schema, options=settings)
        if writer is not None:
            writer.write_batch(needed)
    if writer is None:
        return None
    writer.close()
    return bytes(output.getvalue())


def _task_rows(messages: Iterable[WriterCommitMessage | None]) -> list[TaskRows]:
    """Return those of the tasks that have rows."""
    return [one for one in messages if isinstance(one, TaskRows) and one.rows is not None]


def _write_batch(options: SinkOptions, batch: BatchIdentity, tasks: list[TaskRows]) -> None:
    async def fill(producer: Producer) -> set[str]:
        topics: set[str] = set()
        for task in tasks:
            with pa.ipc.open_stream(task.rows) as stream:
                for rows in stream:
                    batches = await _send_rows(producer, options.topic, rows)
                    topics |= {batch.topic for batch in batches}
        return topics

    async def write() -> None:
        await check_reachable(options)
        await write_once(options.bootstrap_servers, options.settings, batch, fill)

    trio.run(write)


async def check_reachable(options: SinkOptions) -> None:
    """Raise TimedOutError within seconds if no broker answers; a producer would wait longer."""
    config = Producer(options.bootstrap_servers, **options.settings).config
    async with open_cluster(config=config) as cluster:
        await cluster.refresh(timeout_s=min(REACH_TIMEOUT_MS, config.max_block_ms) / 1000)


async def _send_all(options: SinkOptions, iterator: Iterator[pa.RecordBatch]) -> None:
    await check_reachable(options)
    undecided: dict[Batch, None] = {}  # an object for each row would cost as much as the sending
    async with Producer(options.bootstrap_servers, **options.settings) as producer:
        while True:
            rows = await trio.to_thread.run_sync(next, iterator, None)
            if rows is None:
                break
            undecided |= await _send_rows(producer, options.topic, rows)
            for batch in [batch for batch in undecided if _is_decided(batch)]:
                del undecided[batch]
                batch.raise_failure()
        await producer.flush()
    for batch in undecided:
        batch.raise_failure()


def _is_decided(batch: Batch) -> bool:
    return batch.is_done and all(map(_is_decided, batch.parts or ()))


async def _send_rows(
    producer: Producer, topic: str | None, rows: pa.RecordBatch
) -> dict[Batch, None]:
    """Send rows; return the producer's batches that they are in, in order."""
    batches: dict[Batch, None] = {}
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    nothing = [None] * rows.num_rows
    values = _bytes_column(columns["value"])
    keys = _bytes_column(columns["key"]) if "key" in columns else nothing
    topics = [topic] * rows.num_rows if topic is not None else columns["topic"].to_pylist()
    headers = columns["headers"].to_pylist() if "headers" in columns else nothing
    partitions = columns["partition"].to_pylist() if "partition" in columns else nothing
    for name, value, key, header, partition in zip(
        topics, values, keys, headers, partitions, strict=True
    ):
        if name is None:
            raise ConfigError("a row has no topic: give one in each row, or the option topic")
        pairs = [(item["key"], item["value"]) for item in header] if header else ()
        delivery = await producer.send(name, value, key=key, headers=pairs, partition=partition)
        batches[delivery.batch] = None
    return batches


def _bytes_column(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found
