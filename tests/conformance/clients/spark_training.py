"""A job that makes Spark load what the tests' jobs load, for the archive of its classes.

python spark_training.py FOLDER JAVA_OPTIONS        see spark_java.py; FOLDER is for its files
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(folder: str, java_options: str) -> None:
    """Run one query that streams with state, and one over what it has written."""
    from pyspark.sql import SparkSession, functions

    source, output = Path(folder) / "source", Path(folder) / "output"
    source.mkdir()
    for hour in range(10):
        row = {"hour": f"2013-01-01T{hour:02}:00:00Z", "name": f"n{hour % 3}", "delay": hour}
        (source / f"{hour}.json").write_text(json.dumps(row))
    builder = SparkSession.builder.master("local[2]").appName("training")
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    schema = "hour timestamp, name string, delay int"
    names = spark.createDataFrame([("n0", 1), ("n1", 2)], "name string, seats int")

    def keep(batch: Any, batch_id: int) -> None:
        batch.persist()
        batch.write.mode("append").partitionBy("name").parquet(str(output))
        batch.unpersist()

    lines = spark.readStream.text(str(source), wholetext=True)
    rows = lines.select(functions.from_json("value", schema).alias("row")).select("row.*")
    joined = rows.withWatermark("hour", "1 day").join(functions.broadcast(names), "name", "left")
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
