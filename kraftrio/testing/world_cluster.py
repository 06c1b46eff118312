"""A cluster in virtual time while it runs: started, observed, restored and ended.

Owns: `WorldCluster`, what a `KafkaWorld` has for its own nodes, and each of its forks for theirs.

Called by: `kafka_world`.
"""

from __future__ import annotations

from kraftrio.testing.contents import Contents, CurrentContents
from kraftrio.testing.explaining.exchanges import Exchanges
from kraftrio.testing.faults.on_demand import WorldFaults
from kraftrio.testing.simulation.cluster import SimCluster
from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.world import World
from kraftrio.testing.snapshots.snapshot import Snapshot
from kraftrio.testing.traffic.simulated import SimTraffic
from kraftrio.testing.traffic.traffic import TEST_MACHINE


class WorldCluster:
    """See the module.

    Attributes:
        cluster: the nodes, and the network between them and their clients.
        exchanges: what clients have asked of the nodes.
        faults: what can be done to it on demand.
    """

    def __init__(self, world: World, cluster: SimCluster) -> None:
        self.cluster = cluster
        self._traffic = SimTraffic(cluster)
        self.exchanges = Exchanges(self._traffic)
        self.faults = WorldFaults(cluster, self._traffic, lambda: self.contents)
        self._world = world
        self._current = CurrentContents()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin."""
        return ",".join(f"{host}:{port}" for host, port in self.cluster.bootstrap)

    @property
    def contents(self) -> Contents:
        """What is in it."""
        contents = self._current.contents
        assert contents is not None, "it has begun"
        return contents

    async def begin(self, snapshot: Snapshot | None) -> None:
        """Start every node, and wait until clients can connect.

        Args:
            snapshot: what the disks of the nodes, none of which runs, have on them; None: what
                there is.
        """
        cluster = self.cluster
        if snapshot is not None:
            self.exchanges.has_past = True
            for node_id, image in snapshot.disks.items():
                cluster.nodes[node_id].load(image)
        cluster.start()
        contents = Contents(
            self.bootstrap_servers, cluster.new_host(TEST_MACHINE), self._world.rng(TEST_MACHINE)
        )
        life = current.set(None)  # the observer is not a part of the program
        try:
            await cluster.nursery.start(contents.run)
        finally:
            current.reset(life)
        self._current.replace(contents)
        await cluster.wait_all_ready()

    def kill_all(self) -> None:
        """Kill every node, as `kill -9` does."""
        for node in self.cluster.nodes.values():
            node.crash()

    def end(self) -> None:
        """End the nodes and all that looks at them, while the world goes on."""
        self.kill_all()
        self._current.close()
        self._traffic.end()
