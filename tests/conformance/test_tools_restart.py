"""Stops and crashes: what a client was promised is there when the broker is back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.java_tools import KafkaTools

STOPS = ["terminate", "kill9"]


@pytest.fixture
def own(make_broker: Callable[..., Broker]) -> Broker:
    """A broker that the test may stop and kill."""
    return make_broker()


@pytest.fixture
def kafka(own: Broker, tools_for: Callable[[Broker], KafkaTools]) -> KafkaTools:
    """Apache's tools, pointed at the test's own broker."""
    return tools_for(own)


@pytest.mark.parametrize("stop", STOPS)
def test_acknowledged_records_and_offsets_survive(
    own: Broker, kafka: KafkaTools, unique_topic: Callable[[], str], stop: str
) -> None:
    """Topics, settings, records and committed offsets outlive a stop and a kill -9."""
    topic = kafka.create_topic(unique_topic(), partitions=1, retention_ms=90_000_000)
    before = kafka.run("kafka-topics", "--describe", "--topic", topic).lines
    cluster = kafka.run("kafka-cluster", "cluster-id").lines
    lines = [f"{i} " + "v" * 500 for i in range(1000)]
    kafka.produce(topic, lines, "--request-required-acks", "all")
    read = kafka.consume(topic, "--group", "survivor", "--from-beginning", count=400)
    assert read == lines[:400]
    getattr(own, stop)()
    own.start()
    assert kafka.run("kafka-cluster", "cluster-id").lines == cluster
    assert kafka.run("kafka-topics", "--describe", "--topic", topic).lines == before
    assert kafka.consume(topic, count=1000) == lines
    assert kafka.consume(topic, "--group", "survivor", count=600) == lines[400:]
    kafka.produce(topic, ["more"])
    shown = kafka.consume(topic, "--partition", "0", "--offset", "1000", count=1)
    assert shown == ["more"], "offsets go on where they were"


@pytest.mark.parametrize("stop", STOPS)
def test_waiting_consumer_outlives_the_broker(
    own: Broker, kafka: KafkaTools, unique_topic: Callable[[], str], stop: str
) -> None:
    """A consumer in a group goes on after the broker's restart, without loss or repetition."""
    topic = kafka.create_topic(unique_topic())
    kafka.produce(topic, ["before"])
    options = ["--topic", topic, "--group", "patient", "--from-beginning", "--max-messages", "2"]
    with kafka.start("kafka-console-consumer", *options, "--timeout-ms", "40000") as consumer:
        assert consumer.process.stdout is not None
        assert consumer.process.stdout.readline() == "before\n"
        getattr(own, stop)()
        own.start()
        kafka.produce(topic, ["after"])
        assert consumer.wait().lines == ["after"]


@pytest.mark.parametrize("stop", STOPS)
def test_group_reads_on_after_the_restart(
    own: Broker, kafka: KafkaTools, unique_topic: Callable[[], str], stop: str
) -> None:
    """What a group reads before and after is, together, each record once and in order."""
    topic = kafka.create_topic(unique_topic())
    lines = [str(i) for i in range(500)]
    kafka.produce(topic, lines[:300])
    read = kafka.consume(topic, "--group", "reader", "--from-beginning", count=120)
    getattr(own, stop)()
    own.start()
    state = kafka.run("kafka-consumer-groups", "--describe", "--group", "reader").rows("GROUP")
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in state] == [("120", "180")]
    kafka.produce(topic, lines[300:])
    read += kafka.consume(topic, "--group", "reader", count=380)
    assert read == lines


def test_deleted_topic_stays_deleted(
    own: Broker, kafka: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """A topic that was deleted does not come back, and a new one of its name is empty."""
    topic = kafka.create_topic(unique_topic())
    kafka.produce(topic, ["old"])
    kafka.run("kafka-topics", "--delete", "--topic", topic)
    own.kill9()
    own.start()
    assert topic not in kafka.run("kafka-topics", "--list").lines
    kafka.create_topic(topic)
    kafka.produce(topic, ["new"])
    assert kafka.consume(topic, count=1) == ["new"]


def test_killed_again_and_again(
    own: Broker, kafka: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """Three crashes in a row, each after more records, lose none of them."""
    topic = kafka.create_topic(unique_topic(), partitions=2)
    sent: list[str] = []
    for turn in range(3):
        lines = [f"{turn}-{i}" for i in range(200)]
        kafka.produce(topic, lines, "--batch-size", "500")
        sent += lines
        own.kill9()
        own.start()
        assert sorted(kafka.consume(topic, count=len(sent))) == sorted(sent)
