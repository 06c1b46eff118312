"""What the stream computes: flights met with their weather and planes, gathered by the hour.

    flights -- parse --+-- malformed ----------------------------------------+
                       +-- good -- join planes -- watermark --+              |
    weather -- parse --+-- good ------------------ watermark --+-- window ---+--> one batch
                       +-- malformed ----------------------------------------+

1. Flights and weather meet in one stateful aggregation by hour and origin, in update mode, rather
   than in a stream-stream join: that would let no flight out before the watermark has passed it
   when its weather is missing (1,556 flights of 2013 have none), and never the last ones of all.
   A group that changes is put out whole, whether a flight or the weather came late.
2. The groups hold each flight's delay: exact percentiles need them all. An airport's hour is less
   than 3 kB of state, so the watermark can be generous; what comes later than it is dropped.
3. The two sources have watermarks of their own, and the slower one counts (Spark's policy `min`):
   weather may be far ahead of flights, or the reverse.
4. Planes are looked up in the compacted topic as it is when a batch begins.
5. Malformed records take part in the same query, so that a batch is done only when they are out;
   `split` sees to it that the topic is read once all the same.

Each batch has rows of two kinds in one schema (`KIND`): `group` and `dead_letter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kraftrio.clients.pipeline.brokers import BrokerAccess
from kraftrio.clients.pipeline.parsing import dead_letter_headers, parse
from kraftrio.clients.pipeline.schemas import FLIGHTS, PLANES, WEATHER, Table

GROUP_KIND: Final = "group"
DEAD_LETTER_KIND: Final = "dead_letter"

_FLIGHT: Final = "struct<carrier:string,dep_delay:int,cancelled:boolean,seats:int>"
_WEATHER: Final = "struct<wind_speed:double,visib:double>"
_HEADERS: Final = "array<struct<key:string,value:binary>>"

# The columns of a batch, group's first; each kind has nulls in the other's.
BATCH_COLUMNS: Final = {
    "kind": "string",
    "window_start": "timestamp",
    "origin": "string",
    "flights": f"array<{_FLIGHT}>",
    "weather": _WEATHER,
    "key": "binary",
    "value": "binary",
    "headers": _HEADERS,
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
}


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Where the records are, and how many of a topic a batch takes at most."""

    brokers: BrokerAccess
    max_offsets_per_trigger: int
    min_partitions: int | None = None

    def options(self, topic: str) -> dict[str, str]:
        """Return the options of Spark's Kafka source that reading any way needs."""
        options = {
            **self.brokers.spark_options,
            "subscribe": topic,
            # Spark asks for the partition's start and end after each poll: the fewer, the better.
            "kafka.max.poll.records": "5000",
            "kafka.max.partition.fetch.bytes": str(4 << 20),
        }
        if self.min_partitions is not None:
            options["minPartitions"] = str(self.min_partitions)
        return options


def read_stream(
    spark: SparkSession, source: KafkaSource, table: Table
) -> tuple[DataFrame, DataFrame]:
    """Return a topic as a stream from its beginning: its good rows, and the dead letters."""
    reader = spark.readStream.format("kafka").options(**source.options(table.name))
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    reader = reader.option("maxOffsetsPerTrigger", str(source.max_offsets_per_trigger))
    return split(parse(reader.load(), table))


def split(parsed: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the good rows and the dead letters of a stream that is read and parsed once.

    A plan that uses a stream twice reads it twice, unless the uses have a shuffle in common. So
    each record goes through one, as the only element of an array: an optimizer that cannot look
    into it (`spark.sql.optimizer.expression.nestedPruning.enabled` is off) plans both alike.
    """
    is_good = F.col("reason").isNull()
    event = F.struct("event_time", "row.*", F.col("offset").alias("source_offset"))
    letter = F.struct(
        "key", "value", dead_letter_headers().alias("headers"), "topic", "partition", "offset"
    )
    item = F.struct(F.when(is_good, event).alias("event"), F.when(~is_good, letter).alias("letter"))
    shuffled = parsed.select(F.array(item).alias("items"), "partition", "offset").repartition(
        "partition", "offset"
    )
    items = shuffled.select(F.explode("items").alias("item"))
    events = items.where(F.col("item.event").isNotNull()).select("item.event.*")
    letters = items.where(F.col("item.letter").isNotNull()).select("item.letter.*")
    return events, letters


def read_latest(spark: SparkSession, source: KafkaSource, table: Table) -> DataFrame:
    """Return the rows of a compacted topic, the last one of each key, good ones only."""
    reader = spark.read.format("kafka").options(**source.options(table.name))
    records = reader.load().where(F.col("key").isNotNull())
    last = records.groupBy("key").agg(
        F.max_by(F.struct("value"), F.struct("timestamp", "offset")).alias("last")
    )
    rows = parse(last.select("key", "last.value"), table).where(F.col("reason").isNull())
    return rows.select("row.*")


def build(spark: SparkSession, source: KafkaSource, watermark: str) -> DataFrame:
    """Return the stream of batches described above, to be written in update mode."""
    flights, bad_flights = read_stream(spark, source, FLIGHTS)
    weather, bad_weather = read_stream(spark, source, WEATHER)
    planes = read_latest(spark, source, PLANES).select("tailnum", "seats")
    events = _flight_events(flights, planes, watermark).unionByName(
        _weather_events(weather, watermark)
    )
    groups = (
        events.groupBy(F.window("event_time", "1 hour").alias("window"), "origin")
        .agg(
            F.collect_list("flight").alias("flights"),
            # A topic may hold an hour twice: its last record counts.
            F.max_by("weather", "weather_order").alias("weather"),
        )
        .select(F.col("window.start").alias("window_start"), "origin", "flights", "weather")
    )
    batch = _as_batch(groups, GROUP_KIND)
    for letters in (bad_flights, bad_weather):
        batch = batch.unionByName(_as_batch(letters, DEAD_LETTER_KIND))
    return batch


def _flight_events(flights: DataFrame, planes: DataFrame, watermark: str) -> DataFrame:
    timed = flights.withWatermark("event_time", watermark)
    known = timed.join(F.broadcast(planes), "tailnum", "left")
    flight = F.struct(
        F.col("carrier"),
        F.col("dep_delay"),
        F.col("dep_time").isNull().alias("cancelled"),
        F.col("seats"),
    )
    return known.select(
        "event_time",
        "origin",
        flight.cast(_FLIGHT).alias("flight"),
        F.lit(None).cast(_WEATHER).alias("weather"),
        F.lit(None).cast("bigint").alias("weather_order"),
    )


def _weather_events(weather: DataFrame, watermark: str) -> DataFrame:
    return weather.withWatermark("event_time", watermark).select(
        "event_time",
        "origin",
        F.lit(None).cast(_FLIGHT).alias("flight"),
        F.struct("wind_speed", "visib").cast(_WEATHER).alias("weather"),
        F.col("source_offset").alias("weather_order"),
    )


def _as_batch(rows: DataFrame, kind: str) -> DataFrame:
    """Give rows the columns of a batch, null where they have none."""
    present = set(rows.columns)
    columns: list[Any] = []
    for name, type_ in BATCH_COLUMNS.items():
        column = F.col(name) if name in present else F.lit(None)
        if name == "kind":
            column = F.lit(kind)
        columns.append(column.cast(type_).alias(name))
    return rows.select(*columns)
