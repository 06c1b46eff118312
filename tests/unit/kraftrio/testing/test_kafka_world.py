"""Programs in virtual time: sessions that time out, leaders and answers that are lost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio

from kraftrio import Consumer, Producer, TopicPartition
from kraftrio.errors import TopicExistsError, UnknownTopicOrPartitionError
from kraftrio.testing import KafkaBroker, KafkaWorld, WaitTimedOut

DAY_S = 86_400


async def _consume(world: KafkaWorld, seen: list[bytes | None]) -> None:
    """A member of the group "billing" as a program would have it."""
    async with Consumer(
        world.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=45_000,
    ) as consumer:
        await consumer.subscribe(["orders"])
        while True:
            seen.extend(record.value for record in await consumer.poll())
            await consumer.commit()


async def test_a_session_times_out(kafka_world: KafkaWorld) -> None:
    """Of a member whose machine is cut off: 45 seconds pass at once, and the other takes over."""
    await kafka_world.create_topic("orders", partitions=4)
    seen: list[bytes | None] = []
    async with trio.open_nursery() as nursery:
        with kafka_world.machine("a"):
            nursery.start_soon(_consume, kafka_world, seen)
        with kafka_world.machine("b"):
            nursery.start_soon(_consume, kafka_world, seen)
        await kafka_world.group("billing").stable(members=2)
        began_s, began = kafka_world.now_s, time.process_time()
        kafka_world.links.isolate("a")
        await kafka_world.group("billing").stable(members=1, timeout_s=120)
        assert 45 <= kafka_world.now_s - began_s < 60
        assert time.process_time() - began < 5
        await kafka_world.produce("orders", "one", "two", partition=3)
        await kafka_world.topic("orders").drained(by="billing")
        assert seen == [b"one", b"two"]
        nursery.cancel_scope.cancel()


async def test_a_leader_is_lost(kafka_world: KafkaWorld) -> None:
    """What was acknowledged is there, once, and another node leads."""
    await kafka_world.create_topic("orders", partitions=1)
    async with Producer(kafka_world.bootstrap_servers, acks="all") as producer:
        await (await producer.send("orders", b"before"))
        leader = (await kafka_world.topics())["orders"].partitions[0].leader_id
        kafka_world.node(leader).kill()
        await (await producer.send("orders", b"after"))
    kafka_world.node(leader).start()
    await kafka_world.healthy()
    assert [record.value for record in await kafka_world.records("orders")] == [b"before", b"after"]


@pytest.mark.parametrize("killed_after_ms", [12, 15, 18, 21])
@pytest.mark.parametrize("node", [1, 2])
async def test_a_topic_is_created_while_a_node_dies(
    kafka_world: KafkaWorld, node: int, killed_after_ms: int
) -> None:
    """A topic that is there when its creation is sent again is no other's."""

    async def kill() -> None:
        await trio.sleep(killed_after_ms / 1000)
        kafka_world.node(node).kill()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        await kafka_world.create_topic("orders", partitions=2)
    assert len((await kafka_world.topics())["orders"].partitions) == 2
    with pytest.raises(TopicExistsError):
        await kafka_world.create_topic("orders")


async def test_an_answer_is_lost(kafka_world: KafkaWorld) -> None:
    """The producer sends again, and the record is there once."""
    await kafka_world.create_topic("orders")
    async with Producer(kafka_world.bootstrap_servers) as producer:
        kafka_world.lose_answer("Produce")
        await (await producer.send("orders", b"one"))
        assert "PRODUCE of program" in kafka_world.story()
        kafka_world.delay("Produce", seconds=3)
        began_s = kafka_world.now_s
        await (await producer.send("orders", b"two"))
        assert kafka_world.now_s - began_s >= 3
    assert [record.value for record in await kafka_world.records("orders")] == [b"one", b"two"]


