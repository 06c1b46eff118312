"""Faults on demand of nodes with real sockets: of nodes, disks, clocks and links.

Owns: `ClusterNode` and `ClusterLinks`, with the names of what a world in virtual time has. Each
call waits until it is done; what makes no sense is a ValueError that says what to do first.

Called by: `cluster`, which hands these to tests.
"""

from __future__ import annotations

import trio

from kraftrio.clients.arguments.values import whole_number
from kraftrio.testing.arguments import seconds as check_seconds
from kraftrio.testing.faults.refusals import (
    check_ended,
    check_goes_on,
    check_machines,
    check_paused,
    check_running,
)
from kraftrio.testing.local_nodes import LocalNode
from kraftrio.testing.loop_thread import LoopThread
from kraftrio.testing.simulation.disk import SimDisk
from kraftrio.testing.traffic.tapped import SocketTraffic
from kraftrio.testing.traffic.traffic import PROGRAM, TEST_MACHINE


class ClusterNode:
    """One node of a cluster with real sockets."""

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

    def kill(self) -> None:
        """End it as `kill -9` does: nobody is told, and what it has written is there."""
        check_running(self._node, "killed")
        self._loop.call(self._node.kill).result()

    def cut_power(self) -> None:
        """Kill it, and keep only a part of what was not synced to its disk in memory.

        Its connections end as those of a process that is killed: the machine goes on.
        """
        check_running(self._node, "cut off from power")
        self._disk("lose what was not synced")
        self._loop.call(self._node.cut_power).result()

    def stop(self) -> None:
        """Stop it gracefully: others lead its partitions before it goes."""
        check_running(self._node, "stopped")
        check_goes_on(self._node, "stopped")
        self._loop.call(self._node.stop).result()

    def start(self) -> None:
        """Start it again, and wait until clients can connect."""
        check_ended(self._node)
        self._loop.call(lambda: self._node.start(self._nursery)).result()

    def pause(self) -> None:
        """Pause it, as SIGSTOP does a process; its sockets stay open."""
        check_running(self._node, "paused")
        check_goes_on(self._node, "paused")
        self._loop.do(self._node.pause)

    def resume(self) -> None:
        """Let a paused one go on."""
        check_paused(self._node)
        self._loop.do(self._node.resume)

    # -- disk and clock -------------------------------------------------------------------------

    def _disk(self, what: str) -> SimDisk:
        disk = self._node.disk
        if disk is None:
            raise ValueError(
                f"node {self._node.config.node_id} has its files in a folder, whose disk cannot"
                f" {what}: make the cluster with its disks in memory, without `folder`"
            )
        return disk

    def fill_disk(self, room_bytes: int = 0) -> None:
        """Leave so much room for its logs: writes fail with ENOSPC, until `free_disk`.

        The metadata quorum's log is thought to be on another disk.
        """
        whole_number("room_bytes", room_bytes)
        disk = self._disk("be filled")
        self._node.note("disk", f"room for {room_bytes} bytes")
        self._node.may_end = True
        disk.has_metadata_apart = True
        disk.room_bytes = room_bytes

    def free_disk(self) -> None:
        """Give its disk enough room; a node that has ended is to be started again."""
        self._node.note("disk", "has room")
        self._disk("be freed").room_bytes = None

    def fail_disk(self) -> None:
        """Let all that is done on its disk fail with EIO, until `heal_disk`.

        A node ends when it meets that, as Kafka does without a log directory.
        """
        disk = self._disk("fail")
        self._node.note("disk", "fails")
        self._node.may_end = True
        disk.broken_path = "/"

    def heal_disk(self) -> None:
        """Mend its disk, with all that was on it; a node that has ended is to be started again."""
        self._node.note("disk", "is mended")
        self._disk("be mended").broken_path = None

    def move_clock(self, seconds: float) -> None:
        """Set its wall clock ahead (or back); timers stay."""
        check_seconds("seconds", seconds, is_signed=True)
        self._node.note("clock", f"moved by {seconds:+g} s")
        self._node.clock.offset_ms += round(seconds * 1000)


class ClusterLinks:
    """What can be done to the connections of nodes: with clients, and with each other.

    Machines are n1, n2, ..., and "program", all clients; a client alone is named by its client id.
    """

    def __init__(self, traffic: SocketTraffic, loop: LoopThread) -> None:
        self._traffic = traffic
        self._loop = loop

    def _check(self, *names: str) -> None:
        check_machines(names, [*sorted(self._traffic.node_names), *self._traffic.machines])

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one machine to another, in this direction, until it is healed.

        Connections stay open, and new ones can be made: nobody is told. What is on its way in the
        system's buffers, to a client, still arrives.
        """
        self._check(source, target)
        if not self._traffic.node_names & {source, target}:
            raise ValueError(
                f"what goes from {source} to {target} comes by no node: name one, such as n1"
            )
        self._loop.do(lambda: self._cut(source, target))

    def _cut(self, source: str, target: str) -> None:
        self._traffic.note("cut", f"{source}>{target}")
        self._traffic.cut(source, target)

    def isolate(self, name: str) -> None:
        """Cut a machine off from all others, in both directions."""
        self._check(name)
        nodes = self._traffic.node_names
        others = nodes if name not in nodes else nodes - {name} | {PROGRAM, TEST_MACHINE}

        def cut_all() -> None:
            for other in sorted(others):
                self._cut(name, other)
                self._cut(other, name)

        self._loop.do(cut_all)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Let everything pass, or what goes from one machine to another; what was held up arrives
        now.
        """
        if source is None and target is None:
            self._traffic.note("heal", "all links")
            self._loop.do(self._traffic.heal_all)
            return
        if source is None or target is None:
            raise ValueError("heal() heals all; one direction is heal(source, target)")
        self._check(source, target)
        self._traffic.note("heal", f"{source}>{target}")
        heal, ends = self._traffic.heal, (source, target)
        self._loop.do(lambda: heal(*ends))
