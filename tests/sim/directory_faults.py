"""A log directory that fails while the others of its node go on.

Owns: `DirectoryFaults`, which the nemesis plays. A broker goes on without what lies in it; the node
may end if its metadata lies there, or nothing is left. It is mended later, with all that was in it,
and the node takes it back at its next start.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import trio

from kraftrio.testing.simulation.cluster import SimCluster, SimNode


class Owner(Protocol):
    """What the nemesis offers."""

    def some_node(self) -> SimNode | None: ...

    def length_s(self) -> float: ...

    async def stop_node(self, node: SimNode) -> None:
        """Ask it to stop and wait for it."""

    async def restart(self, node: SimNode) -> None:
        """Wait, and start it if it does not run."""


class DirectoryFaults:
    """See the module."""

    def __init__(self, owner: Owner, cluster: SimCluster, rng: Random) -> None:
        self._owner = owner
        self._cluster = cluster
        self._rng = rng

    async def fail(self) -> None:
        """All that is done in one directory of a node fails for a while."""
        node = self._owner.some_node()
        if node is None or node.disk.broken_path is not None:
            return
        directories = node.config.log_dirs
        path = directories[-1] if self._rng.random() < 0.8 else self._rng.choice(directories)
        node.disk.broken_path = f"{path}/"
        self._cluster.world.note(node.name, "disk", f"{path} fails")
        if self._rng.random() < 0.3:
            node.crash()  # so that it finds the directory broken when it starts
            await self._owner.restart(node)
        await trio.sleep(self._owner.length_s())
        node.disk.broken_path = None
        self._cluster.world.note(node.name, "disk", f"{path} is mended")
        await self.renew(node)
        if not node.is_running:
            await self._owner.restart(node)

    async def renew(self, node: SimNode) -> None:
        """Let a node that has given up a directory end, so that its next start takes it back."""
        if not node.disk.met_broken or not node.is_running or node.is_paused:
            return
        if self._rng.random() < 0.5:
            node.crash()
        else:
            await self._owner.stop_node(node)
