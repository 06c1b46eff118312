"""Plans in a world: each fault happens and passes, and what was acknowledged is there, once."""

from __future__ import annotations

import trio

from kraftrio import Consumer, Producer
from kraftrio.testing import Fault, KafkaWorld

_FAULTS = [
    Fault(0.0, "kill", "n1", 3),
    Fault(4.0, "pause", "n2", 2),
    Fault(7.0, "cut", "program>n3", 2),
    Fault(7.5, "lose answer", "Produce"),
    Fault(8.0, "delay", "Produce", 1),
    Fault(10.0, "refuse", "Produce NOT_LEADER_OR_FOLLOWER"),
    Fault(11.0, "duplicate", "Produce"),
    Fault(12.0, "clock", "every", 60),
    Fault(13.0, "move leaders", "n1"),
    Fault(13.5, "move leaders", "n2"),
    Fault(14.0, "move leaders", "n3"),
    Fault(18.0, "power cut", "n1", 2),
    Fault(36.0, "full disk", "n2", 2),
    Fault(42.0, "failing disk", "n3", 2),
    Fault(50.0, "rebalance", "every"),
    Fault(54.0, "move coordinators", "n1"),
]


def _play(faults: list[Fault], records: int = 120) -> str:
    """Write and read all the time; return the story."""
    world = KafkaWorld(faults=faults)
    read: list[bytes | None] = []

    async def consume() -> None:
        async with Consumer(
            world.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            await consumer.subscribe("orders")
            async for record in consumer.committed():
                read.extend([record.value])

    async def write() -> None:
        await world.create_topic("orders", 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            async with Producer(world.bootstrap_servers) as producer:
                for number in range(records):
                    await (await producer.send("orders", str(number).encode()))
                    await trio.sleep(0.5)
            await world.healthy()
            await world.topic("orders").drained(by="billing", timeout_s=60)
            nursery.cancel_scope.cancel()
        values = [record.value for record in await world.records("orders")]
        assert values == [str(number).encode() for number in range(records)]
        assert set(read) == set(values)

    world.run(write)
    return world.story()


def test_a_plan_is_played() -> None:
    """All that a program must survive, one after the other."""
    story = _play(_FAULTS)
    for fault in _FAULTS:
        assert f"fault  {fault}" in story
    for said in [
        "crash  kill -9",
        "PRODUCE of program its answer is lost",
        "PRODUCE of program is 1 s late",
        "PRODUCE of program is refused with NOT_LEADER_OR_FOLLOWER",
        "PRODUCE of program comes twice",
        "clock  all moved by +60 s",
        "crash  power cut",
        "disk   room for 0 bytes",
        "disk   is mended",
        "a member joins billing, and leaves it again",
        "1 partitions have got another leader",
    ]:
        assert said in story, said
    assert "nothing to rebalance" not in story
    assert "spared" not in story


def test_a_replica_that_has_to_catch_up_is_not_alone() -> None:
    """While one is back from a power cut, or another is away, nothing is lost."""
    story = _play(
        [
            Fault(1.0, "power cut", "n1", 4),
            Fault(2.0, "kill", "n2", 1),
            Fault(14.0, "kill", "n3", 4),
            Fault(15.0, "power cut", "n2", 1),
        ],
        50,
    )
    assert "n2 is spared: n1 has to catch up" in story
    assert "n2 keeps what it has: not all others are in sync" in story
