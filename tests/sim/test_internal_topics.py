"""Internal topics that are asked for before all brokers are up."""

from __future__ import annotations

import pytest
import trio

from kraftrio.testing.simulation.cluster import Shape, SimCluster
from kraftrio.testing.simulation.world import World
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.sim.client import SimClient, Unavailable, client_of

FIRST = (101, 102, 103, 1)  # the controllers and one broker
LATE = (2, 3)


async def find_coordinator(client: SimClient, until_s: float) -> int:
    """Ask until a coordinator is returned, or time is up."""
    while True:
        try:
            return await client.coordinator("g")
        except Unavailable:
            if trio.current_time() >= until_s:
                raise
        await trio.sleep(0.5)


def test_the_offsets_topic_waits_for_enough_brokers() -> None:
    """A group that comes while one broker of three is up does not cost the topic its replicas."""
    world = World("internal topics")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(world, nursery, Shape(3, separate_controllers=True))
            for node_id in FIRST:
                cluster.nodes[node_id].start()
            await cluster.wait_until(lambda: cluster.nodes[1].is_ready, "one broker is up", 60)
            client = client_of(world, nursery, cluster.new_host("c"), [("n1", 9092)], "c")
            with pytest.raises(Unavailable, match="COORDINATOR_NOT_AVAILABLE"):
                await find_coordinator(client, trio.current_time() + 10)
            for node_id in LATE:
                cluster.nodes[node_id].start()
            await find_coordinator(client, trio.current_time() + 30)
            image = cluster.nodes[1].quorum.image
            topic = image.topic(CONSUMER_OFFSETS)
            assert topic is not None
            assert {len(one.replicas) for one in topic.partitions.values()} == {3}
            nursery.cancel_scope.cancel()

    world.run(run)
