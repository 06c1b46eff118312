"""The tools that consume as members of a share group."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tests.conformance.java_tools import KafkaTools

_COUNT = 300
_TIMEOUT_MS = "60000"


def begin_at_the_start(kafka: KafkaTools, group: str) -> None:
    """Have a group begin with the first records."""
    kafka.run(
        "kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip


def filled(kafka: KafkaTools, topic: str) -> str:
    """Produce the numbers from 0 on."""
    kafka.produce(topic, map(str, range(_COUNT)))
    return topic


def test_what_is_released_comes_again_and_what_is_rejected_does_not(
    kafka: KafkaTools, topic: str, unique_group: Callable[[], str]
) -> None:
    group = unique_group()
    begin_at_the_start(kafka, group)
    filled(kafka, topic)
    consume = ["kafka-console-share-consumer", "--topic", topic, "--group", group]
    limit = ["--timeout-ms", _TIMEOUT_MS, "--max-messages"]
    everything = [str(number) for number in range(_COUNT)]
    released = kafka.run(*consume, *limit, str(_COUNT), "--release")
    assert released.stdout.split() == everything, released.describe()
    deliveries = ["--formatter-property", "print.delivery=true"]
    rejected = kafka.run(*consume, *limit, str(_COUNT), *deliveries, "--reject")
    found = re.findall(r"Delivery:(\d+)\t(\d+)", rejected.stdout)
    assert [number for _, number in found] == everything, rejected.describe()
    assert {count for count, _ in found} == {"2"}
    kafka.produce(topic, ["more"])
    assert kafka.run(*consume, *limit, "1").stdout.split() == ["more"]


def test_verifiable_share_consumer(
    kafka: KafkaTools, topic: str, unique_group: Callable[[], str]
) -> None:
    """Each record is consumed once, and acknowledged."""
    group = unique_group()
    begin_at_the_start(kafka, group)
    filled(kafka, topic)
    done = kafka.run(
        "kafka-verifiable-share-consumer", "--topic", topic, "--group-id", group,
        "--max-messages", str(_COUNT), "--acknowledgement-mode", "sync",
    )  # fmt: skip
    events = [json.loads(line) for line in done.lines if line.startswith("{")]
    for name in ("records_consumed", "offsets_acknowledged"):
        offsets = [
            offset
            for event in events
            if event["name"] == name
            for partition in event["partitions"]
            for offset in partition["offsets"]
        ]
        assert sorted(offsets) == list(range(_COUNT)), done.describe()


def test_share_consumer_perf(
    kafka: KafkaTools, unique_topic: Callable[[], str], unique_group: Callable[[], str]
) -> None:
    """As many records come out as went in."""
    topic = kafka.create_topic(unique_topic(), partitions=3)
    group = unique_group()
    begin_at_the_start(kafka, group)
    count = ["--num-records", "20000"]
    kafka.run(
        "kafka-producer-perf-test", "--topic", topic, *count, "--record-size", "200",
        "--throughput", "-1",
    )  # fmt: skip
    read = kafka.run(
        "kafka-share-consumer-perf-test", "--topic", topic, "--group", group, *count,
        "--timeout", _TIMEOUT_MS,
    )  # fmt: skip
    header, values = (line.split(", ") for line in read.lines[-2:])
    assert int(dict(zip(header, values, strict=False))["data.consumed.in.nMsg"]) >= 20_000
