"""A job that makes Spark load what the jobs of tests load, for the archive of its classes.

python spark_training.py FOLDER ADDRESS SETTINGS      see spark_java.py

FOLDER is for its files, ADDRESS that of a broker with a topic `training`, SETTINGS JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOPIC = "training"


def main(folder: str, address: str, settings: str) -> None:
    """Run one query that streams with state, and one over what it has written."""
    from pyspark.sql import SparkSession, functions

    output = Path(folder) / "output"
    builder = SparkSession.builder.master("local[2]").appName("training")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    schema = "hour timestamp, name string, delay int"
    kafka = {"kafka.bootstrap.servers": address, "includeHeaders": "true"}
    rows = spark.range(10).selectExpr(
        "to_json(named_struct('hour', timestamp_seconds(3600 * id),"
        " 'name', concat('n', id % 3), 'delay', id)) as value"
    )
    rows.write.format("kafka").options(**kafka).option("topic", TOPIC).save()
    names = spark.createDataFrame([("n0", 1), ("n1", 2)], "name string, seats int")

    def keep(batch: Any, batch_id: int) -> None:
        batch.persist()
        batch.write.mode("append").partitionBy("name").parquet(str(output))
        batch.unpersist()

    reader = spark.readStream.format("kafka").options(**kafka).option("subscribe", TOPIC)
    lines = reader.option("startingOffsets", "earliest").load()
    row = functions.from_json(functions.col("value").cast("string"), schema)
    joined = (
        lines.select(row.alias("row"))
        .select("row.*")
        .withWatermark("hour", "1 day")
        .join(functions.broadcast(names), "name", "left")
    )
    window = functions.window("hour", "1 hour")
    groups = joined.groupBy(window, "name").agg(
        functions.collect_list(functions.struct("delay", "seats")).alias("all"),
        functions.max_by("seats", "delay").alias("seats"),
    )
    every = groups.select("window.start", "name", "seats", functions.explode("all").alias("one"))
    writer = every.writeStream.outputMode("update").foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(Path(folder) / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    written = spark.read.parquet(str(output)).where("one.delay >= 0").orderBy("start")
    spans = written.groupBy("name").agg(functions.count("*"), functions.min("start"))
    assert len(spans.collect()) == 3
    assert len(written.toJSON().collect()) == 10
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
