"""Faults on demand in a world: of nodes, disks, clocks, links, requests, leaders and groups.

Owns: `WorldFaults`, `NodeFaults` and `Links`. Each happens at once, at the instant of virtual time
at which it is asked for; what is asked of what is not there is a ValueError that says what to do
first. They are a world's own, so that they end with it.

Called by: `kafka_world` and `player`.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.clients.arguments.values import whole_number
from kraftrio.testing.arguments import seconds as check_seconds
from kraftrio.testing.contents import Contents
from kraftrio.testing.faults.moves import Moves
from kraftrio.testing.faults.refusals import (
    check_ended,
    check_goes_on,
    check_machines,
    check_paused,
    check_running,
)
from kraftrio.testing.faults.requests import RequestFaults
from kraftrio.testing.simulation.cluster import SimCluster, SimNode
from kraftrio.testing.simulation.disk import BROKEN
from kraftrio.testing.simulation.network import Internet
from kraftrio.testing.traffic.traffic import TEST_MACHINE, Traffic

# What a node says, and that it may end, when its disk does.
_FULL = ("No space left", "disk full", "load failed")
_FAILED = (BROKEN, "log directory that is offline", "no log directory is online", "load failed")


class NodeFaults:
    """What can be done to one node."""

    def __init__(self, node: SimNode, cluster: SimCluster) -> None:
        self._node = node
        self._world = cluster.world

    @property
    def is_running(self) -> bool:
        return self._node.is_running

    def kill(self) -> None:
        """Kill its process as `kill -9` does; what it has written is on its disk."""
        check_running(self._node, "killed")
        self._node.crash()

    def cut_power(self) -> None:
        """Cut its machine's power: of what was not synced to its disk only a part is left."""
        check_running(self._node, "cut off from power")
        self._node.crash(power_cut=True)

    async def stop(self) -> None:
        """Stop it gracefully, and wait for that."""
        check_running(self._node, "stopped")
        check_goes_on(self._node, "stopped")
        await self._node.stop()

    def start(self) -> None:
        """Start it (again); this does not wait until it is up."""
        check_ended(self._node)
        self._node.restore()
        self._node.start()

    def pause(self) -> None:
        """Stop its process as SIGSTOP does; its sockets stay open."""
        check_running(self._node, "paused")
        check_goes_on(self._node, "paused")
        self._node.pause()

    def resume(self) -> None:
        """Let a paused one go on."""
        check_paused(self._node)
        self._node.resume()

    def fill_disk(self, room_bytes: int = 0) -> None:
        """Leave so much room for its logs: writes fail with ENOSPC, until `free_disk`.

        The metadata quorum's log is thought to be on another disk.
        """
        whole_number("room_bytes", room_bytes)
        self._world.tolerated += _FULL
        self._world.note(self._node.name, "disk", f"room for {room_bytes} bytes")
        self._node.disk.has_metadata_apart = True
        self._node.disk.room_bytes = room_bytes

    def free_disk(self) -> None:
        """Give its disk enough room."""
        self._world.note(self._node.name, "disk", "has room")
        self._node.disk.room_bytes = None

    def fail_disk(self) -> None:
        """Let all that is done on its disk fail with EIO, until `heal_disk`.

        A node ends when it meets that, as Kafka does without a log directory.
        """
        self._world.tolerated += _FAILED
        self._world.note(self._node.name, "disk", "fails")
        self._node.disk.broken_path = "/"

    def heal_disk(self) -> None:
        """Mend its disk, with all that was on it; a node that has ended is to be started again."""
        self._world.note(self._node.name, "disk", "is mended")
        self._node.disk.broken_path = None

    def move_clock(self, seconds: float) -> None:
        """Set its wall clock ahead (or back); timers stay."""
        check_seconds("seconds", seconds, is_signed=True)
        self._world.note(self._node.name, "clock", f"moved by {seconds:+g} s")
        self._node.clock.offset_ms += seconds * 1000


class Links:
    """What can be done to the network: machines are n1, n2, ..., program, and what tests add."""

    def __init__(self, internet: Internet) -> None:
        self._internet = internet

    def _check(self, *names: str) -> None:
        check_machines(names, self._internet.hosts)

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

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Let everything pass, or what goes from one machine to another; what was held up arrives
        now.
        """
        if source is None and target is None:
            self._internet.mend_all()
            return
        if source is None or target is None:
            raise ValueError("heal() heals all; one direction is heal(source, target)")
        self._check(source, target)
        self._internet.mend(source, target)


class WorldFaults:
    """All that can be done to a world.

    Args:
        contents: what is in the cluster, as it is now.
    """

    def __init__(
        self, cluster: SimCluster, traffic: Traffic, contents: Callable[[], Contents]
    ) -> None:
        self.cluster = cluster
        self.requests = RequestFaults(traffic)
        cluster.on_made = self.requests.stand_before
        self.links = Links(cluster.internet)
        self._contents = contents

    def is_program(self, machine: str) -> bool:
        """Return whether a machine is one of the program's."""
        host = self.cluster.internet.hosts.get(machine)
        return host is not None and not host.is_node and machine != TEST_MACHINE

    def node(self, node_id: int) -> NodeFaults:
        """A node by its id (ValueError: there is none)."""
        nodes = self.cluster.nodes
        if node_id not in nodes:
            raise ValueError(
                f"there is no node {node_id!r}: the nodes are {', '.join(map(str, nodes))}"
            )
        return NodeFaults(nodes[node_id], self.cluster)

    def move_clocks(self, seconds: float) -> None:
        """Set every wall clock ahead (or back)."""
        check_seconds("seconds", seconds, is_signed=True)
        self.cluster.world.note("world", "clock", f"all moved by {seconds:+g} s")
        self.cluster.world.start_wall_ms += round(seconds * 1000)

    @property
    def moves(self) -> Moves:
        """What operators do to leaders, coordinators and members."""
        return Moves(self._contents(), self._note)

    def _note(self, text: str) -> None:
        self.cluster.world.note("world", "fault", text)
