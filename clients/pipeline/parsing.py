"""Kafka records into rows with types, and what is wrong with those that are not such rows.

Owns the explicit schemas and the law of what a good record is. A record is malformed when its
value is missing, is not UTF-8, is not one JSON object, does not fit the schema's types, lacks a
field that it is placed by, or has a time that cannot be (a time far in the future would push
the watermark past everything that is still to come). `reason` says which, in words; None is good.

Spark's `from_json` is lenient: it stops reading after the first object and would take nested
objects for text. Our rows are flat and hold no braces in texts, so counting braces keeps all that
out, without the cost of a regular expression.

Called by: `plan`, `report`. Only expressions are built here; nothing runs.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kraftrio.clients.pipeline.schemas import REASON_HEADER, SOURCE_HEADERS, Table

_TYPES: Final[dict[str, Any]] = {
    "int": T.IntegerType(),
    "float": T.DoubleType(),
    "text": T.StringType(),
}
_CORRUPT: Final = "_corrupt"
_TIME: Final = "2013-01-01T10:00:00Z"  # such as this one
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
FUTURE_TOLERANCE: Final = "INTERVAL 1 DAY"


def struct_of(table: Table) -> T.StructType:
    """Return Spark's schema of a table's rows."""
    fields = [T.StructField(name, _TYPES[kind]) for name, kind in table.columns.items()]
    return T.StructType(fields)


def parse(records: DataFrame, table: Table) -> DataFrame:
    """Return Kafka's columns and beside them `row`, `event_time` and `reason`."""
    text = F.col("value").cast("string")
    schema = struct_of(table).add(_CORRUPT, T.StringType())
    parsed = records.withColumn("row", F.from_json(text, schema, _JSON_OPTIONS))
    if table.is_timed:
        time = F.try_to_timestamp(F.col("row.time_hour"))
        parsed = parsed.withColumn("event_time", time)
    return parsed.withColumn("reason", _reason(table, text))


def _reason(table: Table, text: Column) -> Column:
    """Return what is wrong with a record as an expression; null: nothing."""
    row = F.col("row")
    checks = [
        (F.col("value").isNull(), F.lit("no value")),
        (~F.is_valid_utf8(text), F.lit("not UTF-8")),
        (~_is_one_flat_object(text), F.lit("not one flat JSON object")),
        (row.isNull(), F.lit("not JSON")),
        (row[_CORRUPT].isNotNull(), F.lit("not JSON, or not of the schema's types")),
    ]
    for name in table.required:
        missing = row[name].isNull() | (row[name] == "")
        checks.append((missing, F.lit(f"{name} is missing")))
    if table.is_timed:
        time = F.col("event_time")
        is_time = (
            (F.length(row["time_hour"]) == len(_TIME))
            & (F.substring(row["time_hour"], 11, 1) == "T")
            & row["time_hour"].endswith("Z")
            & time.isNotNull()
        )
        checks.append((~is_time, F.lit(f"time_hour is not a time such as {_TIME}")))
        latest = F.current_timestamp() + F.expr(FUTURE_TOLERANCE)
        checks.append((time > latest, F.lit("time_hour lies in the future")))
    nothing = F.lit(None).cast("string")
    return reduce(
        lambda rest, check: F.when(check[0], check[1]).otherwise(rest), reversed(checks), nothing
    )


def _is_one_flat_object(text: Column) -> Column:
    """Return whether text begins and ends with braces and has no others, as an expression."""
    bare = F.trim(text)
    return (
        bare.startswith("{")
        & (F.locate("{", bare, 2) == 0)
        & (F.instr(bare, "}") == F.length(bare))
    )


def dead_letter_headers() -> Column:
    """Return a record's headers with the reason and the source after them."""
    sources = [F.col("topic"), F.col("partition"), F.col("offset")]
    added = [
        F.struct(F.lit(key).alias("key"), value.cast("string").cast("binary").alias("value"))
        for key, value in zip(
            (REASON_HEADER, *SOURCE_HEADERS), (F.col("reason"), *sources), strict=True
        )
    ]
    own = F.coalesce(
        F.col("headers"), F.expr("cast(array() as array<struct<key:string,value:binary>>)")
    )
    return F.concat(own, F.array(*added))


def header_text(key: str) -> Column:
    """Return the text of a record's last header of this name; null without one."""
    matching = F.filter(F.col("headers"), lambda header: header["key"] == key)
    return F.try_element_at(matching, F.lit(-1))["value"].cast("string")
