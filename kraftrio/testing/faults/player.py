"""Plays the faults of a plan in a world, each at its time, and lets them pass.

Owns: `FaultPlayer`. Rules:
1. What a fault hits that the test itself has broken meanwhile, or that is not there yet, is left
   alone; the story says so.
2. A replica may lose what was not synced only while all others are in sync, and nothing else
   happens to a node until it has caught up: losing more is loss in Kafka as well.

Called by: `kafka_world`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import trio

from kraftrio.clients.errors import KafkaClientError
from kraftrio.testing.faults.on_demand import NodeFaults, WorldFaults
from kraftrio.testing.faults.plan import EVERY, Fault
from kraftrio.testing.simulation.cluster import SimNode
from kraftrio.testing.simulation.in_sync import has_partners, is_in_sync
from kraftrio.testing.traffic.traffic import PROGRAM

_LOOK_EVERY_S = 0.1


class FaultPlayer:
    """See the module."""

    def __init__(self, faults: WorldFaults) -> None:
        self._faults = faults
        self._cluster = faults.cluster
        self._weak: SimNode | None = None  # it has lost what was not synced

    async def play(self, plan: Sequence[Fault]) -> None:
        """Let the faults happen, each at its time after this began."""
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for fault in plan:
                nursery.start_soon(self._play_at, began_s + fault.at_s, fault)

    async def _play_at(self, time_s: float, fault: Fault) -> None:
        await trio.sleep_until(time_s)
        self._note("fault", str(fault))
        requests = self._faults.requests
        request, _, error = fault.target.partition(" ")
        match fault.kind:
            case "lose answer":
                requests.lose_answer(request, None)
            case "delay":
                requests.delay(request, None, seconds=fault.length_s)
            case "duplicate":
                requests.duplicate(request, None)
            case "refuse":
                requests.refuse(request, None, error=error)
            case "cut":
                await self._cut(fault)
            case "rebalance":
                await self._rebalance(fault.target)
            case "clock":
                self._move_clock(fault)
            case "move leaders" | "move coordinators":
                await self._move(fault)
            case _:
                await self._disturb(fault)

    def _note(self, kind: str, text: str) -> None:
        self._cluster.world.note("world", kind, text)

    def _node(self, name: str) -> SimNode:
        (node,) = (node for node in self._cluster.nodes.values() if node.name == name)
        return node

    # -- nodes ------------------------------------------------------------------------------------

    async def _disturb(self, fault: Fault) -> None:
        """A node dies, is paused or has no disk, for a while."""
        node = self._node(fault.target)
        if self._weak is not None and not is_in_sync(self._cluster, self._weak):
            self._note("fault", f"{fault.target} is spared: {self._weak.name} has to catch up")
            return
        if not node.is_running or node.is_paused:
            self._note("fault", f"{fault.target} is spared: the test has done something to it")
            return
        on_demand = self._faults.node(node.node_id)
        match fault.kind:
            case "kill":
                on_demand.kill()
            case "power cut":
                self._cut_power(node, on_demand)
            case "pause":
                on_demand.pause()
            case "full disk":
                on_demand.fill_disk()
            case "failing disk":
                on_demand.fail_disk()
        await trio.sleep(fault.length_s)
        self._note("heal", str(fault))
        self._heal(fault, node, on_demand)

    def _cut_power(self, node: SimNode, on_demand: NodeFaults) -> None:
        if has_partners(self._cluster, node):
            self._weak = node
            on_demand.cut_power()
        else:
            self._note("fault", f"{node.name} keeps what it has: not all others are in sync")
            on_demand.kill()

    @staticmethod
    def _heal(fault: Fault, node: SimNode, on_demand: NodeFaults) -> None:
        match fault.kind:
            case "pause":
                if node.is_paused:
                    on_demand.resume()
                return
            case "full disk":
                on_demand.free_disk()
            case "failing disk":
                on_demand.heal_disk()
        if node.disk.met_broken and node.is_running and not node.is_paused:
            on_demand.kill()  # a directory that was given up is taken back at a start
        if not node.is_running:
            on_demand.start()

    # -- others -----------------------------------------------------------------------------------

    async def _cut(self, fault: Fault) -> None:
        internet = self._cluster.internet
        sources, targets = (self._machines(name) for name in fault.target.split(">"))
        pairs = [(source, target) for source in sources for target in targets]
        for source, target in pairs:
            internet.hang(source, target)
        await trio.sleep(fault.length_s)
        self._note("heal", str(fault))
        for source, target in pairs:
            internet.mend(source, target)

    def _machines(self, name: str) -> list[str]:
        if name != PROGRAM:
            return [name]
        return [host for host in self._cluster.internet.hosts if self._faults.is_program(host)]

    def _move_clock(self, fault: Fault) -> None:
        if fault.target == EVERY:
            self._faults.move_clocks(fault.length_s)
        else:
            self._faults.node(self._node(fault.target).node_id).move_clock(fault.length_s)

    async def _move(self, fault: Fault) -> None:
        move = partial(
            self._faults.moves.move_all_from,
            self._node(fault.target).node_id,
            coordinators=fault.kind == "move coordinators",
        )
        try:
            self._note("fault", f"{await move()} partitions have got another leader")
        except (KafkaClientError, ValueError, trio.TooSlowError) as error:
            self._note("fault", f"{fault.target} goes on leading: {error}")

    async def _rebalance(self, target: str) -> None:
        try:
            groups = [target]
            if target == EVERY:
                groups = await self._faults.moves.groups_with_partitions()
            for group in groups:
                await self._faults.moves.rebalance(group)
        except (KafkaClientError, ValueError) as error:
            self._note("fault", f"nothing to rebalance: {error}")
