"""What scripts about the metadata quorum share: its leader, a voter that is cut off, a change.

Called by: the scenario tests.
"""

from __future__ import annotations

import trio

from kraftrio.testing.simulation.cluster import SimNode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from tests.sim.client import Unavailable
from tests.sim.stage import Stage, expect

_CONTROLLERS = (101, 102, 103)


def active_controller(stage: Stage) -> SimNode | None:
    """The node that leads the quorum and knows it."""
    for node in stage.cluster.controllers:
        if node.node is not None and node.quorum.is_active_controller:
            return node
    return None


async def wait_active_controller(stage: Stage, text: str) -> SimNode:
    """Wait until a node leads the quorum; `text` says what is waited for."""
    await stage.until(lambda: active_controller(stage) is not None, text)
    leader = active_controller(stage)
    assert leader is not None
    return leader


async def split(stage: Stage) -> tuple[SimNode, SimNode, SimNode]:
    """The leader of the quorum, a follower, and a voter that is cut off."""
    leader = await wait_active_controller(stage, "a leader")
    follower, away = (stage.node(i) for i in _CONTROLLERS if i != leader.node_id)
    stage.cut_off(away.node_id)
    await trio.sleep(1)
    return leader, follower, away


async def ask_for_topic(stage: Stage, name: str, answers: list[ErrorCode]) -> None:
    """Create a topic once; what is answered, if anything is, goes to the end of `answers`."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=4_000)
    try:
        response = await stage.client("admin").call_any(request)
    except Unavailable:
        return
    answers.append(ErrorCode(response.topics[0].error_code))


def expect_topic(leader: SimNode, name: str, answers: list[ErrorCode]) -> None:
    """If its creation was acknowledged, the topic is there."""
    if ErrorCode.NONE in answers:
        found = leader.quorum.image.topic(name)
        expect(found is not None, "a topic is gone whose creation was acknowledged")
