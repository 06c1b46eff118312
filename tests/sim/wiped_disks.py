"""Disks that are replaced by empty ones.

Owns: `WipedDisks`, which the nemesis plays: a node comes back without its memory, or that of
one directory. Like a power cut it comes when nothing else is broken, and never to the only voter or
the only replica. What is demanded
1. The node is not believed: as a voter it makes no leader of who lacks what is committed, as a
   broker it counts in no ISR before it has everything (see `log_invariants`; it is not exempt).
2. In bounded time it is a voter like the others again, and in sync.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import trio

from kraftrio.testing.simulation.cluster import SimCluster, SimNode
from kraftrio.testing.simulation.world import SimulationFailure

METADATA_DIRECTORY = "__cluster_metadata-0"
_DEADLINE_S = 60.0


class Owner(Protocol):
    """What the nemesis offers."""

    def some_node(self) -> SimNode | None: ...

    def may_lose_power(self, node: SimNode) -> bool:
        """Nothing else is broken, and each of its replicas has a partner in sync."""

    async def stop_node(self, node: SimNode) -> None:
        """Ask it to stop and wait for it."""

    async def restart(self, node: SimNode) -> None:
        """Wait, and start it if it does not run."""

    async def until_in_sync(self, node: SimNode) -> None: ...


class WipedDisks:
    """See the module."""

    def __init__(self, owner: Owner, cluster: SimCluster, rng: Random) -> None:
        self._owner = owner
        self._cluster = cluster
        self._rng = rng

    async def wipe(self) -> None:
        """Empty a node's disk while it is down."""
        node = self._owner.some_node()
        if node is None or not self._may_wipe(node):
            return
        self._cluster.wiped.add(node.node_id)
        if self._rng.random() < 0.5:
            node.crash()
        else:
            await self._owner.stop_node(node)
        path = self._choose_path(node)
        self._cluster.world.note(node.name, "disk", f"{path} is empty")
        node.disk.tree.wipe(path)
        await self._owner.restart(node)
        await self._demand_return(node)
        self._cluster.wiped.discard(node.node_id)

    def _may_wipe(self, node: SimNode) -> bool:
        controllers = self._cluster.controllers
        if node.is_controller and (len(controllers) < 3 or not all(map(_is_believed, controllers))):
            return False
        return self._owner.may_lose_power(node)

    def _choose_path(self, node: SimNode) -> str:
        paths = ["/", "/", *node.config.log_dirs[1:]]
        if node.is_controller:
            paths.append(f"{node.config.metadata_log_dir}/{METADATA_DIRECTORY}")
        return self._rng.choice(paths)

    async def _demand_return(self, node: SimNode) -> None:
        incarnation = node.incarnation
        with trio.move_on_after(_DEADLINE_S):
            await self._owner.until_in_sync(node)
            while node.is_controller and not _is_believed(node):  # noqa: ASYNC110
                await trio.sleep(0.05)
            return
        if node.incarnation is incarnation:
            raise SimulationFailure(
                f"{node.name} is not back within {_DEADLINE_S:g} s after its disk was emptied"
            )


def _is_believed(node: SimNode) -> bool:
    """Whether a voter may vote and counts."""
    if node.node is None or node.is_paused:
        return False
    quorum = node.quorum
    return quorum.is_loaded and quorum.messages.replica_id == quorum.node_id