@pytest.mark.kafka(brokers=1)
async def test_a_week_passes(kafka_world: KafkaWorld) -> None:
    """Records of last week are deleted; the program's clock has moved as well."""
    began = time.time()
    config = {"retention.ms": 7 * DAY_S * 1000, "segment.ms": DAY_S * 1000}
    await kafka_world.create_topic("orders", config=config)
    await kafka_world.produce("orders", "old")
    kafka_world.move_clocks(2 * DAY_S)
    await kafka_world.produce("orders", "newer")
    kafka_world.move_clocks(6 * DAY_S)
    await trio.sleep(400)  # brokers look every five minutes
    assert time.time() - began > 8 * DAY_S
    assert [record.value for record in await kafka_world.records("orders")] == [b"newer"]


def test_a_seed_is_one_history() -> None:
    """Also while a broker with real sockets runs beside it, for which time goes on."""

    async def produce() -> str:
        async with Producer(world.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send("orders", str(number).encode())
        with trio.move_on_after(10):
            await _consume(world, [])
        return world.story(packets=True)

    stories = []
    for seed in (1, 1, 2):
        world = KafkaWorld(seed, brokers=1)
        with KafkaBroker() as broker:
            stories.append(world.run(produce))
            (sent,) = broker.produce("orders", "one")
            assert abs(sent.timestamp / 1000 - time.time()) < 60
    assert stories[0] == stories[1] != stories[2]


async def test_what_was_seen_last_is_in_the_error(kafka_world: KafkaWorld) -> None:
    await kafka_world.produce("orders", "one")
    with pytest.raises(WaitTimedOut, match="2 s: group billing is stable with 1 members;"):
        await kafka_world.group("billing").stable(members=1, timeout_s=2)
    with pytest.raises(WaitTimedOut, match=r"lag 1 \(orders-0 nothing of 1\); no such group"):
        await kafka_world.topic("orders").drained(by="billing", timeout_s=2)
    with pytest.raises(WaitTimedOut, match=r"orders-0 has high watermark 1, leader \d, ISR 1 2 3"):
        await kafka_world.partition("orders").high_watermark(2, timeout_s=2)
    kafka_world.node(2).kill()
    with pytest.raises(WaitTimedOut, match=r"brokers 1 3 of 3; .*orders-0: .* of replicas 1 2 3"):
        await kafka_world.healthy(timeout_s=5)
    with pytest.raises(WaitTimedOut) as failure:
        await kafka_world.partition("orders").led_by(2, timeout_s=1)
    seen, *events = str(failure.value).splitlines()
    assert seen.startswith("not within 1 s: node 2 leads orders-0; seen last: leader ")
    assert events == ["last events:", *kafka_world.story().splitlines()[-8:]]


async def test_an_open_transaction_is_reported(kafka_world: KafkaWorld) -> None:
    async with Producer(kafka_world.bootstrap_servers, transactional_id="t") as producer:
        async with producer.transaction():
            await (await producer.send("orders", b"one"))
            with pytest.raises(WaitTimedOut, match="seen last: Ongoing with orders-0"):
                await kafka_world.transaction("t").ended(timeout_s=1)
        assert await kafka_world.transaction("t").ended() == "CompleteCommit with no partitions"


def test_a_failure_while_a_node_stands_still() -> None:
    """It is reported as it is: the world ends although that node cannot."""
    world = KafkaWorld()

    async def fail() -> None:
        world.node(2).pause()
        await trio.sleep(1)
        raise ValueError("of the test")

    with pytest.raises(ValueError, match="of the test"):
        world.run(fail)


async def test_faults_on_what_is_not_there(kafka_world: KafkaWorld) -> None:
    """One sentence each."""
    with pytest.raises(ValueError, match="there is no node 7: the nodes are 1, 2, 3"):
        kafka_world.node(7)
    kafka_world.node(2).kill()
    with pytest.raises(ValueError, match="node 2 cannot be paused, it does not run"):
        kafka_world.node(2).pause()
    with pytest.raises(ValueError, match="there is no machine 'n9': there are n1, n2, n3"):
        kafka_world.links.cut("n9", "n1")
    with pytest.raises(ValueError, match="no request 'Ofsetcommit'; do you mean 'OffsetCommit'"):
        kafka_world.lose_answer("Ofsetcommit")
    with pytest.raises(RuntimeError, match="this world does not run"):
        await KafkaWorld().topics()
    kafka_world.node(1).pause()
    with pytest.raises(ValueError, match="cannot be paused, it is paused: resume"):
        kafka_world.node(1).pause()
    with pytest.raises(ValueError, match="cannot be stopped, it is paused: resume"):
        await kafka_world.node(1).stop()
    with pytest.raises(ValueError, match="no machine 'a' of the program's: there are program; oth"):
        kafka_world.delay("Produce", seconds=1, machine="a")
    with pytest.raises(ValueError, match="no machine 'n1' of the program's"):
        kafka_world.refuse("Produce", "NOT_ENOUGH_REPLICAS", machine="n1")
    with (
        pytest.raises(ValueError, match="machine 'n1' is not one for clients"),
        kafka_world.machine("n1"),
    ):
        pass
    kafka_world.node(1).resume()
    kafka_world.node(2).start()


async def test_values_that_make_no_sense(kafka_world: KafkaWorld) -> None:
    """Each is refused when it is given, before anything is waited for or broken."""
    world: Any = kafka_world
    await world.create_topic("orders", 2)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: world.node(1).move_clock("5"), "seconds must be a number of seconds, not '5'"),
        (lambda: world.move_clocks(None), "seconds must be a number of seconds, not None"),
        (lambda: world.node(1).fill_disk(-1), "room_bytes must not be negative, but is -1"),
        (lambda: world.delay("Produce", seconds=-1), "seconds, 0 or more, but is -1"),
        (lambda: world.lose_answer("Produce", after_s="x"), "after_s must be a number of seconds"),
        (lambda: world.duplicate("Produce", after_s=-1), "after_s must be a number of seconds"),
        (lambda: world.refuse("Produce", 6), "there is no error 6; an example is 'NOT_COORD"),
        (lambda: world.healthy(timeout_s=-1), "timeout_s must be a number of seconds, 0 or more"),
        (lambda: world.healthy(timeout_s=0), "timeout_s must be more than 0"),
        (lambda: world.group("g").stable(members=0), "without members is waited for by empty()"),
        (lambda: world.explain(5), "explain() takes a record, or a topic with partition and"),
        (lambda: world.run(None), "this world has run already: make a new one for each run"),
    ]
    for call, sentence in refused:
        with pytest.raises((TypeError, ValueError, RuntimeError), match=re.escape(sentence)):
            call()
    with pytest.raises(ValueError, match="topic orders has no partition 9: it has 2 partitions"):
        await world.produce("orders", "one", partition=9)
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'order'; did you mean 'ord"):
        await world.records("order")
    with pytest.raises(WaitTimedOut, match=r"seen last: .*there is no topic 'order'; did you mean"):
        await world.topic("order").drained(by="g", timeout_s=1)
    assert " fault " not in world.story()


