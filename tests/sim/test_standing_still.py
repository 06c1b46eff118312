"""A process that stands still, and what it finds when it goes on: nobody's heartbeats are lost."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kraftrio.testing.simulation.cluster import Shape, SimCluster
from kraftrio.testing.simulation.world import World

_CONTROLLER = 101
_CLUSTER_ID = "JqmeS41gEZm4xhzVsgrVhw"
_STILL_S = 12.0  # longer than broker.session.timeout.ms


@dataclass(frozen=True)
class _OneController(Shape):
    def roles(self) -> dict[int, str]:
        return {1: "broker", 2: "broker", 3: "broker", _CONTROLLER: "controller"}


def test_a_controller_that_stood_still_fences_no_waiting_broker() -> None:
    """The heartbeats of three brokers wait in its sockets while it stands still."""
    world = World("standing still")
    fenced: list[int] = []

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(
                world, nursery, _OneController(3, True, {"kraftrio.cluster.id": _CLUSTER_ID})
            )
            cluster.start()
            await cluster.wait_until(cluster.all_ready, "all are ready", 60)
            controller = cluster.nodes[_CONTROLLER]
            await trio.sleep(5)
            controller.pause()
            await trio.sleep(_STILL_S)
            quorum = controller.quorum
            assert quorum is not None
            quorum.subscribe(
                lambda delta, _image: fenced.extend(
                    broker_id
                    for broker_id, broker in delta.changed_brokers.items()
                    if broker is not None and broker.fenced
                )
            )
            fenced.clear()
            controller.resume()
            await trio.sleep(3)
            nursery.cancel_scope.cancel()

    world.run(run)
    assert fenced == []
