"""Faults by seed: the same each time, played in a world, and shrunk to those that matter."""

from __future__ import annotations

import itertools

import trio

from kraftrio import Producer
from kraftrio.testing import KafkaWorld
from kraftrio.testing.fault_plan import Fault, drawn, shrunk


def test_a_seed_is_one_plan() -> None:
    """Different seeds differ, each has its faults in order, and one node at a time is down."""
    plans = [drawn(seed, 3) for seed in range(200)]
    assert plans == [drawn(seed, 3) for seed in range(200)]
    assert len(set(map(str, plans))) > 190
    assert all(1 <= len(plan) <= 6 for plan in plans)
    kinds = {fault.kind for plan in plans for fault in plan}
    assert kinds == {"kill", "pause", "cut", "lose answer", "delay"}
    for plan in plans:
        down = [fault for fault in plan if fault.target.startswith("n")]
        assert all(a.at_s + a.length_s <= b.at_s for a, b in itertools.pairwise(down))


def test_a_plan_is_shrunk() -> None:
    """To what is needed together; to nothing, where the test fails without faults."""
    faults = [Fault(number, "kill", "n1", 1) for number in range(6)]
    wanted = {faults[1], faults[4]}
    assert shrunk(faults, lambda fewer: wanted <= set(fewer)) == [faults[1], faults[4]]
    assert shrunk(faults, lambda fewer: True) == []


_FAULTS = [
    Fault(0.0, "kill", "n1", 3),
    Fault(4.0, "pause", "n2", 2),
    Fault(7.0, "cut", "n3", 2),
    Fault(7.5, "lose answer", "Produce", 0),
    Fault(8.0, "delay", "Produce", 1),
]


def test_a_plan_is_played() -> None:
    """Each fault happens and passes; what is acknowledged meanwhile is there, once, in order."""
    world = KafkaWorld(faults=_FAULTS)

    async def write() -> None:
        await world.create_topic("orders", 1)
        async with Producer(world.bootstrap_servers) as producer:
            for number in range(30):
                await (await producer.send("orders", str(number).encode()))
                await trio.sleep(0.5)
        await world.healthy()
        values = [record.value for record in await world.records("orders")]
        assert values == [str(number).encode() for number in range(30)]

    world.run(write)
    story = world.story()
    assert "crash  kill -9" in story
    assert "PRODUCE of program" in story
    for fault in _FAULTS:
        assert f"fault  {fault}" in story
