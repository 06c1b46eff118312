"""Tests that leave clients or tasks open are failed with their names; what is open is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import trio

import kraftrio.asyncio
from kraftrio import Admin, Consumer, Producer
from kraftrio.clients.diagnostics.open_clients import open_clients
from kraftrio.testing import KafkaBroker, KafkaWorld
from kraftrio.testing.leftovers import LeftOpen, new_clients

pytest_plugins = ["pytester"]


def _left_by(main: Callable[[KafkaWorld], Awaitable[None]]) -> str:
    world = KafkaWorld(brokers=1)

    async def run() -> None:
        await world.create_topic("orders", 1)
        await main(world)

    with pytest.raises(LeftOpen) as raised:
        world.run(run)
    assert not open_clients()
    return str(raised.value)


def test_clients_are_named_and_closed() -> None:
    async def main(world: KafkaWorld) -> None:
        producer = Producer(world.bootstrap_servers, client_id="a", linger_ms=1_000)
        await producer.__aenter__()
        await producer.send("orders", b"one")
        await Admin(world.bootstrap_servers).__aenter__()
        consumer = await Consumer(world.bootstrap_servers, group_id="g").__aenter__()
        await consumer.subscribe("orders")

    said = _left_by(main)
    assert "<Producer 'a' at n1:9092, open>, <Admin " in said
    assert "<Consumer 'consumer-g-1' at n1:9092, open>; enter clients with `async with`" in said
    assert len(said.splitlines()) == 1


def test_tasks_are_named() -> None:
    """Of nurseries that were never left, and of none; also with clients in between."""

    async def main(world: KafkaWorld) -> None:
        nursery = await trio.open_nursery().__aenter__()
        nursery.start_soon(trio.sleep_forever, name="billing")
        await Producer(world.bootstrap_servers, client_id="a").__aenter__()
        await trio.open_nursery().__aenter__()
        trio.lowlevel.spawn_system_task(trio.sleep_forever, name="shipping")

    said = _left_by(main)
    for name in ("<Producer 'a'", "task shipping", "task billing", "a nursery without tasks"):
        assert name in said


def test_the_program_s_own_failure_comes_first() -> None:
    world = KafkaWorld(brokers=1)

    async def main() -> None:
        await Producer(world.bootstrap_servers).__aenter__()
        raise LookupError("an order")

    with pytest.raises(LookupError, match="an order"):
        world.run(main)
    assert not open_clients()


def test_clients_with_real_sockets(kafka_broker: KafkaBroker) -> None:
    """Those of asyncio, in their thread; those that look into the broker do not count."""

    async def main() -> None:
        before = open_clients()
        kafka_broker.produce("orders", "one")
        assert new_clients(before) == []
        async with kraftrio.asyncio.Producer(kafka_broker.bootstrap_servers) as producer:
            assert new_clients(before) == [producer]
        assert new_clients(before) == []

    asyncio.run(main())


_PROJECT = """
import asyncio
import kraftrio.asyncio
import pytest
from kraftrio import Producer

loop = asyncio.new_event_loop()

def test_asyncio(kafka_broker):
    producer = kraftrio.asyncio.Producer(kafka_broker.bootstrap_servers, client_id="a")
    loop.run_until_complete(producer.__aenter__())

def test_after_it(kafka_broker):
    assert kafka_broker.topics == {}

def test_asyncio_task(kafka_broker):
    async def main():
        asyncio.create_task(asyncio.sleep(3600), name="shipping")
        asyncio.create_task(asyncio.sleep(3600)).cancel()

    loop.run_until_complete(main())

def test_old_tasks(kafka_broker):
    loop.run_until_complete(asyncio.sleep(0))
    asyncio.run(asyncio.sleep(0))

async def test_world(kafka_world):
    await Producer(kafka_world.bootstrap_servers, client_id="b").__aenter__()

@pytest.mark.kafka(scope="module", brokers=2)
def test_kills(kafka_cluster):
    kafka_cluster.node(1).kill()

@pytest.mark.kafka(scope="module", brokers=2)
def test_after_the_kill(kafka_cluster):
    assert kafka_cluster.healthy().wait()

@pytest.mark.kafka(scope="module")
@pytest.mark.parametrize("fault", ["request", "link", "pause", "disk", "clock", "none"])
def test_leaves_a_fault(kafka_broker, fault):
    assert kafka_broker.life.is_whole
    match fault:
        case "request":
            kafka_broker.refuse("Produce", "NOT_ENOUGH_REPLICAS")
        case "link":
            kafka_broker.links.cut("program", "n1")
        case "pause":
            kafka_broker.node(1).pause()
        case "disk":
            kafka_broker.node(1).fill_disk()
        case "clock":
            kafka_broker.move_clocks(60)

def test_the_end():
    loop.close()
"""


def test_a_project(pytester: pytest.Pytester) -> None:
    """Who left something open fails, and others do not; nor do those after who killed a node."""
    pytester.makepyfile(_PROJECT)
    result = pytester.runpytest_subprocess("-p", "kraftrio.testing.plugin")
    result.assert_outcomes(passed=11, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*LeftOpen: the test has ended, but left open: <Producer 'a' at 127.0.0.1:*, open>; *",
            "*LeftOpen: the test has ended, but left open: task shipping (sleep); enter*",
            "*LeftOpen: the test has ended, but left open: <Producer 'b' at n1:9092*, open>; *",
        ]
    )
