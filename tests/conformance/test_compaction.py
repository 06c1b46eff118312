"""Compacted topics and the offsets topic: what is read, what the files hold, and crashes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import Record, build_batch, iter_headers
from tests.conformance.broker_process import KIND, Broker
from tests.conformance.cases import calls
from tests.conformance.cases.members import commit_code, commit_request, fetch_offset
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.java_tools import KafkaTools

MEBIBYTE = 1 << 20  # the smallest segment.bytes that Kafka takes
DEADLINE_S = 60.0
FAST = {
    "log_cleaner_backoff_ms": 50,
    "log_cleaner_min_cleanable_ratio": 0.01,
    "log_segment_delete_delay_ms": 0,
    "log_segment_bytes": MEBIBYTE,
    "log_retention_check_interval_ms": 500,
}
KEYED = ("--reader-property", "parse.key=true", "--reader-property", "null.marker=NULL")
SHOW_KEYS = ("--formatter-property", "print.key=true")


def log_bytes(folder: Path) -> int:
    """How many bytes of records a partition's folder holds."""
    total = 0
    for path in folder.glob("*.log*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def record_count(folder: Path) -> int:
    """How many records a partition's folder holds, at least."""
    total = 0
    for path in folder.glob("*.log"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        total += sum(header.record_count for header in iter_headers(data, allow_partial=True))
    return total


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def wait_compacted(folder: Path, below_bytes: int) -> None:
    """Wait until little is left and no compaction is under way."""
    wait_until(
        lambda: (
            log_bytes(folder) < below_bytes
            and not [*folder.glob("*.cleaned"), *folder.glob("*.swap"), *folder.glob("*.deleted")]
        ),
        f"not compacted: {folder}",
    )


def lines(turns: int, keys: int, size_bytes: int = 8000) -> list[str]:
    """Values of many turns over the same keys, `key TAB value`."""
    return [
        f"k{key}\t{turn}-{key}-".ljust(size_bytes, "x")
        for turn in range(turns)
        for key in range(keys)
    ]


def table(shown: list[str]) -> dict[str, str]:
    """What a reader ends up with: the last value of each key."""
    found = {}
    for line in shown:
        key, value = line.split("\t")
        found[key] = value[:20]
    return {key: value for key, value in found.items() if value != "null"}


def check_files(kafka: KafkaTools, folder: Path) -> None:
    """Let Apache's tool read every segment and index in a partition's folder."""
    logs = sorted(folder.glob("*.log"))
    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    names = ",".join(map(str, logs))
    shown = kafka.run("kafka-dump-log", "--deep-iteration", "--files", names)
    assert "isvalid: false" not in shown.output
    assert shown.output.count("isvalid: true") > 0
    ends = [int(end) for end in re.findall(r" lastOffset: (\d+) ", shown.stdout)]
    assert ends == sorted(set(ends))
    checked = kafka.run("kafka-dump-log", "--files", ",".join(map(str, indexes)))
    if KIND == "kraftrio":  # Apache's own index has the times of batches that are empty now
        assert "mismatch" not in checked.output.lower(), checked.output
    assert "out of order" not in checked.output.lower(), checked.output


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_latest_values_are_left(
    make_broker: Callable[..., Broker],
    tools_for: Callable[[Broker], KafkaTools],
    unique_topic: Callable[[], str],
    codec: str,
) -> None:
    """A consumer from the beginning reads the latest values, and not much more."""
    broker = make_broker(**FAST)
    kafka = tools_for(broker)
    topic = kafka.create_topic(unique_topic(), cleanup_policy="compact", delete_retention_ms=0)
    sent = [*lines(turns=30, keys=19), "k3\tNULL", "k4\tNULL"]
    if codec != "none":
        # What compresses well never fills a segment of the smallest size: roll by time.
        kafka.run("kafka-configs", "--alter", "--topic", topic, "--add-config", "segment.ms=100")
    kafka.produce(topic, sent, *KEYED, "--compression-codec", codec)
    time.sleep(0.2)
    kafka.produce(topic, lines(turns=150, keys=1), *KEYED)  # more than a segment: that one rolls
    folder = broker.data_directory / f"{topic}-0"
    # What is compressed takes little room before, too.
    wait_until(lambda: record_count(folder) < len(sent) / 2, f"not compacted: {folder}")
    wait_compacted(folder, below_bytes=2 * MEBIBYTE)
    expected = table([line.replace("NULL", "null") for line in [*sent, *lines(150, 1)]])
    assert len(expected) == 17
    shown = kafka.consume(topic, *SHOW_KEYS, timeout_ms=2000)
    assert table(shown) == expected
    assert len(shown) < len(sent) / 2
    starts = kafka.run("kafka-get-offsets", "--topic", topic, "--time", "latest").lines
    assert starts == [f"{topic}:0:{len(sent) + 150}"]
    broker.terminate()
    check_files(kafka, folder)
    broker.start()
    assert table(kafka.consume(topic, *SHOW_KEYS, timeout_ms=2000)) == expected


def test_killed_while_compacting(
    make_broker: Callable[..., Broker],
    tools_for: Callable[[Broker], KafkaTools],
    unique_topic: Callable[[], str],
) -> None:
    """kill -9 in the middle of it: nothing is lost, and the next start compacts."""
    broker = make_broker(**FAST, log_cleaner_io_max_bytes_per_second=2 * MEBIBYTE)
    kafka = tools_for(broker)
    topic = kafka.create_topic(unique_topic(), cleanup_policy="compact")
    sent = lines(turns=30, keys=20)
    kafka.produce(topic, sent, *KEYED)
    folder = broker.data_directory / f"{topic}-0"
    for _ in range(3):
        wait_until(lambda: bool([*folder.glob("*.cleaned")]), "no compaction under way")
        broker.kill9()
        broker.start()
        assert table(kafka.consume(topic, *SHOW_KEYS, timeout_ms=2000)) == table(sent)
        more = lines(turns=10, keys=20)
        kafka.produce(topic, more, *KEYED)
        sent += more
    broker.terminate()
    broker.config["log.cleaner.io.max.bytes.per.second"] = "1e12"
    broker.start()
    wait_compacted(folder, below_bytes=2 * MEBIBYTE)
    assert table(kafka.consume(topic, *SHOW_KEYS, timeout_ms=2000)) == table(sent)
    broker.kill9()
    check_files(kafka, folder)
    broker.start()


def test_committed_offsets_stay_small(
    make_broker: Callable[..., Broker], unique_name: Callable[[str], str]
) -> None:
    """Twenty thousand commits of one group leave a small folder, and the last of them."""
    broker = make_broker(
        **FAST, offsets_topic_segment_bytes=MEBIBYTE, offsets_topic_num_partitions=1
    )
    topic, group = unique_name("topic"), unique_name("group")
    metadata = "m" * 400
    folder = broker.data_directory / "__consumer_offsets-0"
    with RawClient(broker.address) as client:
        calls.create_topic(client, topic)
        calls.wait_for_coordinator(client, group)
        wait_until(
            lambda: commit_code(client, commit_request(group, topic, 0)) == ErrorCode.NONE,
            "the coordinator is not ready",
        )
        for start in range(1, 20_001, 200):
            requests = [
                commit_request(group, topic, offset, metadata=metadata)
                for offset in range(start, start + 200)
            ]
            ids = [client.send(request, 9) for request in requests]
            for request, correlation_id in zip(requests, ids, strict=True):
                response = client.receive(request, 9, correlation_id)
                assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        wait_compacted(folder, below_bytes=2 * MEBIBYTE)
    for stop in (broker.terminate, broker.kill9):
        stop()
        broker.start()
        with RawClient(broker.address) as client:
            calls.wait_for_coordinator(client, group)
            wait_until(
                lambda: commit_code(client, commit_request("other", topic, 1)) == ErrorCode.NONE,
                "the coordinator is not ready",
            )
            found = fetch_offset(client, group, topic)
            assert (found.committed_offset, found.metadata) == (20_000, metadata)
    assert log_bytes(folder) < 2 * MEBIBYTE


def test_sequence_of_a_producer_survives_compaction(
    make_broker: Callable[..., Broker], unique_topic: Callable[[], str]
) -> None:
    """All of a producer's records are compacted away; its next sequence is still known."""
    broker = make_broker(**FAST)
    topic = unique_topic()
    value = bytes(100_000)

    def batch(key: bytes, producer_id: int = -1, sequence: int = -1) -> bytearray:
        return build_batch(
            [Record(0, calls.now_ms(), key, value)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )

    folder = broker.data_directory / f"{topic}-0"
    with RawClient(broker.address) as client:
        calls.create_topic(client, topic, cleanup_policy="compact")
        producer_id = calls.new_producer_id(client)
        for sequence in range(15):
            answer = calls.produce(client, topic, batch(b"k", producer_id, sequence))
            assert answer.error_code == ErrorCode.NONE
        for _ in range(25):
            assert calls.produce(client, topic, batch(b"k")).error_code == ErrorCode.NONE
        wait_compacted(folder, below_bytes=12 * len(value))
    broker.kill9()
    for path in folder.glob("*.snapshot"):
        path.unlink()  # so that the log alone has it
    broker.start()
    with RawClient(broker.address) as client:
        calls.wait_for_leaders(client, topic)
        answer = calls.produce(client, topic, batch(b"k", producer_id, 16))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        answer = calls.produce(client, topic, batch(b"k", producer_id, 14))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 14)  # a repetition
        answer = calls.produce(client, topic, batch(b"k", producer_id, 15))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 40)
