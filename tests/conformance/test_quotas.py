"""Clients with a quota of bytes are held to it, and others do not notice.

Kafka measures over ten full windows and the current one, so a client uses up ten seconds' worth at
once and then gets little until these windows are over, again and again. So the rate is measured
over three times the eleven windows, but for the end of the last ones: a client that is a little
late would be counted with what it gets at once after them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import end_offset
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.clients.install import python_client
from tests.conformance.java_tools import KafkaTools, ToolRunner

RATE = 1_000_000
RECORD_BYTES = 1000
MEASURED_S = 3 * 11.0 - 2.0
LEAST_WAIT_MS = 250.0
NEIGHBOUR_PAUSE_S = 0.01  # more would only cost the machine


@pytest.fixture
def quota_broker(make_broker: Callable[..., Broker]) -> Broker:
    return make_broker()


@pytest.fixture
def tools(quota_broker: Broker, tool_runner: ToolRunner) -> KafkaTools:
    return KafkaTools(quota_broker.address, tool_runner)


@pytest.fixture
def neighbour(quota_broker: Broker, tools: KafkaTools) -> Iterator[list[float]]:
    """A producer without a quota that sends again and again; how long each record took, in ms."""
    topic = tools.create_topic("neighbour")
    producer = producer_of(
        {"bootstrap.servers": quota_broker.address, "client.id": "free", "linger.ms": 0}
    )
    taken: list[float] = []
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(NEIGHBOUR_PAUSE_S):
            began = time.monotonic()
            producer.produce(topic, b"x" * RECORD_BYTES)
            producer.flush(10)
            taken.append((time.monotonic() - began) * 1000)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()


def producer_of(settings: dict[str, object]) -> Any:
    return python_client("confluent_kafka").Producer(settings)


def limit(tools: KafkaTools, client_id: str, key: str) -> None:
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    tools.run("kafka-configs", "--alter", *entity, "--add-config", f"{key}={RATE}")


def check_unharmed(taken: list[float]) -> None:
    """Nine of ten sends are quick, though two clients next to them wait for seconds."""
    assert len(taken) > 300
    assert sorted(taken)[len(taken) * 9 // 10] < LEAST_WAIT_MS


def bytes_in(address: str, topic: str) -> int:
    with RawClient(address) as client:
        return end_offset(client, topic) * RECORD_BYTES


def wait_for_first(address: str, topic: str) -> float:
    deadline = time.monotonic() + 30
    while not bytes_in(address, topic):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return time.monotonic()


def rate_of_appends(address: str, topic: str) -> float:
    """Bytes a second of records that have come, from the first one on."""
    began = wait_for_first(address, topic)
    time.sleep(MEASURED_S)  # what is measured
    return bytes_in(address, topic) / (time.monotonic() - began)


def test_producers_are_held_to_their_rate(
    quota_broker: Broker, tools: KafkaTools, neighbour: list[float]
) -> None:
    """Java's and librdkafka's, at the same time."""
    address = quota_broker.address
    topics = [tools.create_topic(name) for name in ("java", "librdkafka")]
    for client_id in topics:
        limit(tools, client_id, "producer_byte_rate")
    ended = threading.Event()

    def produce() -> None:
        producer = producer_of(
            {
                "bootstrap.servers": address,
                "client.id": "librdkafka",
                "batch.size": 16_384,  # as Java's; larger ones go further beyond the rate
                "queue.buffering.max.messages": 2000,
                "delivery.timeout.ms": 600_000,
                "request.timeout.ms": 60_000,
            }
        )
        while not ended.is_set():
            try:
                producer.produce("librdkafka", b"x" * RECORD_BYTES)
                producer.poll(0)
            except BufferError:
                producer.poll(0.05)
        producer.purge()

    thread = threading.Thread(target=produce)
    thread.start()
    java = tools.start(
        "kafka-producer-perf-test",
        *("--topic", "java", "--num-records", "100000000", "--record-size", str(RECORD_BYTES)),
        *("--throughput", "-1"),
        *("--command-property", "client.id=java", "request.timeout.ms=60000"),
    )
    try:
        with java, ThreadPoolExecutor() as pool:
            rates = list(pool.map(lambda topic: rate_of_appends(address, topic), topics))
    finally:
        ended.set()
        thread.join()
    assert rates == [pytest.approx(RATE, rel=0.1)] * 2
    check_unharmed(neighbour)


def test_consumers_are_held_to_their_rate(
    quota_broker: Broker, tools: KafkaTools, neighbour: list[float]
) -> None:
    """Java's and librdkafka's, at the same time."""
    address = quota_broker.address
    topic = tools.create_topic("records")
    filler = producer_of({"bootstrap.servers": address, "queue.buffering.max.messages": 100_000})
    for _ in range(50_000):
        filler.produce(topic, b"x" * RECORD_BYTES)
    filler.flush(60)
    for client_id in ("java", "librdkafka"):
        limit(tools, client_id, "consumer_byte_rate")
    with ThreadPoolExecutor() as pool:
        java = pool.submit(consume_with_java, tools, topic)
        rates = [consume_with_librdkafka(address, topic), java.result()]
    assert rates == [pytest.approx(RATE, rel=0.1)] * 2
    check_unharmed(neighbour)


def consume_with_librdkafka(address: str, topic: str) -> float:
    consumer = python_client("confluent_kafka").Consumer(
        {
            "bootstrap.servers": address,
            "client.id": "librdkafka",
            "group.id": "librdkafka",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 65_536,
        }
    )
    consumer.subscribe([topic])
    began, size = 0.0, 0
    while not began or time.monotonic() - began < MEASURED_S:
        for message in consumer.consume(1000, 0.1):
            began = began or time.monotonic()
            size += len(message.value())
    consumer.close()
    return size / MEASURED_S


def consume_with_java(tools: KafkaTools, topic: str) -> float:
    """Return the rate over the measured time, by what the tool prints each second."""
    done = tools.run(
        "kafka-consumer-perf-test",
        *("--topic", topic, "--num-records", "33000", "--fetch-size", "65536"),
        *("--timeout", "30000", "--show-detailed-stats", "--reporting-interval", "1000"),
        *("--command-property", "client.id=java"),
        timeout_s=120,
    )
    rows = [line.split(", ") for line in done.lines if line[:2] == "20"]
    times = [time.mktime(time.strptime(row[0][:19], "%Y-%m-%d %H:%M:%S")) for row in rows]
    sizes = [float(row[2]) * (1 << 20) for row in rows]
    began = times[0]
    size = max(size for at, size in zip(times, sizes, strict=True) if at - began < MEASURED_S)
    return size / MEASURED_S
