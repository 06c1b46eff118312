"""Breaks things: draws faults from the seed, one after the other, and mends them again.

Owns: `Nemesis`. Rules:
1. Only faults that a cluster must survive (see `network` and `disk`).
2. A power cut takes the unsynced tail of a replica. It is legal only while everybody else who is in
   sync keeps theirs: it comes when nothing else is broken, to a node whose every replica has a
   live partner in its ISR, and nothing else is broken until that node is in sync again. A
   controller alone may lose power at any time. The same goes for what else costs a replica a part
   of its log: rot, a sync that fails, an empty disk (see `disk_faults`, `wiped_disks`).
3. After `heal` nothing is broken and every node runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from random import Random

import trio

from kraftrio.testing.simulation.cluster import DiskSpeed, SimCluster, SimNode
from kraftrio.testing.simulation.in_sync import has_partners, is_in_sync
from kraftrio.testing.simulation.network import LinkQuality, SimSocket
from kraftrio.testing.simulation.world import SimulationFailure
from tests.sim.client import SimClient
from tests.sim.directory_faults import DirectoryFaults
from tests.sim.disk_faults import DiskFaults
from tests.sim.leader_changes import LeaderChanges
from tests.sim.options import Options
from tests.sim.wiped_disks import WipedDisks

_ROOM_BYTES = 2_000
# After these every request is answered or its connection ends, by the nodes that live.
_UNFELT = frozenset({"kill", "stop", "rolling", "clock", "wipe", "skipped_epochs"})
_AFTERMATH_S = 10.0  # what was held up may come late


class Nemesis:
    """See the module."""

    def __init__(self, cluster: SimCluster, options: Options, client: SimClient) -> None:
        self._cluster = cluster
        self._options = options
        self._rng: Random = cluster.world.rng("nemesis")
        self._under_way = 0
        self._restarting: set[int] = set()
        disks = DiskFaults(self, cluster, self._rng)
        self._bad_reads, self._rot = disks.bad_reads, disks.rot
        self._failed_sync, self._lying_syncs = disks.failed_sync, disks.lying_syncs
        self._few_files, self._no_room_now = disks.few_files, disks.no_room_now
        directories = DirectoryFaults(self, cluster, self._rng)
        self._fail_directory, self._renew = directories.fail, directories.renew
        self._wipe = WipedDisks(self, cluster, self._rng).wipe
        changes = LeaderChanges(self, cluster, self._rng, client)
        self._skipped_epochs = changes.skipped_epochs
        self.count = 0
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Break and mend until cancelled."""
        if not self._options.faults:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self._rng.expovariate(1 / self._options.fault_gap_s))
                name = self._rng.choice(list(self._options.faults))
                fault: Callable[[], Awaitable[None]] = getattr(self, f"_{name}")
                nursery.start_soon(self._apply, name, fault)

    async def _apply(self, name: str, fault: Callable[[], Awaitable[None]]) -> None:
        if self._cluster.weak or self._cluster.wiped:
            return
        self._under_way += 1
        self.count += 1
        self.counts[name] += 1
        self._cluster.world.note("world", "fault", name)
        is_felt = name not in _UNFELT
        try:
            with self._cluster.world.disturbed(_AFTERMATH_S) if is_felt else nullcontext():
                await fault()
        except SimulationFailure as failure:
            self._cluster.world.fail(failure)
            await trio.lowlevel.checkpoint()
        finally:
            self._under_way -= 1

    async def heal(self) -> None:
        """Mend everything and start every node."""
        cluster = self._cluster
        cluster.world.note("world", "heal", "the faults are over")
        cluster.internet.mend_all()
        for node in cluster.nodes.values():
            node.resume()
            node.disk.room_bytes = None
            node.disk.bad_reads = node.disk.sync_fails = None
            node.disk.failing_calls = node.disk.broken_path = None
            node.disk.thaw()
            node.disk.scrub()
            node.speed = self._options.disk
        for node in cluster.nodes.values():
            # It was asked to end, or is about to end by what a sync has lost: wait until it has.
            if node.is_stopping or node.disk.failed_syncs:
                await node.stop()
            await self._renew(node)
        cluster.start()

    # -- dice -----------------------------------------------------------------------------------

    def length_s(self) -> float:
        """How long a fault lasts."""
        return self._rng.expovariate(1 / self._options.fault_length_s)

    def some_node(self) -> SimNode | None:
        """A running node, a leader of something more often than not."""
        running = [
            node
            for node in self._cluster.nodes.values()
            if node.is_running and not node.is_paused and node.node_id not in self._restarting
        ]
        if not running:
            return None
        if self._options.victims and self._rng.random() < 0.9:
            running = [node for node in running if self._options.victims in node.roles] or running
        if self._rng.random() < 0.3:
            leaders = [node for node in running if node.quorum.is_active_controller]
            if leaders:
                return self._rng.choice(leaders)
        return self._rng.choice(running)

    # -- processes ------------------------------------------------------------------------------

    async def _kill(self) -> None:
        node = self.some_node()
        if node is not None:
            node.crash()
            await self.restart(node)

    async def restart(self, node: SimNode) -> None:
        """Start a node after a while, unless it runs by then."""
        self._restarting.add(node.node_id)
        try:
            await trio.sleep(self.length_s())
            node.restore()
            if not node.is_running:
                node.start()
        finally:
            self._restarting.discard(node.node_id)

    async def _power(self) -> None:
        node = self.some_node()
        if node is None:
            return
        if not node.is_broker:  # all that it keeps is synced before it is answered
            node.crash(power_cut=True)
            await self.restart(node)
            return
        if not self.may_lose_power(node):
            return
        self._cluster.weak.add(node.node_id)
        node.crash(power_cut=True)
        await self.restart(node)
        await self.until_in_sync(node)
        self._cluster.weak.discard(node.node_id)

    async def until_in_sync(self, node: SimNode) -> None:
        """Wait until a node runs and is in every ISR that it belongs to."""
        while not is_in_sync(self._cluster, node):  # noqa: ASYNC110
            await trio.sleep(0.1)

    def may_lose_power(self, node: SimNode) -> bool:
        """Return whether nothing else is broken and each of a node's replicas has a partner."""
        return self._under_way <= 1 and has_partners(self._cluster, node)

    async def _pause(self) -> None:
        node = self.some_node()
        if node is not None:
            incarnation = node.incarnation
            node.pause()
            await trio.sleep(self.length_s())
            if node.incarnation is incarnation:
                node.resume()

    async def _stop(self) -> None:
        node = self.some_node()
        if node is not None:
            await self.stop_node(node)
            await self.restart(node)

    async def stop_node(self, node: SimNode) -> None:
        """Ask a node to stop and wait for it; `restart` comes next."""
        self._restarting.add(node.node_id)
        await node.stop()

    async def _rolling(self) -> None:
        for node in list(self._cluster.nodes.values()):
            if node.is_running and not node.is_paused and node.node_id not in self._restarting:
                await self.stop_node(node)
                await self.restart(node)
                await trio.sleep(self.length_s())

    # -- the network ----------------------------------------------------------------------------

    async def _between(self, one: set[str], other: set[str], *, both_ways: bool) -> None:
        internet = self._cluster.internet
        pairs = [(a, b) for a in sorted(one) for b in sorted(other)]
        if both_ways:
            pairs += [(b, a) for a, b in pairs]
        for source, target in pairs:
            internet.hang(source, target)
        await trio.sleep(self.length_s())
        for source, target in pairs:
            internet.mend(source, target)

    def _names(self) -> list[str]:
        return [node.name for node in self._cluster.nodes.values()]

    async def _isolate(self) -> None:
        node = self.some_node()
        if node is not None:
            everybody = set(
                self._names() if self._rng.random() < 0.6 else self._cluster.internet.hosts
            )
            await self._between({node.name}, everybody - {node.name}, both_ways=True)

    async def _one_way(self) -> None:
        names = self._names()
        source = self._rng.choice(names)
        targets = set(names) - {source}
        if self._rng.random() < 0.5 and targets:
            targets = {self._rng.choice(sorted(targets))}
        if self._rng.random() < 0.5:
            await self._between({source}, targets, both_ways=False)
        else:
            await self._between(targets, {source}, both_ways=False)

    async def _split(self) -> None:
        names = self._names()
        self._rng.shuffle(names)
        cut = len(names) // 2
        if cut:
            await self._between(set(names[:cut]), set(names[cut:]), both_ways=True)

    def _some_socket(self) -> SimSocket | None:
        internet = self._cluster.internet
        sockets = [sock for host in internet.hosts.values() for sock in internet.live_sockets(host)]
        return self._rng.choice(sockets) if sockets else None

    async def _cut(self) -> None:
        for _ in range(self._rng.choice((1, 1, 3, 10))):
            sock = self._some_socket()
            if sock is not None:
                self._cluster.internet.cut(sock)

    async def _lose_answers(self) -> None:
        for _ in range(self._rng.choice((1, 3, 10))):
            sock = self._some_socket()
            if sock is not None:
                self._cluster.internet.cut(sock, lose_answers_s=self._rng.uniform(0.01, 0.5))

    async def _stall(self) -> None:
        sock = self._some_socket()
        if sock is not None:
            self._cluster.internet.stall(sock, True)
            await trio.sleep(self.length_s())
            self._cluster.internet.stall(sock, False)

    async def _slow_link(self) -> None:
        names = self._names()
        source, target = self._rng.choice(names), self._rng.choice(names)
        if source == target:
            return
        link = self._cluster.internet.link(source, target)
        link.quality = LinkQuality(
            self._rng.choice((0.05, 0.3)), 0.1, self._rng.choice((10_000.0, 200_000.0)), 0.2
        )
        await trio.sleep(self.length_s())
        link.quality = self._options.quality

    # -- disks and clocks -----------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        node = self.some_node()
        if node is not None:
            node.speed = DiskSpeed(0.05, self._rng.choice((0.3, 1.0)))
            await trio.sleep(self.length_s())
            node.speed = self._options.disk

    async def _full_disk(self) -> None:
        node = self.some_node()
        if node is not None:
            node.disk.room_bytes = self._rng.randrange(_ROOM_BYTES)
            await trio.sleep(self.length_s())
            node.disk.room_bytes = None

    async def _clock(self) -> None:
        node = self.some_node()
        if node is not None:
            node.clock.offset_ms = self._rng.choice((-1_800_000, -5_000, 5_000, 600_000))
            self._cluster.world.note(node.name, "clock", f"offset {node.clock.offset_ms:g} ms")
