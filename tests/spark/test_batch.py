"""Batch queries over topics: the same rows as Spark's own `kafka` format, whatever the options."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import KIND, Broker
from tests.conformance.clients import install
from tests.spark import support
from tests.spark.support import CODECS, PER_CODEC, START_MS, failure, reader, rows

pytestmark = support.MARKS

RECORDED = Path(__file__).resolve().parents[1] / "data" / "log-dirs"
LAST_MS = START_MS + 10 * PER_CODEC * len(CODECS)


def by_partition(*numbers: int) -> str:
    """Write numbers of the three partitions as Spark's options do."""
    return json.dumps({"all-kinds": {str(n): number for n, number in enumerate(numbers)}})


SELECTIONS = {
    "everything": {},
    "headers": {"includeHeaders": "true"},
    "some offsets": {
        "startingOffsets": by_partition(10, -2, 3),
        "endingOffsets": by_partition(150, 7, -1),
    },
    "earliest to latest": {"startingOffsets": "earliest", "endingOffsets": "latest"},
    "from a time on": {"startingTimestamp": str(START_MS + 2000)},
    "between times": {
        "startingTimestamp": str(START_MS + 1000),
        "endingTimestamp": str(START_MS + 3000),
    },
    "to a time that has not come": {"endingTimestamp": str(LAST_MS + 5)},
    "times by partition": {
        "startingOffsetsByTimestamp": by_partition(START_MS + 100, START_MS, START_MS + 4000),
        "endingOffsetsByTimestamp": by_partition(LAST_MS, START_MS + 1500, LAST_MS),
    },
    "no such time yet": {
        "startingTimestamp": str(LAST_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "more partitions": {"minPartitions": "8", "includeHeaders": "true"},
    "a pattern": {"subscribePattern": "all-k.*"},
    "assigned": {"assign": '{"all-kinds":[0,2]}'},
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_same_rows_as_sparks_format(
    spark: Any, broker: Broker, filled_topic: str, name: str
) -> None:
    """The format's name is all that a query changes."""
    options: dict[str, str] = {"subscribe": filled_topic} | SELECTIONS[name]
    if "subscribePattern" in options or "assign" in options:
        del options["subscribe"]
    expected = rows(reader(spark, "kafka", broker.address, **options))
    frame = reader(spark, "kraftrio", broker.address, **options)
    assert frame.schema == reader(spark, "kafka", broker.address, **options).schema
    assert rows(frame) == expected
    assert bool(expected) == (name != "no such time yet")


def test_rows_are_what_was_sent(spark: Any, broker: Broker, filled_topic: str) -> None:
    """Keys, values, headers and timestamps come out as they went in, in every codec."""
    frame = reader(
        spark, "kraftrio", broker.address, subscribe=filled_topic, includeHeaders="true"
    ).selectExpr(
        "partition", "key", "value", "headers", "unix_millis(timestamp)", "offset", "timestampType"
    )
    found = [tuple(row) for row in frame.collect()]
    found.sort(key=lambda row: (row[0], row[5]))
    sent = sorted(
        (record for codec in CODECS for record in support.records(codec)), key=lambda r: r[0]
    )
    assert len(found) == len(sent) == PER_CODEC * len(CODECS)
    for row, (partition, key, value, headers, timestamp_ms) in zip(found, sent, strict=True):
        read_headers = tuple((item.key, item.value) for item in row[3] or ())
        assert (row[0], row[1], row[2], read_headers, row[4], row[6]) == (
            partition, key, value, headers, timestamp_ms, 0,
        )  # fmt: skip


def test_partitions_of_the_query(spark: Any, broker: Broker, filled_topic: str) -> None:
    """There is a task for each partition, or about as many as minPartitions asks for."""
    for options, count in (
        ({}, 3),
        ({"minPartitions": "9"}, 9),
        ({"maxRecordsPerPartition": "50"}, 12),
    ):
        frame = reader(spark, "kraftrio", broker.address, subscribe=filled_topic, **options)
        assert frame.rdd.getNumPartitions() == count


CONDITIONS = [
    "partition = 1",
    "partition <> 1 and topic = 'all-kinds'",
    "topic like 'all%' and partition in (0, 2) and offset >= 20 and offset < 40",
    "topic = 'another'",
    "offset in (3, 5, 1000)",
    "timestamp >= timestamp_millis(1700000003000)",
    "timestamp > timestamp_millis(1700000001000) and timestamp <= timestamp_millis(1700000002000)",
    "timestamp < timestamp_micros(1700000000500001) and key is not null",
    "timestamp = timestamp_millis(1700000000011)",
    "timestamp > timestamp_millis(1800000000000)",
    "offset > 10 or partition = 0",
]


@pytest.fixture(scope="module")
def all_rows(spark: Any, broker: Broker, filled_topic: str) -> Iterator[Any]:
    """What Spark's own format reads, kept."""
    frame = reader(spark, "kafka", broker.address, subscribe=filled_topic).cache()
    yield frame
    frame.unpersist()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pushed_conditions(spark: Any, broker: Broker, all_rows: Any, condition: str) -> None:
    """Conditions that the source takes over leave the rows that Spark itself would have left."""
    expected = rows(all_rows.where(condition))
    frame = reader(
        spark, "kraftrio", broker.address, subscribe="all-kinds", pushFilters="true"
    ).where(condition)
    assert rows(frame) == expected
    plan = frame._jdf.queryExecution().executedPlan().toString()
    if " or " not in condition and "offset in" not in condition and "key" not in condition:
        assert "Filter" not in plan.replace("RuntimeFilters", "")


def test_conditions_save_reading(spark: Any, broker: Broker, filled_topic: str) -> None:
    """What conditions rule out is not even planned."""
    frame = reader(spark, "kraftrio", broker.address, subscribe=filled_topic, pushFilters="true")
    assert frame.where("partition = 2 and offset between 5 and 9").rdd.getNumPartitions() == 1


BAD_OPTIONS = [
    ({"subscribe": "not-there", "fetchOffset.numRetries": "1"}, "there is no topic 'not-there'"),
    ({}, "One of the options assign, subscribe, subscribePattern must be given"),
    ({"subscribe": "a", "assign": '{"a":[0]}'}, "Only one of the options assign"),
    ({"assign": '{"all-kinds":[7]}', "fetchOffset.numRetries": "1"}, "no partition all-kinds-7"),
    ({"subscribe": "all-kinds", "startingOffsets": "latest"}, "cannot be latest in batch queries"),
    ({"subscribe": "all-kinds", "startingOffsets": '{"all-kinds":{"0":1}}'}, "every partition"),
    ({"subscribe": "all-kinds", "startingTimestamp": "9999999999999"}, "no record of all-kinds-0"),
    ({"subscribe": "all-kinds", "minPartitions": "0"}, "minPartitions must be at least 1"),
    ({"subscribe": "all-kinds", "failOnDataLoss": "maybe"}, "must be true or false"),
    ({"subscribe": "all-kinds", "kafka.auto.offset.reset": "earliest"}, "is not supported"),
    ({"subscribe": "all-kinds", "kafka.bootstrap.servers": "nowhere"}, "must be HOST:PORT"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), BAD_OPTIONS)
def test_bad_options(
    spark: Any, broker: Broker, filled_topic: str, options: dict[str, str], sentence: str
) -> None:
    """What is wrong is said in one sentence."""
    frame = reader(spark, "kraftrio", broker.address, **options)
    assert sentence in failure(frame)


def test_deleted_records(spark: Any, broker: Broker, unique_topic: Callable[[], str]) -> None:
    """Offsets that are gone fail a query, or are left out if that is allowed."""
    topic = unique_topic()
    support.create_topic(broker.address, topic)
    support.send_numbers(broker.address, topic, range(300))
    support.delete_records(broker.address, topic, {0: 40, 1: 100})
    starting = json.dumps({topic: {"0": 10, "1": 0, "2": 0}})
    options = {"subscribe": topic, "startingOffsets": starting}
    message = failure(reader(spark, "kraftrio", broker.address, **options))
    assert re.search("has no offsets (10 to 39|0 to 99) any more", message)
    options["failOnDataLoss"] = "false"
    found = rows(reader(spark, "kraftrio", broker.address, **options))
    assert found == rows(reader(spark, "kafka", broker.address, **options))
    assert [row[3:5] for row in found] == [(0, n) for n in range(40, 100)] + [
        (2, n) for n in range(100)
    ]


@pytest.mark.skipif(KIND != "kraftrio", reason="puts files into our broker's data folder")
def test_transactions(spark: Any, make_broker: Callable[[], Broker]) -> None:
    """With read_committed aborted and open transactions do not show, as in Spark's format."""
    broker = make_broker()
    support.create_topic(broker.address, "txn", 1)
    support.send(broker.address, "txn", [(0, None, b"makes the folder", (), START_MS)])
    broker.terminate()
    folder = broker.data_directory / "txn-0"
    for old in folder.iterdir():
        if old.name != "partition.metadata":
            old.unlink()
    for recorded in (RECORDED / "txn-0").iterdir():
        if recorded.name not in ("partition.metadata", "leader-epoch-checkpoint"):
            shutil.copy(recorded, folder)
    broker.start()
    found = {}
    for level in ("read_uncommitted", "read_committed"):
        options = {"subscribe": "txn", "kafka.isolation.level": level}
        found[level] = rows(reader(spark, "kraftrio", broker.address, **options))
        assert found[level] == rows(reader(spark, "kafka", broker.address, **options))
    assert [row[4] for row in found["read_committed"]] == [0, 1, 2, 7, 9, 14]
    assert len(found["read_uncommitted"]) == 12


def test_live_transactions(spark: Any, broker: Broker, unique_topic: Callable[[], str]) -> None:
    """The same with transactions of a live producer: committed, aborted, open."""
    confluent = install.python_client("confluent_kafka")
    topic = unique_topic()
    support.create_topic(broker.address, topic, 1)
    settings = {"bootstrap.servers": broker.address, "transactional.id": topic}
    producer = confluent.Producer(settings)
    producer.init_transactions(30)
    for index, end in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.flush)
    ):
        producer.begin_transaction()
        for number in range(50):
            producer.produce(topic, b"%d of %d" % (number, index))
        producer.flush(30)  # an abort drops what is not sent yet
        end(30)
    for level, counts in (("read_committed", {0: 50}), ("read_uncommitted", {0: 50, 1: 50, 2: 50})):
        options = {"subscribe": topic, "kafka.isolation.level": level}
        found = rows(reader(spark, "kraftrio", broker.address, **options))
        assert found == rows(reader(spark, "kafka", broker.address, **options))
        assert Counter(int(bytes(row[1]).split()[-1]) for row in found) == counts
    producer.abort_transaction(30)
