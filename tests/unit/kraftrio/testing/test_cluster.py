"""Brokers for tests: what a test puts in and finds, resets, and what they leave behind."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import trio

from kraftrio import Consumer, Producer, TopicPartition
from kraftrio.errors import TopicExistsError, UnknownTopicOrPartitionError
from kraftrio.testing import KafkaBroker, KafkaCluster, WaitTimedOut

pytestmark = pytest.mark.kafka(scope="module")


def test_what_is_put_in_is_found(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders", partitions=2, config={"cleanup.policy": "compact"})
    sent = kafka_broker.produce("orders", "one", b"two", key="k", partition=1, timestamp_ms=5)
    kafka_broker.produce("orders", None, key=b"gone", headers=[("h", b"v")], partition=0)
    assert [(record.partition, record.offset) for record in sent] == [(1, 0), (1, 1)]
    tombstone, *others = kafka_broker.records("orders")
    assert (tombstone.key, tombstone.value) == (b"gone", None)
    assert tombstone.headers == (("h", b"v"),)
    assert [(r.key, r.value, r.timestamp) for r in others] == [(b"k", b"one", 5), (b"k", b"two", 5)]
    assert kafka_broker.records("orders", 1) == others
    assert sorted(kafka_broker.topics["orders"].partitions) == [0, 1]


def test_a_topic_that_is_not_there(kafka_broker: KafkaBroker) -> None:
    """It is made when a test writes to it, and complained of when it reads."""
    with pytest.raises(UnknownTopicOrPartitionError):
        kafka_broker.records("orders")
    kafka_broker.produce("orders", "one")
    with pytest.raises(ValueError, match="topic orders has no partition 7"):
        kafka_broker.records("orders", 7)
    with pytest.raises(TopicExistsError):
        kafka_broker.create_topic("orders")


async def test_groups_from_a_trio_test(kafka_broker: KafkaBroker) -> None:
    """Members and offsets of a consumer that runs on the test's own loop."""
    kafka_broker.produce("orders", "one", "two")
    async with Consumer(
        kafka_broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        await consumer.subscribe(["orders"])
        with trio.fail_after(10):
            await consumer.poll()
        await consumer.commit()
        group = kafka_broker.groups["billing"]
        assert (group.state, len(group.members)) == ("Stable", 1)
        assert kafka_broker.committed("billing") == {TopicPartition("orders", 0): 2}


def test_from_an_asyncio_program(kafka_broker: KafkaBroker) -> None:
    async def program() -> list[bytes | None]:
        kafka_broker.produce("orders", "one")
        await kafka_broker.partition("orders").high_watermark(1)
        return [record.value for record in kafka_broker.records("orders")]

    assert asyncio.run(program()) == [b"one"]


async def test_waiting_from_trio_and_plain_code(kafka_broker: KafkaBroker) -> None:
    """Both say what was seen; forgetting to wait is a warning."""
    kafka_broker.produce("orders", "one", "two")
    async with Consumer(
        kafka_broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        await consumer.subscribe(["orders"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.poll)
            seen = await kafka_broker.group("billing").stable(members=1)
        assert seen.startswith("Stable with 1 members: ")
        await consumer.commit()
        await kafka_broker.topic("orders").drained(by="billing")
    assert kafka_broker.group("billing").empty().wait() == "Empty with 0 members: nobody"
    assert kafka_broker.healthy().wait() == "brokers 1 of 1"
    with pytest.raises(WaitTimedOut, match=r"orders-0 has high watermark 2, leader 1, ISR 1"):
        kafka_broker.partition("orders").high_watermark(3, timeout_s=1).wait()
    with pytest.warns(RuntimeWarning, match="nobody waited until the cluster is healthy"):
        kafka_broker.healthy()


async def test_open_transactions_are_told_apart(kafka_broker: KafkaBroker) -> None:
    async with Producer(kafka_broker.bootstrap_servers, transactional_id="t") as producer:
        async with producer.transaction():
            await producer.send("orders", b"committed")
        async with producer.transaction():
            await (await producer.send("orders", b"open"))
            both = [record.value for record in kafka_broker.records("orders")]
            committed = kafka_broker.records("orders", read_committed=True)
    assert both == [b"committed", b"open"]
    assert [record.value for record in committed] == [b"committed"]


async def test_reset_leaves_nothing(kafka_broker: KafkaBroker) -> None:
    """A client that stays connected finds an empty broker; the same names can be used again."""
    async with Producer(kafka_broker.bootstrap_servers, transactional_id="t") as producer:
        async with producer.transaction():
            await producer.send("orders", b"one")
        kafka_broker.reset()
        assert kafka_broker.topics == kafka_broker.groups == {}
    kafka_broker.produce("orders", "two")
    assert [record.value for record in kafka_broker.records("orders")] == [b"two"]


async def test_the_story(kafka_broker: KafkaBroker) -> None:
    """Who asked for what, by client ids, what nodes logged, and what was done to them."""
    kafka_broker.create_topic("orders", 1)
    kafka_broker.lose_answer("Produce")
    servers = kafka_broker.bootstrap_servers
    async with (
        Producer(servers, client_id="web shop", reconnect_backoff_ms=20) as producer,
        Consumer(
            servers, client_id="biller", group_id="billing", auto_offset_reset="earliest"
        ) as consumer,
    ):
        await producer.send_and_wait("orders", b"one")
        await consumer.subscribe("orders")
        (record,) = await consumer.poll(timeout_ms=10_000)
        await consumer.commit()
    lines = [re.sub(r" after \d+ ms", "", line[14:]) for line in kafka_broker.story().splitlines()]
    story = "\n".join(" ".join(line.split()) for line in lines)
    for line in (
        "n1 info cluster: topic created topic=orders",
        "world fault PRODUCE of web shop its answer is lost",
        "web_shop asks Produce to n1: orders-0 1 record; orders-0=0, but the answer was lost",
        "web_shop asks Produce to n1: orders-0 1 record; orders-0=0\n",
        "biller asks JoinGroup to n1: billing; done",
        "n1 info groups: group rebalanced group=billing",
        "biller asks OffsetCommit to n1: billing orders-0=1; done",
    ):
        assert line in story
    reading = kafka_broker.explain(record).reading
    assert str(reading).startswith("read once: biller fetched it")


@pytest.mark.kafka(scope="function", brokers=3, disk="folder")
def test_a_cluster_replicates(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    kafka_cluster.produce("orders", "one")
    (partition,) = kafka_cluster.topics["orders"].partitions.values()
    assert set(partition.replicas) == {1, 2, 3}
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 3


@pytest.mark.kafka(scope="function", brokers=3)
def test_a_node_is_killed(kafka_cluster: KafkaCluster) -> None:
    """Another one leads, and nothing that was acknowledged is lost."""
    kafka_cluster.produce("orders", "one")
    leader = kafka_cluster.topics["orders"].partitions[0].leader_id
    node = kafka_cluster.node(leader)
    node.kill()
    with pytest.raises(WaitTimedOut, match=f"node {leader} does not run") as failure:
        kafka_cluster.healthy(timeout_s=1).wait()
    assert re.search(rf"n{leader} +crash +kill -9\n", kafka_cluster.story())
    assert f"leaders moved from={leader} count=1 partitions=orders-0" in str(failure.value)
    with pytest.raises(ValueError, match=f"node {leader} cannot be stopped, it does not run"):
        node.stop()
    kafka_cluster.produce("orders", "two")
    assert kafka_cluster.topics["orders"].partitions[0].leader_id != leader
    node.start()
    with pytest.raises(ValueError, match=f"node {leader} runs already"):
        node.start()
    kafka_cluster.healthy(timeout_s=60).wait()
    assert [record.value for record in kafka_cluster.records("orders")] == [b"one", b"two"]
    with pytest.raises(ValueError, match="there is no node 9: the nodes are 1, 2, 3"):
        kafka_cluster.node(9)


def test_a_broker_in_a_process_of_its_own(tmp_path: Path) -> None:
    """It keeps what is in its folder, and says why it cannot start."""
    with KafkaBroker(folder=tmp_path, in_process=False) as broker:
        broker.produce("orders", "one")
        with pytest.raises(ValueError, match="process of their own end together"):
            broker.node(1)
        with pytest.raises(ValueError, match="cannot be disturbed: make the cluster with in_pro"):
            broker.refuse("Produce", "NOT_ENOUGH_REPLICAS")
        with pytest.raises(ValueError, match="links that cannot be cut: make the cluster with"):
            _ = broker.links
    with KafkaBroker(folder=tmp_path) as broker:
        assert [record.value for record in broker.records("orders")] == [b"one"]
        assert broker.node(1).is_running
    with pytest.raises(RuntimeError, match="the brokers' process ended with status 2"):
        KafkaBroker(config={"log.segment.bytes": "x"}, in_process=False).start()


def test_what_is_used_wrongly() -> None:
    """One sentence each, that says what to do."""
    with pytest.raises(RuntimeError, match=r"^node 1 ended: .*no log directory can be used: /proc"):
        KafkaBroker(folder="/proc/there/is/none").start()
    with pytest.raises(ValueError, match="brokers must not be less than 1, but is 0"):
        KafkaCluster(0)
    with pytest.raises(ValueError, match=r"config: Invalid value x .* log\.segment\.bytes"):
        KafkaBroker(config={"log.segment.bytes": "x"}).start()
    broker = KafkaBroker()
    with pytest.raises(RuntimeError, match="does not run: use it within `with`"):
        broker.produce("orders", "one")
    with broker, pytest.raises(RuntimeError, match="runs already"):
        broker.start()
    broker.stop()
