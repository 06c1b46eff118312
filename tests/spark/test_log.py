"""`kraftrio-log`: log directories of ours and of Apache Kafka's as tables, without a broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.records.batch import Record, iter_headers, iter_records
from tests.conformance.broker_process import Broker
from tests.spark import support
from tests.spark.support import failure, reader, rows

pytestmark = support.MARKS

RECORDED = Path(__file__).resolve().parents[1] / "data" / "log-dirs"
TOPICS = {
    "codec-gzip": [10],
    "codec-lz4": [10],
    "codec-snappy": [10],
    "codec-zstd": [10],
    "compacted": [10],
    "deleted-records": [2],
    "indexed": [30],
    "logappend": [3],
    "plain": [8, 6],
    "rolled": [3],
    "txn": [12],
}


def logs(spark: Any, path: Path | str, **options: str) -> Any:
    """Return a DataFrame over log directories."""
    return spark.read.format("kraftrio-log").options(**options).load(str(path))


def recorded_records(name: str) -> list[tuple[int, Record]]:
    """Return (timestamp type, record) of all data in a recorded partition."""
    found = []
    for segment in sorted((RECORDED / name).glob("*.log")):
        data = segment.read_bytes()
        for header in iter_headers(data):
            if not header.is_control:
                records = iter_records(data, header)
                found += [(int(header.timestamp_type), record) for record in records]
    return found


def test_recorded_directory(spark: Any) -> None:
    """All topics of a recorded directory are there, but internal ones."""
    counts = logs(spark, RECORDED).groupBy("topic", "partition").count().collect()
    expected = {
        (topic, partition): count
        for topic, sizes in TOPICS.items()
        for partition, count in enumerate(sizes)
    }
    assert {(row.topic, row.partition): row["count"] for row in counts} == expected


@pytest.mark.parametrize("name", ["plain-0", "plain-1", "compacted-0", "logappend-0", "rolled-0"])
def test_contents(spark: Any, name: str) -> None:
    """Rows are the records in the files; a partition's directory can be read alone, too."""
    frame = logs(spark, RECORDED / name, includeHeaders="true").selectExpr(
        "key", "value", "offset", "unix_millis(timestamp)", "timestampType", "headers"
    )
    found = sorted(map(tuple, frame.collect()), key=lambda row: row[2])
    assert [
        (kind, Record(offset, time, key, value, tuple(map(tuple, headers or ()))))
        for key, value, offset, time, kind, headers in found
    ] == recorded_records(name)


def test_transactions(spark: Any) -> None:
    """With read_committed neither aborted nor open transactions show, nor what comes after."""
    options = {"kafka.isolation.level": "read_committed", "subscribe": "txn"}
    assert [row[4] for row in rows(logs(spark, RECORDED, **options))] == [0, 1, 2, 7, 9, 14]


def test_choices(spark: Any) -> None:
    """Topics, offsets and conditions choose as in the formats that read from brokers."""
    assert [row[4] for row in rows(logs(spark, RECORDED, subscribe="deleted-records"))] == [4, 5]
    options = {"startingOffsets": '{"indexed":{"0":7}}', "endingOffsets": '{"indexed":{"0":12}}'}
    assert [row[4] for row in rows(logs(spark, RECORDED, subscribe="indexed", **options))] == [
        *range(7, 12)
    ]
    frame = logs(spark, RECORDED, subscribePattern="roll.*|indexed", pushFilters="true")
    assert frame.rdd.getNumPartitions() == 4
    narrowed = frame.where("topic = 'rolled' and offset >= 1")
    assert narrowed.rdd.getNumPartitions() == 2
    assert [row[4] for row in rows(narrowed)] == [1, 2]


def test_same_rows_as_from_the_broker(spark: Any, broker: Broker, filled_topic: str) -> None:
    """The directory of a broker of ours holds what the broker serves."""
    expected = rows(
        reader(spark, "kafka", broker.address, subscribe=filled_topic, includeHeaders="true")
    )
    frame = logs(spark, broker.data_directory, subscribe=filled_topic, includeHeaders="true")
    assert rows(frame) == expected


def test_torn_tail(spark: Any, tmp_path: Path) -> None:
    """The log ends at the last whole batch, as after the broker's own recovery."""
    shutil.copytree(RECORDED / "indexed-0", tmp_path / "indexed-0")
    segment = tmp_path / "indexed-0" / f"{0:020d}.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:-3])
    assert [row[4] for row in rows(logs(spark, tmp_path))] == [*range(29)]


def damage(folder: Path) -> None:
    """Turn a byte around in the middle of three segments."""
    shutil.copytree(RECORDED / "rolled-0", folder / "rolled-0")
    segment = folder / "rolled-0" / f"{1:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 0xFF
    segment.write_bytes(data)


def test_damage(spark: Any, tmp_path: Path) -> None:
    """Damage before the last segment fails the query, or costs the rest of its segment."""
    damage(tmp_path)
    assert "is damaged from byte 0 on" in failure(logs(spark, tmp_path))
    assert [row[4] for row in rows(logs(spark, tmp_path, failOnDataLoss="false"))] == [0, 2]


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda spark: logs(spark, "/does/not/exist"), "cannot be read: No such file or directory"),
    (lambda spark: logs(spark, RECORDED, subscribe="none"), "there is no topic 'none' in"),
    (lambda spark: logs(spark, RECORDED, startingTimestamp="1"), "use a condition on the column"),
    (lambda spark: spark.read.format("kraftrio-log").load(), "the directory is missing"),
    (lambda spark: logs(spark, RECORDED, assign='{"plain":[5]}'), "no partition plain-5 in"),
]


@pytest.mark.parametrize(("query", "sentence"), BAD)
def test_bad_input(spark: Any, query: Callable[[Any], Any], sentence: str) -> None:
    """What is wrong is said in one sentence."""
    assert sentence in failure(query(spark))
