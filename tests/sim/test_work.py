"""Work takes time in a simulation: who is busy runs later, and a loop that stands is a failure."""

from __future__ import annotations

import pytest
import trio

from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.world import SimulationFailure, World


def test_a_busy_node_runs_later() -> None:
    """What it was charged passes before its tasks go on; others do not wait for it."""
    world = World("busy")
    busy, free = world.incarnate("busy"), world.incarnate("free")
    ticks: list[tuple[str, float]] = []
    charged: list[bool] = []
    world.work.longest_turn_s = 10.0

    async def tick(name: str) -> None:
        while True:
            await trio.sleep(1)
            ticks.append((name, round(world.now_s, 3)))
            if name == "busy" and not charged:
                charged.append(True)
                world.work.charge(busy, 1.5)
                world.work.charge(busy, 0.1)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for who in (busy, free):
                current.set(who)
                nursery.start_soon(tick, who.name)
            current.set(None)
            await trio.sleep(3.5)
            nursery.cancel_scope.cancel()

    world.run(main)
    assert [at for name, at in ticks if name == "free"] == [1.0, 2.0, 3.0]
    assert [at for name, at in ticks if name == "busy"] == [1.0, 2.6]


def test_a_loop_that_stands_is_a_failure() -> None:
    """One turn of a loop may not take longer than the bound."""
    world = World("stands")
    who = world.incarnate("n1")

    async def main() -> None:
        current.set(who)
        for _ in range(3):
            world.work.charge(who, 0.6)
            await trio.sleep(1)  # each in a turn of its own
        world.work.charge(who, 0.6)
        world.work.charge(who, 0.6)
        await trio.sleep(1)

    with pytest.raises(SimulationFailure, match=r"the loop of n1#1 stood for 1.2 s"):
        world.run(main)
