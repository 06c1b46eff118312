"""Our producer while things break: nothing acknowledged is lost or doubled, nothing hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from kraftrio import Admin, Producer, RecordMetadata
from kraftrio.clients.admin.types import NewTopic
from kraftrio.clients.producer.producer import Delivery
from kraftrio.errors import BufferExhaustedError, KafkaClientError, TimedOutError
from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients_trio.producing import (
    CuttingNetwork,
    random_budget,
    read_log,
)
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools

pytestmark = scenarios.MARKS

Names = Callable[[], str]

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 200,
}


def check_log(address: str, topic: str, delivered: dict[bytes, RecordMetadata]) -> None:
    """Every record that was acknowledged is at its offset, and nothing is there twice."""
    places: dict[tuple[int, int], bytes] = {}
    values: list[bytes] = []
    for partition in {place.partition for place in delivered.values()}:
        for found in read_log(address, topic, partition):
            assert found.record.value is not None
            places[partition, found.offset] = found.record.value
            values.append(found.record.value)
    assert len(values) == len(set(values)), "a record was written twice"
    for value, place in delivered.items():
        assert places.get((place.partition, place.offset)) == value, (value[:20], place)


async def collect(deliveries: dict[bytes, Delivery]) -> dict[bytes, RecordMetadata]:
    """Wait for all; each must have been written."""
    return {value: await delivery for value, delivery in deliveries.items()}


async def keep_sending(
    producer: Producer, topic: str, stop: trio.Event, deliveries: dict[bytes, Delivery]
) -> None:
    """Send numbered records to three partitions until the test stops it."""
    while not stop.is_set():
        number = len(deliveries)
        value = b"%08d" % number * 20
        deliveries[value] = await producer.send(topic, value, partition=number % 3)
        if number % 50 == 0:
            await trio.sleep(0.01)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_proxy_that_cuts_connections(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, seed: int
) -> None:
    """Connections end in the middle of requests and of answers, again and again."""
    topic = kafka.create_topic(unique_topic(), partitions=3)

    async def run() -> dict[bytes, RecordMetadata]:
        async with trio.open_nursery() as nursery:
            network = CuttingNetwork(nursery, random_budget(seed, 3_000, 150_000))
            deliveries: dict[bytes, Delivery] = {}
            async with Producer(bootstrap, network=network, batch_size=4000, **QUICK) as producer:
                for number in range(6000):
                    value = b"%08d" % number * 20
                    deliveries[value] = await producer.send(topic, value, partition=number % 3)
            delivered = await collect(deliveries)
            assert network.cuts > 3
            nursery.cancel_scope.cancel()
        return delivered

    delivered = trio.run(run)
    assert len(delivered) == 6000
    check_log(bootstrap, topic, delivered)
    for partition in range(3):
        offsets = [place.offset for place in delivered.values() if place.partition == partition]
        assert offsets == list(range(2000)), "in the order of sending, without a gap"


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "kill -9"])
def test_a_broker_that_goes_away_and_comes_back(
    make_broker: Callable[..., Broker], unique_topic: Names, crash: bool
) -> None:
    """Sending goes on through it. Even with one replica a crash may lose nothing acknowledged,
    since the operating system goes on."""
    broker = make_broker(num_partitions=3)
    topic = unique_topic()

    async def run() -> dict[bytes, RecordMetadata]:
        deliveries: dict[bytes, Delivery] = {}
        stop = trio.Event()
        async with Producer(broker.address, **QUICK) as producer, trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending, producer, topic, stop, deliveries)
            for _ in range(2):
                await trio.sleep(0.5)
                await trio.to_thread.run_sync(broker.kill9 if crash else broker.terminate)
                await trio.sleep(0.2)
                await trio.to_thread.run_sync(broker.start)
            await trio.sleep(0.5)
            stop.set()
        return await collect(deliveries)

    delivered = trio.run(run)
    assert len(delivered) > 500
    check_log(broker.address, topic, delivered)


def test_leaders_that_are_killed(cluster: Cluster, unique_topic: Names) -> None:
    """kill -9 of one leader after another in a cluster of three, each back before the next."""
    topic = unique_topic()

    async def run() -> dict[bytes, RecordMetadata]:
        async with Admin(cluster.bootstrap) as admin:
            new = NewTopic(topic, 3, 3, {"min.insync.replicas": "2"})
            await admin.create_topics([new])
        deliveries: dict[bytes, Delivery] = {}
        stop = trio.Event()
        async with Producer(cluster.bootstrap, **QUICK) as producer, trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending, producer, topic, stop, deliveries)
            for partition in (0, 1):
                await trio.sleep(1)
                leader = cluster.node(cluster.leader(topic, partition))
                await trio.to_thread.run_sync(leader.kill9)
                await trio.sleep(1)
                await trio.to_thread.run_sync(cluster.heal)
            await trio.sleep(0.5)
            stop.set()
        return await collect(deliveries)

    delivered = trio.run(run)
    assert len(delivered) > 500
    check_log(cluster.bootstrap, topic, delivered)


def test_a_broker_that_hangs(cluster: Cluster, unique_topic: Names) -> None:
    """A leader that is paused (SIGSTOP) is given up after request_timeout_ms, and its followers
    take over."""
    topic = unique_topic()

    async def run() -> dict[bytes, RecordMetadata]:
        async with Admin(cluster.bootstrap) as admin:
            new = NewTopic(topic, 3, 3, {"min.insync.replicas": "2"})
            await admin.create_topics([new])
        deliveries: dict[bytes, Delivery] = {}
        stop = trio.Event()
        async with (
            Producer(cluster.bootstrap, request_timeout_ms=2000, **QUICK) as producer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(keep_sending, producer, topic, stop, deliveries)
            await trio.sleep(0.5)
            leader = cluster.node(cluster.leader(topic))
            leader.pause()
            try:
                await trio.sleep(6)
                stop.set()
                with trio.fail_after(30):
                    await producer.flush()
            finally:
                leader.resume()
        return await collect(deliveries)

    delivered = trio.run(run)
    # Until it learns of them it answers as the leader that it was, without the later records.
    cluster.wait_healthy(topic)
    check_log(cluster.bootstrap, topic, delivered)


def test_a_full_buffer_and_a_slow_broker(
    make_broker: Callable[..., Broker], unique_topic: Names
) -> None:
    """While the broker hangs, memory stays bounded and `send` says so; then all goes on, and what
    was accepted is written once."""
    broker = make_broker()
    topic = unique_topic()

    async def run() -> dict[bytes, RecordMetadata]:
        async with Admin(broker.address) as admin:
            await admin.create_topics([NewTopic(topic, 3)])
        deliveries: dict[bytes, Delivery] = {}
        refused = 0
        async with Producer(
            broker.address, buffer_memory=200_000, max_block_ms=2000, **QUICK
        ) as producer:
            await (await producer.send(topic, b"first", partition=2))
            assert broker.process is not None
            broker.process.send_signal(19)  # SIGSTOP
            try:
                for number in range(3000):
                    value = b"%08d" % number * 20
                    try:
                        delivery = await producer.send(topic, value, partition=number % 3)
                    except BufferExhaustedError:
                        refused += 1
                        break
                    deliveries[value] = delivery
                assert producer.buffered_bytes <= 200_000
            finally:
                broker.process.send_signal(18)  # SIGCONT
            assert refused
            for number in range(3000, 3200):
                value = b"%08d" % number * 20
                deliveries[value] = await producer.send(topic, value, partition=number % 3)
        return await collect(deliveries)

    delivered = trio.run(run)
    check_log(broker.address, topic, delivered)


def test_errors_are_typed_when_nobody_is_there(unique_topic: Names) -> None:
    """No broker: sending ends in max_block_ms with one sentence."""

    async def run() -> KafkaClientError:
        async with Producer("127.0.0.1:1", max_block_ms=300) as producer:
            with pytest.raises(TimedOutError) as raised:
                await producer.send(unique_topic(), b"v")
            return raised.value

    error = trio.run(run)
    assert "no broker of 127.0.0.1:1 answered within 0.3 s" in str(error)
    assert error.retriable
