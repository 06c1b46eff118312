"""Batches in transactions of the sink's: seen whole by read_committed readers, and once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.clients import install
from tests.conformance.clients.spark_java import java_home
from tests.spark import support
from tests.spark.support import PARTITIONS, reader, rows, stream
from tests.spark.test_sink import write

pytestmark = support.MARKS

ROOT = Path(__file__).resolve().parents[2]
KILLS = 2
COPIED = 600  # records, in batches of 40
DEADLINE_S = 240.0


def committed(spark: Any, address: str, topic: str) -> list[int]:
    """Return the numbers that a read_committed reader finds once all is decided, in order."""
    support.wait_decided(address, topic)
    return stable(spark, address, topic)


def stable(spark: Any, address: str, topic: str) -> list[int]:
    """Return the numbers that a read_committed reader finds now, in order."""
    level = {"kafka.isolation.level": "read_committed"}
    found = rows(reader(spark, "kraftrio", address, subscribe=topic, **level))
    return sorted(int(bytes(row[0])) for row in found)


def copy(spark: Any, address: str, source: str, target: str, checkpoint: Path) -> None:
    """Copy what is in a topic, a batch a transaction."""
    frame = stream(
        spark,
        "kraftrio",
        address,
        subscribe=source,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="60",
    )
    writer = frame.select("key", "value").writeStream.format("kraftrio")
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", target)
    writer = writer.option("transactional", "true").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    query.stop()


def forget_last_commit(checkpoint: Path) -> int:
    """Leave the checkpoint as a driver does that dies once the last batch is written."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()
    return last


def test_stream(
    spark: Any, broker: Broker, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """A batch of several tasks is one transaction; one that Spark makes again is not doubled."""
    source, target = unique_topic(), unique_topic()
    for topic in (source, target):
        support.create_topic(broker.address, topic)
    support.send_numbers(broker.address, source, range(100))
    copy(spark, broker.address, source, target, tmp_path)
    assert committed(spark, broker.address, target) == list(range(100))
    again = forget_last_commit(tmp_path)
    support.send_numbers(broker.address, source, range(100, 150))
    copy(spark, broker.address, source, target, tmp_path)
    assert (tmp_path / "commits" / str(again)).exists()
    assert committed(spark, broker.address, target) == list(range(150))
    assert len(rows(reader(spark, "kafka", broker.address, subscribe=target))) == 150


def test_numbered_batches(spark: Any, broker: Broker, unique_topic: Callable[[], str]) -> None:
    """foreachBatch names its batches itself, of as many topics as it likes."""
    topics = [unique_topic(), unique_topic()]
    for topic in topics:
        support.create_topic(broker.address, topic)
    frame = spark.range(40).selectExpr(
        f"if(id % 2 = 0, '{topics[0]}', '{topics[1]}') as topic",
        "cast(id as string) as key",
        "cast(id as string) as value",
    )
    mine = {"transactional": "true", "kafka.transactional.id": topics[0]}
    for batch_id in ("3", "3", "2"):
        write(frame, broker.address, batchId=batch_id, **mine)
    for parity, topic in enumerate(topics):
        assert committed(spark, broker.address, topic) == list(range(parity, 40, 2))
    write(frame.where("key = '7'"), broker.address, batchId="4", **mine)
    assert committed(spark, broker.address, topics[1]).count(7) == 2


def test_all_rows_of_a_batch_or_none(
    spark: Any, broker: Broker, unique_topic: Callable[[], str]
) -> None:
    """A row that cannot be written takes all others of its query along, also of other tasks."""
    topic = unique_topic()
    support.create_topic(broker.address, topic)
    frame = spark.range(0, 40, 1, 4).selectExpr(
        "cast(id as string) as key",
        "cast(id as string) as value",
        f"cast(if(id = 39, {PARTITIONS}, 0) as int) as partition",
    )
    # A partition that is not there may still be added: a producer waits for it.
    soon = {"transactional": "true", "kafka.max.block.ms": "2000"}
    with pytest.raises(Exception, match="partition"):
        write(frame, broker.address, topic=topic, **soon)
    assert committed(spark, broker.address, topic) == []
    write(frame.where("key < 39"), broker.address, topic=topic, transactional="true")
    assert len(committed(spark, broker.address, topic)) == 39


BAD = [
    ({"transactional": "true", "kafka.acks": "1"}, "acks"),
    ({"kafka.transactional.id": "mine"}, "needs the option transactional"),
    ({"transactional": "true", "batchId": "1"}, "needs kafka.transactional.id"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD)
def test_bad_input(spark: Any, broker: Broker, options: dict[str, str], sentence: str) -> None:
    """What is wrong is said in one sentence, before anything is written."""
    with pytest.raises(Exception, match=sentence):
        write(spark.sql("select 'a' as value"), broker.address, topic="t", **options)


class Driver:
    """A driver in a process of its own, with its JVM and its workers."""

    def __init__(self, broker: Broker, source: str, target: str, folder: Path, until: str) -> None:
        packages = [str(install.python_packages(pins)) for pins in ("spark.txt", "arrow.txt")]
        known = [path for path in sys.path if path]
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": java_home(),
            "PYTHONPATH": os.pathsep.join([*known, *packages]),
        }
        self.checkpoint = folder / "checkpoint"
        self._log = folder / "driver.log"
        arguments = [broker.address, source, target, str(self.checkpoint), until]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stream_driver", *arguments],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def batches(self) -> int:
        """Return how many batches have begun."""
        return len(list((self.checkpoint / "offsets").glob("[0-9]*")))

    def wait_for_batches(self, count: int) -> None:
        """Wait until so many batches have begun, in whichever run."""
        deadline = time.monotonic() + DEADLINE_S
        while self.batches() < count:
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill all its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self) -> None:
        """Wait for its end."""
        assert self.process.wait(DEADLINE_S) == 0, self._log.read_text()

    def read_up_to(self) -> list[dict[str, int]]:
        """Return where each batch that has begun ends, by partition, in order."""
        ends = []
        for number in range(self.batches()):
            lines = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
            if len(lines) > 2:  # else the driver died while it noted this batch
                (topic,) = json.loads(lines[2]).values()
                ends.append(topic)
        return ends


def numbers_before(ends: dict[str, int]) -> list[int]:
    """Return the numbers that a source has before these offsets (see `send_numbers`)."""
    return sorted(
        index * PARTITIONS + int(partition)
        for partition, end in ends.items()
        for index in range(end)
    )


def test_killed_drivers(
    spark: Any, broker: Broker, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Whenever a driver dies, readers see whole batches, each once; the next one goes on."""
    source, target = unique_topic(), unique_topic()
    for topic in (source, target):
        support.create_topic(broker.address, topic)
    support.send_numbers(broker.address, source, range(COPIED))
    rng = random.Random(7)
    begun = 0
    for _ in range(KILLS):
        driver = Driver(broker, source, target, tmp_path, "all")
        try:
            driver.wait_for_batches(begun + 4)
            time.sleep(rng.random())  # to die anywhere in a batch
        finally:
            driver.kill()
        begun = driver.batches()
        whole = [[], *map(numbers_before, driver.read_up_to())]
        # A commit reaches one partition after the other, also when the producer is gone.
        deadline = time.monotonic() + DEADLINE_S
        while (found := stable(spark, broker.address, target)) not in whole[-3:]:
            assert time.monotonic() < deadline, f"torn: {found}"
    Driver(broker, source, target, tmp_path, "available").finish()
    assert committed(spark, broker.address, target) == list(range(COPIED))
