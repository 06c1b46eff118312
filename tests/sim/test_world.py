"""The simulator itself: one seed is one history, time is virtual, a pause is a pause."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio._core import _run as trio_run

from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.world import SimulationFailure, World
from tests.sim.simulation import simulate

ROOT = Path(__file__).resolve().parents[2]


def _digest_in_a_process(seed: int, hash_seed: str) -> str:
    """Simulate a seed in a process of its own."""
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "scripts" / "simulate.py"),
            "--seed",
            str(seed),
            "--nodes",
            "3",
        ],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stdout.partition("digest=")[2].split()[0]


def test_a_seed_is_one_history_in_any_process() -> None:
    """The trace is the same whatever the order of sets and the addresses of objects are."""
    digests = {_digest_in_a_process(11, hash_seed) for hash_seed in ("0", "1", "4711")}
    assert len(digests) == 1, digests
    assert digests == {simulate(11, nodes=3).trace.digest()}


def test_seeds_differ() -> None:
    """Another seed is another history."""
    assert simulate(2, nodes=1).trace.digest() != simulate(3, nodes=1).trace.digest()


def test_trio_offers_what_the_world_takes_over() -> None:
    """The simulator rests on internals of Trio; a new release of it shows here first."""
    assert isinstance(trio_run._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert hasattr(trio_run, "_r")
    fields = {field.name for field in trio_run.Runner.__attrs_attrs__}
    assert {"runq", "deadlines"} <= fields


def test_time_jumps() -> None:
    """A year passes in no time."""
    world = World("year")

    async def main() -> None:
        await trio.sleep(365 * 86_400)

    world.run(main)
    assert world.now_s == 365 * 86_400


def test_waiting_for_ever_is_a_failure() -> None:
    """If nothing can ever happen again, the simulation ends and says so."""
    with pytest.raises(SimulationFailure, match="for ever"):
        World("stuck").run(trio.sleep_forever)


def test_a_busy_loop_is_a_failure() -> None:
    """Tasks that run on and on while time stands still are found."""

    async def spin() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(SimulationFailure, match="busy loop"):
        World("busy").run(spin)


def test_paused_tasks_run_after_the_pause() -> None:
    """A paused process does nothing; what fell due meanwhile happens at once afterwards."""
    world = World("pause")
    incarnation = world.incarnate("n1")
    ticks: list[float] = []

    async def tick() -> None:
        current.set(incarnation)
        while True:
            await trio.sleep(1)
            ticks.append(world.now_s)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            await trio.sleep(2.5)
            world.pause(incarnation)
            await trio.sleep(5)
            world.resume(incarnation)
            await trio.sleep(1.2)
            nursery.cancel_scope.cancel()

    world.run(main)
    assert ticks == [1.0, 2.0, 7.5, 8.5]


def test_checks_look_at_who_goes_on_after_a_pause() -> None:
    """Also if its task does one thing only, and waits again."""
    world = World("pause")
    incarnation = world.incarnate("n1")
    woken = trio.Event()
    seen: list[float] = []
    world.checks.append(lambda: seen.extend(world.now_s for who in world.active))

    async def wait() -> None:
        current.set(incarnation)
        await woken.wait()
        await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            world.pause(incarnation)
            woken.set()
            await trio.sleep(1)
            world.resume(incarnation)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    world.run(main)
    assert seen[-1] == 2.0


def test_checks_see_every_rest() -> None:
    """An invariant is looked at after every event, and its failure ends the run."""
    world = World("checks")
    seen: list[float] = []

    def check() -> None:
        seen.append(world.now_s)
        if world.now_s >= 3:
            raise SimulationFailure("time is up")

    world.checks.append(check)

    async def main() -> None:
        for _ in range(10):
            await trio.sleep(1)

    with pytest.raises(SimulationFailure, match="time is up"):
        world.run(main)
    assert seen[-1] == 3.0
    assert {0.0, 1.0, 2.0} <= set(seen)
