"""Histories of the metadata quorum that random faults meet too rarely, as scripts.

Each is played as it is and with the mutation that it must notice.
"""

from __future__ import annotations

import pytest
import trio

from kraftrio.broker.log.checkpoints import read_meta_properties
from kraftrio.broker.node.quorum_recovery import recover_quorum
from kraftrio.testing.simulation.cluster import Shape
from kraftrio.testing.simulation.disk import SimDisk
from kraftrio.testing.simulation.world import SimulationFailure, World
from kraftrio.wire.errors import ErrorCode
from tests.sim.mutations import mutated
from tests.sim.quorum_stage import (
    active_controller,
    ask_for_topic,
    expect_topic,
    split,
    wait_active_controller,
)
from tests.sim.stage import Script, Stage, expect, name_of, play


async def leader_without_sync(stage: Stage) -> None:
    """The leader's machine loses its power right after the leader has acknowledged a change."""
    leader, follower, _away = await split(stage)
    answers: list[ErrorCode] = []
    stage.start(ask_for_topic, stage, "t", answers)
    await stage.until(lambda: bool(answers), "an answer")
    leader.crash(power_cut=True)
    follower.crash()
    stage.mend()
    leader.restore()
    leader.start()
    await wait_active_controller(stage, "a leader of two")
    await trio.sleep(2)
    follower.start()
    await trio.sleep(5)
    new_leader = active_controller(stage)
    expect(new_leader is not None, "there is a leader in the end")
    assert new_leader is not None
    expect_topic(new_leader, "t", answers)


async def voter_with_another_disk(stage: Stage) -> None:
    """A voter comes back without its disk, when the only other one lacks what was acknowledged."""
    leader, follower, away = await split(stage)
    answers: list[ErrorCode] = []
    await ask_for_topic(stage, "t", answers)
    leader.crash()
    follower.crash()
    follower.disk = SimDisk(follower.clock.wall_ms)
    away.crash()
    stage.mend()
    follower.start()
    away.start()
    await trio.sleep(10)
    leader.start()
    await trio.sleep(10)
    new_leader = await wait_active_controller(stage, "a leader in the end")
    expect_topic(new_leader, "t", answers)
    expect(follower.quorum.messages.replica_id == follower.node_id, "the voter is believed again")


SCENARIOS: list[tuple[Script, str]] = [
    (voter_with_another_disk, "quorum-believes-a-wiped-voter"),
    (leader_without_sync, "quorum-counts-what-is-not-synced"),
]


@pytest.mark.parametrize(("script", "mutation"), SCENARIOS, ids=name_of)
def test_quorum_survives(script: Script, mutation: str) -> None:
    """It comes out well."""
    play(script)


@pytest.mark.parametrize(("script", "mutation"), SCENARIOS, ids=name_of)
def test_quorum_with_the_mistake_does_not(script: Script, mutation: str) -> None:
    """The mistake is noticed by some seed: a power cut may spare what is unsynced."""
    with mutated(mutation), pytest.raises(SimulationFailure):
        for seed in range(10):
            play(script, seed=str(seed))


def test_an_operator_recovers_a_quorum_whose_majority_is_lost() -> None:
    """Two of three voters lost their disks: nobody leads until they are declared to be believed."""

    async def script(stage: Stage) -> None:
        leader, follower, away = await split(stage)
        stage.mend()
        answers: list[ErrorCode] = []
        await ask_for_topic(stage, "t", answers)
        await trio.sleep(2)
        for node in (leader, follower, away):
            node.crash()
        for node in (leader, follower):
            node.disk = SimDisk(node.clock.wall_ms)
        for node in (leader, follower, away):
            node.start()
        await trio.sleep(60)
        expect(active_controller(stage) is None, "nobody leads")
        for node in (leader, follower):
            node.crash()
            is_proven, lines = recover_quorum(node.disk, node.config, accept_loss=False)
            expect(not is_proven and "Nothing was changed" in lines[-1], f"{lines}")
            is_proven, lines = recover_quorum(node.disk, node.config, accept_loss=True)
            expect(is_proven, f"{lines}")
            node.start()
        await wait_active_controller(stage, "a leader")
        await trio.sleep(5)
        expect_topic(away, "t", answers)

    play(script)


def test_one_controller_and_brokers_apart() -> None:
    """A controller alone founds the cluster; brokers without a vote take its id and work."""

    class OneController(Shape):
        def roles(self) -> dict[int, str]:
            return {1: "broker", 2: "broker", 101: "controller"}

    world = World("one controller")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            stage = Stage(world, nursery, OneController(), may_lose=False)
            await stage.begin()
            tp = await stage.create("t", [1, 2])
            client = stage.client("p")
            expect(await stage.produce(client, 1, tp, "a") is ErrorCode.NONE, "acknowledged")
            owners = [
                read_meta_properties(node.disk, "/data") for node in stage.cluster.nodes.values()
            ]
            ids = {None if owner is None else owner.cluster_id for owner in owners}
            expect(ids == {stage.node(101).quorum.image.cluster_id}, f"one cluster id: {ids}")
            nursery.cancel_scope.cancel()

    world.run(run)


def test_a_broker_that_no_controller_answers_ends() -> None:
    """It knows no cluster yet, and does not wait for ever to learn of one."""

    class Apart(Shape):
        def roles(self) -> dict[int, str]:
            return {1: "broker", 101: "controller"}

    world = World("no controller")
    world.tolerated.append("no controller told broker 1 within 60 s which cluster this is")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            stage = Stage(world, nursery, Apart(), may_lose=False)
            stage.node(1).start()
            await trio.sleep(59)
            expect(stage.node(1).is_running, "it waits")
            await stage.until(lambda: not stage.node(1).is_running, "it ends", 5)
            nursery.cancel_scope.cancel()

    world.run(run)
