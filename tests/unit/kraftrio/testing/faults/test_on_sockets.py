"""Faults on demand of brokers with real sockets: requests, links, nodes, disks, clocks, moves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftrio import Consumer, Producer
from kraftrio.errors import KafkaStorageError, NotEnoughReplicasError
from kraftrio.testing import KafkaBroker, KafkaCluster

pytestmark = pytest.mark.kafka(scope="module")

_QUICK_MS = 20
_QUICK_TO_NOTICE = {
    "replica.lag.time.max.ms": 1000,
    "broker.session.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 200,
}


def _values(cluster: KafkaCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders")]


def _producer(cluster: KafkaCluster, **settings: Any) -> Producer[bytes, bytes]:
    settings = {"retry_backoff_ms": _QUICK_MS, "reconnect_backoff_ms": _QUICK_MS, **settings}
    return Producer(cluster.bootstrap_servers, **settings)


def _leader(cluster: KafkaCluster) -> int:
    return cluster.topics["orders"].partitions[0].leader_id


# -- requests -------------------------------------------------------------------------------------


async def test_a_request_is_refused(kafka_broker: KafkaBroker) -> None:
    """It is not done; what may be tried again the client tries again."""
    kafka_broker.create_topic("orders", 1)
    kafka_broker.refuse("Produce", "NOT_ENOUGH_REPLICAS")
    kafka_broker.produce("orders", "of the test itself")
    async with _producer(kafka_broker, retries=0) as producer:
        with pytest.raises(NotEnoughReplicasError):
            await producer.send_and_wait("orders", b"one")
        await producer.send_and_wait("orders", b"two")
    async with _producer(kafka_broker) as producer:
        kafka_broker.refuse("Produce", "NOT_ENOUGH_REPLICAS")
        await producer.send_and_wait("orders", b"three")
    assert _values(kafka_broker) == [b"of the test itself", b"two", b"three"]


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_an_answer_is_lost(kafka_broker: KafkaBroker, is_idempotent: bool) -> None:
    """It is done; a client that sends it again writes once, or twice without idempotence."""
    kafka_broker.create_topic("orders", 1)
    async with _producer(kafka_broker, enable_idempotence=is_idempotent) as producer:
        kafka_broker.lose_answer("Produce")
        await producer.send_and_wait("orders", b"one")
        await producer.send_and_wait("orders", b"two")
    once, twice = [b"one", b"two"], [b"one", b"one", b"two"]
    assert _values(kafka_broker) == (once if is_idempotent else twice)


async def test_a_request_comes_twice(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders", 1)
    async with _producer(kafka_broker, enable_idempotence=False) as producer:
        kafka_broker.duplicate("Produce", after_s=0.01)
        await producer.send_and_wait("orders", b"one")
        await kafka_broker.partition("orders").high_watermark(2)
    assert _values(kafka_broker) == [b"one", b"one"]


async def test_a_request_is_late(kafka_broker: KafkaBroker) -> None:
    """With all that comes after it on its connection; other clients are let be."""
    kafka_broker.create_topic("orders", 1)
    kafka_broker.delay("Produce", seconds=0.5, machine="late one")
    async with (
        _producer(kafka_broker, client_id="late one") as late,
        _producer(kafka_broker, client_id="other") as other,
    ):
        await late.partitions_for("orders")
        began_s = time.monotonic()
        delivery = await late.send("orders", b"late")
        await other.send_and_wait("orders", b"other")
        assert time.monotonic() - began_s < 0.5
        await delivery
        assert time.monotonic() - began_s >= 0.5
    assert _values(kafka_broker) == [b"other", b"late"]


async def test_what_makes_no_sense(kafka_broker: KafkaBroker) -> None:
    """Names, numbers and moments that are wrong: one sentence each."""
    with pytest.raises(ValueError, match="machine='n1' is no client of the program's: give its"):
        kafka_broker.refuse("Produce", "NOT_COORDINATOR", machine="n1")
    with pytest.raises(ValueError, match="seconds, 0 or more, but is -1"):
        kafka_broker.delay("Produce", seconds=-1)
    with pytest.raises(ValueError, match="room_bytes must not be negative, but is -1"):
        kafka_broker.node(1).fill_disk(-1)
    with pytest.raises(TypeError, match="seconds must be a number of seconds, not None"):
        kafka_broker.node(1).move_clock(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no request 'produce'; do you mean 'Produce'"):
        kafka_broker.refuse("produce", "NOT_COORDINATOR")
    with pytest.raises(ValueError, match="there is no machine 'n7': there are n1, program"):
        kafka_broker.links.cut("program", "n7")
    with pytest.raises(ValueError, match="comes by no node: name one, such as n1"):
        kafka_broker.links.cut("program", "program")
    with pytest.raises(ValueError, match=r"one direction is heal\(source, target\)"):
        kafka_broker.links.heal("program")
    with pytest.raises(ValueError, match=r"node 1 is not paused: pause\(\) it first"):
        kafka_broker.node(1).resume()


# -- links and nodes ------------------------------------------------------------------------------


async def test_one_direction_is_healed(kafka_broker: KafkaBroker) -> None:
    """A client waits for its answer; the test itself sees that the request has come."""
    kafka_broker.create_topic("orders", 1)
    links = kafka_broker.links
    async with _producer(kafka_broker) as producer:
        await producer.send_and_wait("orders", b"one")
        links.cut("program", "n1")
        links.cut("n1", "program")
        delivery = await producer.send("orders", b"two")
        await trio.sleep(0.1)
        assert len(_values(kafka_broker)) == 1
        links.heal("program", "n1")
        await kafka_broker.partition("orders").high_watermark(2)
        assert not delivery.done
        links.heal("n1", "program")
        await delivery


@pytest.mark.kafka(brokers=3, config=_QUICK_TO_NOTICE)
def test_a_follower_is_cut_off(kafka_cluster: KafkaCluster) -> None:
    """It leaves the ISR, and is in sync again once its links are healed."""
    kafka_cluster.create_topic("orders", 1)
    kafka_cluster.healthy().wait()
    leader = _leader(kafka_cluster)
    follower = next(number for number in (1, 2, 3) if number != leader)
    kafka_cluster.links.isolate(f"n{follower}")
    deadline_s = time.monotonic() + 30
    while len(kafka_cluster.topics["orders"].partitions[0].isr) == 3:
        assert time.monotonic() < deadline_s
    kafka_cluster.produce("orders", "one")
    kafka_cluster.links.heal()
    kafka_cluster.healthy().wait()


@pytest.mark.kafka(brokers=3, config=_QUICK_TO_NOTICE)
def test_a_leader_stands_still(kafka_cluster: KafkaCluster) -> None:
    """Another one leads meanwhile; nothing that was acknowledged is lost when it goes on."""
    kafka_cluster.produce("orders", "one")
    kafka_cluster.healthy().wait()
    leader = _leader(kafka_cluster)
    node = kafka_cluster.node(leader)
    node.pause()
    with pytest.raises(ValueError, match=f"node {leader} cannot be stopped, it is paused"):
        node.stop()
    with pytest.raises(ValueError, match=f"node {leader} cannot be paused, it is paused"):
        node.pause()
    deadline_s = time.monotonic() + 30
    while _leader(kafka_cluster) == leader:
        assert time.monotonic() < deadline_s
    kafka_cluster.produce("orders", "two")
    node.resume()
    kafka_cluster.healthy().wait()
    assert _values(kafka_cluster) == [b"one", b"two"]


def test_one_that_stands_still_is_killed() -> None:
    with KafkaBroker() as broker:
        broker.produce("orders", "one")
        broker.node(1).pause()
        broker.node(1).kill()
        broker.node(1).start()
        assert _values(broker) == [b"one"]
        broker.node(1).pause()


# -- disks and clocks -----------------------------------------------------------------------------


@pytest.mark.kafka(scope="function")
async def test_the_only_disk_is_full(kafka_broker: KafkaBroker) -> None:
    """The program gets an error; a node that ends of it does not fail the test."""
    kafka_broker.create_topic("orders", 1)
    node = kafka_broker.node(1)
    node.fill_disk()
    async with _producer(kafka_broker, retries=0) as producer:
        with pytest.raises(KafkaStorageError):
            await producer.send_and_wait("orders", b"one")
    node.free_disk()
    if node.is_running:
        node.kill()
    node.start()
    kafka_broker.produce("orders", "two")
    assert _values(kafka_broker) == [b"two"]
    assert not kafka_broker.life.failures


@pytest.mark.kafka(scope="function", brokers=3)
def test_a_disk_fails(kafka_cluster: KafkaCluster) -> None:
    """Its node ends; mended and started again it has what it had."""
    kafka_cluster.produce("orders", "one")
    kafka_cluster.healthy().wait()
    leader = _leader(kafka_cluster)
    node = kafka_cluster.node(leader)
    node.fail_disk()
    kafka_cluster.produce("orders", "two")
    assert _leader(kafka_cluster) != leader
    assert not node.is_running
    node.heal_disk()
    node.start()
    kafka_cluster.healthy().wait()
    kafka_cluster.move_leader("orders", to=leader)
    assert _values(kafka_cluster) == [b"one", b"two"]


def test_what_was_not_synced_is_lost() -> None:
    with KafkaBroker(config={"log.flush.interval.messages": 1}) as broker:
        broker.produce("orders", *map(str, range(50)))
        broker.node(1).cut_power()
        broker.node(1).start()
        assert len(_values(broker)) == 50


def test_a_disk_of_files(tmp_path: Path) -> None:
    """It is the machine's, and lets nobody break it."""
    with KafkaBroker(folder=tmp_path) as broker:
        with pytest.raises(ValueError, match="make the cluster with its disks in memory"):
            broker.node(1).fill_disk()
        with pytest.raises(ValueError, match="cannot lose what was not synced"):
            broker.node(1).cut_power()
        assert broker.life.is_whole


