"""Explanations as a test asks for them: of worlds, and of brokers with real sockets."""

from __future__ import annotations

import pytest

from kraftrio import Producer
from kraftrio.testing import KafkaBroker, KafkaCluster, KafkaWorld
from kraftrio.testing.explaining.evidence import Reason


@pytest.mark.kafka(brokers=1)
async def test_the_text(kafka_world: KafkaWorld) -> None:
    """Three answers, each with its event below it."""
    await kafka_world.produce("orders", "one", key="k")
    (record,) = await kafka_world.records("orders")
    subject, *lines = str(kafka_world.explain(record)).splitlines()
    assert subject == "orders-0 offset 0"
    assert lines[0] == "  visible: it is below the high watermark, 1"
    assert lines[1] == "  not read: no Fetch answer with it came to a client"
    assert lines[2].startswith("  placed by its key: the hash of its key b'k' gives 0 of 1 ")
    assert lines[3].startswith("    decided by: ")
    assert "test asks Produce to n1: orders-0 1 record" in lines[3]
    text = str(kafka_world.explain("orders", value="two"))
    assert text.splitlines()[0] == "orders record with value b'two'"


@pytest.mark.kafka(brokers=1)
async def test_after_a_snapshot(kafka_world: KafkaWorld) -> None:
    """What was asked before it is not known, and the answers say so."""
    (sent,) = await kafka_world.produce("orders", "one")
    async with kafka_world.fork() as other:
        explanation = other.explain(sent)
        assert explanation.visibility.reason is Reason.VISIBLE
        assert explanation.placement.reason is Reason.UNKNOWN
        assert other.explain("orders", value="none").visibility.reason is Reason.UNKNOWN
        assert explanation.reading.text.endswith("too long ago or before a snapshot")


def test_before_the_run() -> None:
    with pytest.raises(RuntimeError, match="this world does not run"):
        KafkaWorld().explain("orders", 0, 0)


async def test_of_brokers_with_real_sockets(kafka_broker: KafkaBroker) -> None:
    """Their logs say what is visible, and what came to them by whom it was asked for."""
    (sent,) = kafka_broker.produce("orders", "one")
    async with Producer(kafka_broker.bootstrap_servers, transactional_id="t") as producer:
        with pytest.raises(RuntimeError, match="no"):
            async with producer.transaction():
                two = await (await producer.send("orders", b"two"))
                is_open = kafka_broker.explain(two).visibility
                raise RuntimeError("no")
    await kafka_broker.transaction("t").ended()
    explanation = kafka_broker.explain(sent)
    assert explanation.visibility.reason is Reason.VISIBLE
    assert explanation.reading.reason is Reason.NOT_READ
    assert explanation.placement.reason is Reason.UNKNOWN
    assert explanation.placement.text.endswith("does not tell how it has chosen")
    assert is_open.reason is Reason.OPEN_TRANSACTION
    assert kafka_broker.explain(two).visibility.reason is Reason.ABORTED
    assert kafka_broker.explain("orders", value="three").visibility.reason is Reason.NOT_SENT
    with pytest.raises(ValueError, match=r"explain\(\) takes a record"):
        kafka_broker.explain("orders")


@pytest.mark.kafka(brokers=3)
async def test_of_a_cluster_without_its_followers(kafka_cluster: KafkaCluster) -> None:
    """The leader's log is looked at, and when nodes were started and ended."""
    kafka_cluster.create_topic("orders", partitions=1)
    leader = kafka_cluster.topics["orders"].partitions[0].leader_id
    first, second = (kafka_cluster.node(number) for number in (1, 2, 3) if number != leader)
    first.kill()
    second.kill()  # so that nobody can make the ISR smaller
    async with Producer(kafka_cluster.bootstrap_servers, acks=1) as producer:
        sent = await (await producer.send("orders", b"one"))
    answer = kafka_cluster.explain(sent).visibility
    assert answer.reason is Reason.ABOVE_HIGH_WATERMARK
    assert answer.event is not None
    assert answer.event[2:] == ("crash", "kill -9")
    first.start()
    second.start()
    await kafka_cluster.partition("orders").high_watermark(1, timeout_s=60)
    assert kafka_cluster.explain(sent).visibility.reason is Reason.VISIBLE


@pytest.mark.kafka(in_process=False)
def test_of_another_process(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(ValueError, match="in_process=True"):
        kafka_broker.explain("orders", 0, 0)
