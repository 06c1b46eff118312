"""Consumers read from the replica in their rack (KIP-392), with unmodified clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.clients.install import python_client
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TOPIC = "near"
VALUES = [f"value-{number:04}" for number in range(500)]


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each in a rack of its own; leaders name replicas by rack."""

    def rack(node_id: int, _: Mapping[int, int]) -> dict[str, str]:
        return {"broker.rack": f"rack-{node_id}", "replica.selector.class": SELECTOR}

    with Cluster(tmp_path_factory.mktemp("racks"), node_overrides=rack) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def filled(racks: Cluster, tool_runner: Any) -> KafkaTools:
    """A topic led by broker 1 and followed by 2 and 3, with records."""
    kafka = KafkaTools(racks.bootstrap, tool_runner)
    kafka.run("kafka-topics", "--create", "--topic", TOPIC, "--replica-assignment", "1:2:3")
    racks.wait_healthy(TOPIC)
    kafka.produce(TOPIC, VALUES, "--request-required-acks", "all")
    return kafka


def test_the_java_consumer_with_a_rack(filled: KafkaTools, tmp_path: Path) -> None:
    """It gets every record, and what is produced later."""
    settings = tmp_path / "consumer.properties"
    settings.write_text("client.rack=rack-2\n")
    option = ("--command-config", str(settings))
    assert filled.consume(TOPIC, *option, count=len(VALUES)) == VALUES


def test_librdkafka_reads_from_the_broker_of_its_rack(racks: Cluster, filled: KafkaTools) -> None:
    """By its own statistics: only broker 3 answers fetches for long."""
    fetches: dict[int, int] = {}

    def note(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] > 0:
                fetches[broker["nodeid"]] = broker.get("req", {}).get("Fetch", 0)

    library = python_client("confluent_kafka")
    consumer = library.Consumer(
        {
            "bootstrap.servers": racks.bootstrap,
            "group.id": "near",
            "client.rack": "rack-3",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "fetch.wait.max.ms": 50,
            "stats_cb": note,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        seen = poll(consumer, len(VALUES))
        assert seen == VALUES
        before = dict(fetches)
        poll_until(consumer, lambda: fetches.get(3, 0) > before.get(3, 0) + 10)
        assert fetches[1] - before.get(1, 0) <= 2, "the leader is asked no more"
    finally:
        consumer.close()


def poll(consumer: Any, count: int) -> list[str]:
    """Consume this many records."""
    values: list[str] = []
    poll_until(
        consumer, lambda: len(values) >= count, lambda message: values.append(message.decode())
    )
    return values


def poll_until(
    consumer: Any, is_over: Callable[[], bool], take: Callable[[bytes], None] = lambda _: None
) -> None:
    """Poll until a condition holds, at most for 30 seconds."""
    deadline = time.monotonic() + 30
    while not is_over():
        assert time.monotonic() < deadline
        for message in consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            take(message.value())