@pytest.mark.kafka(scope="function", config={"log.retention.check.interval.ms": 50})
def test_a_week_passes(kafka_broker: KafkaBroker) -> None:
    """Retention goes by the brokers' clocks."""
    kafka_broker.create_topic("orders", 1, config={"segment.bytes": 1048576})
    kafka_broker.produce("orders", "one")
    kafka_broker.move_clocks(8 * 86_400)
    deadline_s = time.monotonic() + 20
    while _values(kafka_broker):
        assert time.monotonic() < deadline_s


# -- moves ----------------------------------------------------------------------------------------


@pytest.mark.kafka(brokers=3, config=_QUICK_TO_NOTICE)
async def test_leaders_and_members_move(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.produce("orders", "one", "two")
    async with Consumer(
        kafka_cluster.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        auto_commit_interval_ms=50,
    ) as consumer:
        await consumer.subscribe(["orders"])
        read: list[bytes | None] = []

        async def poll() -> None:
            while True:
                read.extend(record.value for record in await consumer.poll())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await kafka_cluster.group("billing").stable(members=1)
            await kafka_cluster.healthy()
            before = _leader(kafka_cluster)
            assert await trio.to_thread.run_sync(kafka_cluster.move_leader, "orders") != before

            def move() -> int:
                return kafka_cluster.move_coordinator(group="billing")

            moved_to = await trio.to_thread.run_sync(move)
            assert 1 <= moved_to <= 3
            await trio.to_thread.run_sync(kafka_cluster.rebalance, "billing")
            await kafka_cluster.topic("orders").drained(by="billing", timeout_s=30)
            assert len(read) >= 2
            before_count = len(read)
            await trio.to_thread.run_sync(kafka_cluster.deliver_again, "billing")
            with trio.fail_after(30):
                while len(read) == before_count:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert read[-1] == b"two"
