"""Faults on demand in a world: of nodes, their disks, and the links between machines.

Owns: `NodeFaults` and `Links`. Each happens at once, at the instant of virtual time at which it is
asked for; what is asked of what is not there is a ValueError that says what to do first.

Called by: `kafka_world`.
"""

from __future__ import annotations

from kraftrio.testing.simulation.cluster import SimNode
from kraftrio.testing.simulation.network import Internet


class NodeFaults:
    """What can be done to one node."""

    def __init__(self, node: SimNode) -> None:
        self._node = node

    @property
    def is_running(self) -> bool:
        return self._node.is_running

    def _check_running(self, verb: str) -> None:
        if not self._node.is_running:
            raise ValueError(
                f"node {self._node.node_id} cannot be {verb}, it does not run: start() it first"
            )

    def kill(self) -> None:
        """Kill its process as `kill -9` does; what it has written is on its disk."""
        self._check_running("killed")
        self._node.crash()

    def cut_power(self) -> None:
        """Let its machine fall silent; of what was not synced to its disk only a part is left."""
        self._check_running("cut off from power")
        self._node.crash(power_cut=True)

    async def stop(self) -> None:
        """Stop it in good order, and wait for that."""
        self._check_running("stopped")
        await self._node.stop()

    def start(self) -> None:
        """Start it (again); it comes up by and by."""
        if self._node.is_running:
            raise ValueError(f"node {self._node.node_id} runs already: kill() or stop() it first")
        self._node.restore()
        self._node.start()

    def pause(self) -> None:
        """Stop its process as SIGSTOP does; its sockets stay open."""
        self._check_running("paused")
        self._node.pause()

    def resume(self) -> None:
        """Let a paused one go on."""
        if not self._node.is_paused:
            raise ValueError(f"node {self._node.node_id} is not paused: pause() it first")
        self._node.resume()

    def fill_disk(self, room_bytes: int = 0) -> None:
        """Leave so much room on its disk."""
        self._node.disk.room_bytes = room_bytes

    def free_disk(self) -> None:
        """Give its disk enough room."""
        self._node.disk.room_bytes = None


class Links:
    """What can be done to the network: machines are n1, n2, ..., program, and what tests add."""

    def __init__(self, internet: Internet) -> None:
        self._internet = internet

    def _check(self, *names: str) -> None:
        for name in names:
            if name not in self._internet.hosts:
                known = ", ".join(self._internet.hosts)
                raise ValueError(f"there is no machine {name!r}: there are {known}")

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one machine to another, in this direction, until it is healed."""
        self._check(source, target)
        self._internet.hang(source, target)

    def isolate(self, name: str) -> None:
        """Cut a machine off from all others, in both directions."""
        self._check(name)
        for other in self._internet.hosts:
            if other != name:
                self._internet.hang(name, other)
                self._internet.hang(other, name)

    def heal(self) -> None:
        """Let everything pass; what was held up arrives now."""
        self._internet.mend_all()
