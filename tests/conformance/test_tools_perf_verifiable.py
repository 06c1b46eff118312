"""The tools that produce and consume in bulk and count what they see."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.broker_process import GROUP_PROTOCOLS
from tests.conformance.java_tools import Completed, KafkaTools


def events(done: Completed, name: str) -> list[dict[str, Any]]:
    """Return the events of one name that a verifiable client printed."""
    parsed = [json.loads(line) for line in done.lines if line.startswith("{")]
    return [event for event in parsed if event["name"] == name]


def test_producer_and_consumer_perf(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """20,000 records go in and the same number comes out."""
    topic = kafka.create_topic(unique_topic(), partitions=3)
    count = ["--num-records", "20000"]
    sent = kafka.run("kafka-producer-perf-test", "--topic", topic, *count, "--record-size", "200",
                     "--throughput", "-1", "--command-property", "acks=all")  # fmt: skip
    assert re.match(r"20000 records sent, [\d.]+ records/sec", sent.lines[-1]), sent.describe()
    ends = kafka.run("kafka-get-offsets", "--topic", topic).lines
    assert sum(int(line.split(":")[2]) for line in ends) == 20_000
    read = kafka.run("kafka-consumer-perf-test", "--topic", topic, *count, "--timeout", "20000")
    header, values = (line.split(", ") for line in read.lines[-2:])
    assert dict(zip(header, values, strict=True))["data.consumed.in.nMsg"] == "20000"


def test_verifiable_producer_and_consumer(
    kafka: KafkaTools, topic: str, unique_group: Callable[[], str]
) -> None:
    """Each record is acknowledged with its offset, consumed once and committed."""
    sent = kafka.run("kafka-verifiable-producer", "--topic", topic, "--max-messages", "1000",
                     "--acks", "-1")  # fmt: skip
    acked = events(sent, "producer_send_success")
    assert [event["offset"] for event in acked] == list(range(1000))
    assert [event["value"] for event in acked] == [str(i) for i in range(1000)]
    (summary,) = events(sent, "tool_data")
    assert (summary["sent"], summary["acked"]) == (1000, 1000)
    group = unique_group()
    options = ["--topic", topic, "--group-id", group, "--reset-policy", "earliest"]
    read = kafka.run("kafka-verifiable-consumer", *options, "--max-messages", "1000")
    consumed = [part for event in events(read, "records_consumed") for part in event["partitions"]]
    assert sum(part["count"] for part in consumed) == 1000
    assert (consumed[0]["minOffset"], consumed[-1]["maxOffset"]) == (0, 999)
    committed = events(read, "offsets_committed")
    assert all(event["success"] for event in committed)
    assert committed[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 1000}]


def test_what_is_consumed_is_what_was_acknowledged(
    kafka: KafkaTools, unique_topic: Callable[[], str], unique_group: Callable[[], str]
) -> None:
    """Key, value, partition and offset of every record read are those acknowledged."""
    topic = kafka.create_topic(unique_topic(), partitions=3)
    count = ["--max-messages", "3000"]
    sent = kafka.run("kafka-verifiable-producer", "--topic", topic, *count, "--acks", "-1",
                     "--repeating-keys", "17", "--value-prefix", "5")  # fmt: skip
    options = ["--topic", topic, "--group-id", unique_group(), "--reset-policy", "earliest"]
    read = kafka.run("kafka-verifiable-consumer", *options, *count, "--verbose")

    def records(done: Completed, name: str) -> list[tuple[Any, ...]]:
        fields = ("partition", "offset", "key", "value")
        return sorted(tuple(event[field] for field in fields) for event in events(done, name))

    acked = records(sent, "producer_send_success")
    assert len(acked) == 3000
    assert {value for *_, value in acked} == {f"5.{i}" for i in range(3000)}
    assert records(read, "record_data") == acked


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_verifiable_consumers_share_a_topic(
    kafka: KafkaTools,
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
    protocol: str,
) -> None:
    """Two members of a group consume every record once between them."""
    topic = kafka.create_topic(unique_topic(), partitions=4)
    kafka.run("kafka-producer-perf-test", "--topic", topic, "--num-records", "2000",
              "--record-size", "10", "--throughput", "-1",
              "--command-property", "batch.size=200")  # fmt: skip
    options = ["--topic", topic, "--group-id", unique_group(), "--reset-policy", "earliest"]
    options += ["--group-protocol", protocol, "--max-messages", "1000"]
    with (
        kafka.start("kafka-verifiable-consumer", *options) as first,
        kafka.start("kafka-verifiable-consumer", *options) as second,
    ):
        done = [first.wait(), second.wait()]
    parts = [
        part
        for completed in done
        for event in events(completed, "records_consumed")
        for part in event["partitions"]
    ]
    seen = [
        (part["partition"], offset)
        for part in parts
        for offset in range(part["minOffset"], part["maxOffset"] + 1)
    ]
    assert len(seen) == len(set(seen)) == 2000


def test_consumer_perf_counts_and_commits(
    kafka: KafkaTools, unique_topic: Callable[[], str], unique_group: Callable[[], str]
) -> None:
    """The tool counts megabytes and records as they were sent, and commits for its group."""
    topic = kafka.create_topic(unique_topic(), partitions=2)
    kafka.run("kafka-producer-perf-test", "--topic", topic, "--num-records", "5000",
              "--record-size", "1000", "--throughput", "-1",
              "--command-property", "compression.type=zstd")  # fmt: skip
    group = unique_group()
    options = ["--topic", topic, "--group", group, "--num-records", "5000", "--timeout", "20000"]
    read = kafka.run("kafka-consumer-perf-test", *options)
    header, values = (line.split(", ") for line in read.lines[-2:])
    totals = dict(zip(header, values, strict=True))
    assert totals["data.consumed.in.nMsg"] == "5000"
    assert float(totals["data.consumed.in.MB"]) == pytest.approx(5000 * 1000 / 2**20, rel=0.001)
    rows = kafka.run("kafka-consumer-groups", "--describe", "--group", group).rows("GROUP")
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 5000
    assert [row["LAG"] for row in rows] == ["0", "0"]


def test_replica_verification(kafka: KafkaTools, topic: str) -> None:
    """Apache's own check of replicas, which reads as a replica does, finds no difference."""
    kafka.produce(topic, [str(i) for i in range(500)], "--batch-size", "500")
    options = ["--broker-list", kafka.address, "--topics-include", topic, "--time", "-2"]
    wanted = f"max lag is 0 for partition {topic}-0 at offset 500 among 1 partitions"
    with kafka.start("kafka-replica-verification", *options, "--report-interval-ms", "200") as tool:
        deadline = time.monotonic() + 20
        said = ""
        assert tool.process.stdout is not None
        while wanted not in said:
            assert time.monotonic() < deadline, said
            line = tool.process.stdout.readline()
            assert line, said
            said += line
        assert "different" not in said


def test_end_to_end_latency(kafka: KafkaTools, topic: str) -> None:
    """One record at a time goes in and out again, acknowledged by one replica and by all."""
    for acks in ("1", "all"):
        options = ["--num-records", "50", "--producer-acks", acks, "--record-size", "100"]
        done = kafka.run("kafka-e2e-latency", "--topic", topic, *options)
        latency = re.search(r"Avg latency: ([\d.]+) ms", done.stdout)
        assert latency, done.describe()
        assert float(latency.group(1)) < 500


def test_describe_producers(kafka: KafkaTools, topic: str) -> None:
    """A partition's producers are shown with their last sequence and no open transaction."""
    kafka.produce(topic, [str(i) for i in range(10)])
    chosen = ["--topic", topic, "--partition", "0"]
    (row,) = kafka.run("kafka-transactions", "describe-producers", *chosen).rows("ProducerId")
    assert row["ProducerEpoch"] == "0"
    assert row["LastSequence"] == "9"
    assert row["CurrentTransactionStartOffset"] == "None"
