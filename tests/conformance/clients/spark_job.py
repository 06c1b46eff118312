"""A Spark job for test_spark.py: read a topic in batch, tell what it holds, write it to another.

python spark_job.py JARS SETTINGS ADDRESS SOURCE TARGET

SETTINGS are JSON; one line of JSON comes last on stdout.
"""

from __future__ import annotations

import json
import sys


def main(jars: str, more_settings: str, address: str, source: str, target: str) -> None:
    """Run the job in a session of its own."""
    from pyspark.sql import SparkSession, functions

    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **json.loads(more_settings),
    }
    builder = SparkSession.builder.master("local[2]").appName("kraftrio")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def read(**options: str):  # type: ignore[no-untyped-def]
        reader = session.read.format("kafka").option("kafka.bootstrap.servers", address)
        reader = reader.option("subscribe", source).option("includeHeaders", "true")
        return reader.options(**options).load()

    everything = read()
    spans = everything.groupBy("partition").agg(
        functions.count("*"), functions.min("offset"), functions.max("offset")
    )
    some = read(
        startingOffsets=json.dumps({source: {"0": 10, "1": -2, "2": -2}}),
        endingOffsets=json.dumps({source: {"0": 30, "1": 5, "2": -1}}),
    )
    rows = everything.orderBy("key").coalesce(1).select("key", "value", "headers")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", address)
    writer.option("topic", target).save()
    found = {
        "spans": sorted(list(row) for row in spans.collect()),
        "some": sorted([row.partition, row.offset] for row in some.collect()),
    }
    session.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
