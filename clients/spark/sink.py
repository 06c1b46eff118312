"""Rows of a Spark query into Kafka topics: what `format("kraftrio")` writes.

Owns the writers of batch and streaming queries. Rules:
1. Columns are those of Spark's `kafka` format: `value` (a string or binary), and optionally `key`,
   `topic` (or the option `topic`, which wins), `headers` and `partition`. Others are ignored.
2. A task has succeeded only when the cluster has every row of it. A task that is repeated writes
   its rows again: at least once, as Spark's own sink.
3. `kafka.*` are settings of the producer; those that our producer does not know are ignored. Rows
   come thousands at a time, so batches are larger and wait a little longer than by default.

Called by: `spark/source`. Spark hands rows over as Arrow batches, from a thread that waits for the
JVM, so that the producer's tasks go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import trio
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

from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.errors import ConfigError
from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.producer import Producer
from kraftrio.clients.spark.options import client_settings, kafka_settings

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


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a query that writes."""

    bootstrap_servers: str
    settings: Mapping[str, Any]
    topic: str | None


def sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Check the options and the columns of a query that writes.

    Raises:
        ConfigError: an option is missing or wrong, or a column.
    """
    values = {name.lower(): text for name, text in options.items()}
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
    Producer(servers, **settings)  # so that wrong ones are refused now
    return SinkOptions(servers, settings, topic)


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


class KraftrioWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return _write(self._options, iterator)


class KraftrioStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return _write(self._options, iterator)


def _write(options: SinkOptions, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    trio.run(_send_all, options, iterator)
    return WriterCommitMessage()


async def _send_all(options: SinkOptions, iterator: Iterator[pa.RecordBatch]) -> None:
    undecided: dict[Batch, None] = {}  # an object for each row would cost as much as the sending
    async with Producer(options.bootstrap_servers, **options.settings) as producer:
        while True:
            rows = await trio.to_thread.run_sync(next, iterator, None)
            if rows is None:
                break
            await _send_rows(producer, options.topic, rows, undecided)
            for batch in [batch for batch in undecided if _is_decided(batch)]:
                del undecided[batch]
                batch.raise_failure()
        await producer.flush()
    for batch in undecided:
        batch.raise_failure()


def _is_decided(batch: Batch) -> bool:
    return batch.is_done and all(map(_is_decided, batch.parts or ()))


async def _send_rows(
    producer: Producer, topic: str | None, rows: pa.RecordBatch, undecided: dict[Batch, None]
) -> None:
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
        undecided[delivery.batch] = None


def _bytes_column(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found
