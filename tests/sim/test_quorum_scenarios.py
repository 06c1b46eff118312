"""Histories of the metadata quorum that random faults meet too rarely, as scripts.

Each is played as it is and with the mutation that it must notice.
"""

from __future__ import annotations

import pytest
import trio

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from tests.sim.client import Unavailable
from tests.sim.cluster import SimNode
from tests.sim.mutations import mutated
from tests.sim.stage import Script, Stage, expect, play
from tests.sim.world import SimulationFailure

_CONTROLLERS = (101, 102, 103)


def _leader(stage: Stage) -> SimNode | None:
    for node in stage.cluster.controllers:
        if node.node is not None and node.quorum.is_active_controller:
            return node
    return None


async def _create(stage: Stage, name: str, answers: list[ErrorCode]) -> None:
    client = stage.client("admin")
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    try:
        response = await client.call_any(CreateTopicsRequest(topics=[topic], timeout_ms=4_000))
    except Unavailable:
        return
    answers.append(ErrorCode(response.topics[0].error_code))


async def leader_without_sync(stage: Stage) -> None:
    """The leader's machine loses its power right after the leader has acknowledged a change."""
    await stage.until(lambda: _leader(stage) is not None, "a leader")
    leader = _leader(stage)
    assert leader is not None
    follower, away = (stage.node(i) for i in _CONTROLLERS if i != leader.node_id)
    stage.hang([away.node_id], stage.cluster.nodes)
    stage.hang(stage.cluster.nodes, [away.node_id])
    await trio.sleep(1)
    answers: list[ErrorCode] = []
    stage.start(_create, stage, "t", answers)
    await stage.until(lambda: bool(answers), "an answer")
    leader.crash(power_cut=True)
    follower.crash()
    stage.mend()
    leader.restore()
    leader.start()
    await stage.until(lambda: _leader(stage) is not None, "a leader of two")
    await trio.sleep(2)
    follower.start()
    await trio.sleep(5)
    new_leader = _leader(stage)
    expect(new_leader is not None, "there is a leader in the end")
    assert new_leader is not None
    if answers == [ErrorCode.NONE]:
        found = new_leader.quorum.image.topic("t")
        expect(found is not None, "a topic is gone whose creation was acknowledged")


SCENARIOS: list[tuple[Script, str]] = [
    (leader_without_sync, "quorum-counts-what-is-not-synced"),
]


@pytest.mark.parametrize(("script", "mutation"), SCENARIOS, ids=lambda part: str(part))
def test_quorum_survives(script: Script, mutation: str) -> None:
    """It comes out well."""
    play(script)


@pytest.mark.parametrize(("script", "mutation"), SCENARIOS, ids=lambda part: str(part))
def test_quorum_with_the_mistake_does_not(script: Script, mutation: str) -> None:
    """The mistake is noticed by some seed: a power cut may spare what is unsynced."""
    with mutated(mutation), pytest.raises(SimulationFailure):
        for seed in range(10):
            play(script, seed=str(seed))