async def test_a_cluster_without_nodes_is_reported(kafka_world: KafkaWorld) -> None:
    for number in (1, 2, 3):
        kafka_world.node(number).kill()
    with pytest.raises(WaitTimedOut, match="seen last: node 1 does not run; node 2 does not run;"):
        await kafka_world.healthy(timeout_s=5)


def test_worlds_that_cannot_be() -> None:
    async def idle() -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(TypeError, match="brokers must be a whole number, not '3'"):
        KafkaWorld(brokers="3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"config: 'node.id' is set by the cluster for each node"):
        KafkaWorld(config={"node.id": 7})
    with pytest.raises(ValueError, match="config: Invalid value x for configuration num"):
        KafkaWorld(config={"num.partitions": "x"}).run(idle)
    with pytest.raises(
        TypeError, match=r"run\(\) takes an async function, as in run\(main\), not <c"
    ):
        KafkaWorld().run(idle())  # type: ignore[arg-type]


async def test_committed_offsets(kafka_world: KafkaWorld) -> None:
    await kafka_world.produce("orders", "one")
    seen: list[bytes | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_consume, kafka_world, seen)
        await kafka_world.topic("orders").drained(by="billing")
        nursery.cancel_scope.cancel()
    assert await kafka_world.committed("billing") == {TopicPartition("orders", 0): 1}
    await kafka_world.group("billing").empty()
