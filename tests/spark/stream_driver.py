"""A driver to be killed: copies a topic to another one, a batch a transaction.

    python -m tests.spark.stream_driver ADDRESS SOURCE TARGET CHECKPOINT {all|available}

`all` goes on for ever; `available` ends when all that is in the source now is copied. Batches are
small, so that there are many moments to be killed in.
"""

from __future__ import annotations

import sys

RECORDS_A_BATCH = "40"


def main(address: str, source: str, target: str, checkpoint: str, until: str) -> None:
    """Run the query."""
    from pyspark.sql import SparkSession

    from kraftrio.clients.spark.source import KraftrioSource
    from tests.conformance.clients import spark_java
    from tests.spark.conftest import SETTINGS

    settings = SETTINGS | spark_java.settings()
    builder = SparkSession.builder.master("local[2]").appName("to be killed")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(KraftrioSource)
    frame = spark.readStream.format("kraftrio").option("kafka.bootstrap.servers", address)
    frame = frame.option("subscribe", source).option("startingOffsets", "earliest")
    frame = frame.option("maxOffsetsPerTrigger", RECORDS_A_BATCH)
    writer = frame.load().select("key", "value").writeStream.format("kraftrio")
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", target)
    writer = writer.option("transactional", "true").option("checkpointLocation", checkpoint)
    if until == "available":
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
