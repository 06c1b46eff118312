"""One node of a cluster with real sockets, as a test kills it and starts it again.

Called by: `cluster`, which hands these to tests.
"""

from __future__ import annotations

import trio

from kraftrio.testing.local_nodes import LocalNode
from kraftrio.testing.loop_thread import LoopThread


class ClusterNode:
    """See the module; each call waits until it is done. What makes no sense is a ValueError."""

    def __init__(self, node: LocalNode, nursery: trio.Nursery, loop: LoopThread) -> None:
        self._node = node
        self._nursery = nursery
        self._loop = loop

    @property
    def is_running(self) -> bool:
        return self._node.is_running

    @property
    def address(self) -> str:
        """Where clients find it, HOST:PORT; it stays the same."""
        return self._node.address

    def _check_running(self, verb: str) -> None:
        if not self._node.is_running:
            raise ValueError(
                f"node {self._node.config.node_id} cannot be {verb}, it does not run:"
                " start() it first"
            )

    def kill(self) -> None:
        """End it as `kill -9` does: nobody is told, and what it has written is there."""
        self._check_running("killed")
        self._loop.call(self._node.kill).result()

    def stop(self) -> None:
        """Stop it in good order: others lead its partitions before it goes."""
        self._check_running("stopped")
        self._loop.call(self._node.stop).result()

    def start(self) -> None:
        """Start it again, and wait until clients can connect."""
        if self._node.is_running:
            raise ValueError(
                f"node {self._node.config.node_id} runs already: kill() or stop() it first"
            )
        self._loop.call(lambda: self._node.start(self._nursery)).result()
