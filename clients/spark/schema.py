"""The columns that the Spark data sources have: those of Spark's `kafka` format.

`spark_arrow.arrow_schema` says the same in Arrow's words. Called by: the data sources.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kraftrio.clients.errors import ConfigError


def table_schema(*, include_headers: bool) -> StructType:
    """Return the columns of Spark's `kafka` format."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


def check_schema(schema: StructType, expected: StructType, name: str) -> None:
    """Refuse columns that a query asks for instead of those there are.

    Raises:
        ConfigError: they differ.
    """
    if schema != expected:
        raise ConfigError(f"the columns of the format {name} are fixed: do not give a schema")
