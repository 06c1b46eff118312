"""Disks that give back other bits than were written, and syncs that fail; and what must follow.

Owns: `DiskFaults`, which the nemesis plays. What is demanded besides the invariants
1. A log that was recovered after a kill holds no batch that reads wrong.
2. A node that starts has all the metadata that it knew to be committed, or it does not start.
3. A process whose metadata log, or whose last log directory, could not be synced ends.
A call that finds no file descriptor or no room may end a node that starts, never one that serves.

Rot of a log and failed syncs of one cost a replica what others have: they come when nothing else
is broken, like a power cut (see `nemesis`, rule 2).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Protocol

import trio

from kraftrio.testing.simulation.cluster import SimCluster, SimNode
from kraftrio.testing.simulation.damage import BadReads, is_metadata
from kraftrio.testing.simulation.disk_calls import FailingCalls
from kraftrio.testing.simulation.incarnation import Incarnation
from kraftrio.testing.simulation.world import SimulationFailure

_STEP_S = 0.005
_END_DEADLINE_S = 3.0
_SMALL_FILES = (".index", "leader-epoch-checkpoint", ".snapshot")
_METADATA_FILES = (".log", ".checkpoint")


class Owner(Protocol):
    """What the nemesis offers."""

    def some_node(self) -> SimNode | None: ...

    def length_s(self) -> float: ...

    def may_lose_power(self, node: SimNode) -> bool:
        """Nothing else is broken, and each of its replicas has a partner in sync."""

    async def stop_node(self, node: SimNode) -> None:
        """Ask it to stop and wait for it."""

    async def restart(self, node: SimNode) -> None:
        """Wait, and start it if it does not run."""

    async def until_in_sync(self, node: SimNode) -> None: ...


class DiskFaults:
    """See the module."""

    def __init__(self, owner: Owner, cluster: SimCluster, rng: Random) -> None:
        self._owner = owner
        self._cluster = cluster
        self._rng = rng

    def _note(self, node: SimNode, text: str) -> None:
        self._cluster.world.note(node.name, "disk", text)

    # -- bad reads ------------------------------------------------------------------------------

    async def bad_reads(self) -> None:
        """Some reads of one node's logs are wrong."""
        node = self._owner.some_node()
        if node is None or node.disk.bad_reads is not None:
            return
        disk = node.disk
        chance = self._rng.choice((0.05, 0.2, 0.5))
        bad = disk.bad_reads = BadReads(Random(self._rng.getrandbits(64)), chance)
        self._note(node, f"reads go wrong with chance {chance:g}")
        # The newest records are read from memory: a reader has to need older ones.
        self._cluster.world.reread_count += 1
        other = self._owner.some_node()
        if other is not None and other is not node and self._rng.random() < 0.5:
            other.crash()
            await self._owner.restart(other)
        await trio.sleep(self._owner.length_s())
        disk.bad_reads = None
        self._note(node, f"{bad.count} reads went wrong")

    # -- rot ------------------------------------------------------------------------------------

    async def rot(self) -> None:
        """Something on one node's disk rots, and is mended later."""
        node = self._owner.some_node()
        if node is None:
            return
        choices = [self._rot_small_files]
        if node.is_controller:
            choices += [self._rot_metadata, self._rot_metadata]
        if node.is_broker:
            choices += [self._rot_logs, self._rot_logs]
        await self._rng.choice(choices)(node)

    def _damage(self, node: SimNode, paths: list[str], count: int) -> list[str]:
        self._rng.shuffle(paths)
        done = [path for path in paths[:count] if node.disk.rot(path, self._rng)]
        if done:
            self._note(node, f"rotten: {' '.join(done)}")
        return done

    def _mend(self, node: SimNode) -> None:
        node.disk.scrub()
        self._note(node, "scrubbed")

    async def _rot_small_files(self, node: SimNode) -> None:
        """Indexes, leader epochs and producer snapshots: they can be made again from the log."""
        if self._rng.random() < 0.5:
            await self._owner.stop_node(node)
        else:
            node.crash()
        paths = [p for p in node.disk.tree.files(*_SMALL_FILES) if not is_metadata(p)]
        self._damage(node, paths, 4)
        await self._owner.restart(node)
        await trio.sleep(self._owner.length_s())
        self._mend(node)

    async def _rot_logs(self, node: SimNode) -> None:
        if not self._owner.may_lose_power(node):
            return
        self._cluster.weak.add(node.node_id)
        how = self._rng.choice(("serve", "stop", "kill", "kill"))
        paths = [path for path in node.disk.tree.files(".log") if _is_log(path)]
        if how == "kill":  # recovery trusts what was synced long ago
            paths = list({path.rpartition("/")[0]: path for path in paths}.values())
        rotten = self._damage(node, paths, self._rng.choice((1, 1, 5)))
        self._cluster.world.reread_count += 1
        if how == "stop":
            await self._owner.stop_node(node)
            await self._owner.restart(node)
        elif how == "kill":
            node.crash()
            await self._owner.restart(node)
            await self._check_recovery(node, rotten)
        await trio.sleep(self._owner.length_s())
        self._mend(node)
        if not node.is_running:
            node.start()
        await self._owner.until_in_sync(node)
        self._cluster.weak.discard(node.node_id)

    async def _check_recovery(self, node: SimNode, rotten: list[str]) -> None:
        """Demand 1: recovery looks at every newest segment."""
        incarnation = node.incarnation
        while node.incarnation is incarnation and not node.is_ready:  # noqa: ASYNC110
            await trio.sleep(_STEP_S)
        kept = [path for path in rotten if node.disk.is_rotten(path)]
        if node.incarnation is incarnation and kept:
            raise SimulationFailure(f"{node.name} recovered {kept[0]} with what is rotten in it")

    async def _rot_metadata(self, node: SimNode) -> None:
        committed = node.quorum.high_watermark
        serves = self._rng.random() < 0.3
        if not serves:
            node.crash()
        paths = [path for path in node.disk.tree.files(*_METADATA_FILES) if is_metadata(path)]
        self._damage(node, paths, 1)
        if not serves:
            await self._owner.restart(node)
            await self._check_metadata(node, committed)
        await trio.sleep(self._owner.length_s())
        self._mend(node)
        if not node.is_running:
            node.start()

    async def _check_metadata(self, node: SimNode, committed: int) -> None:
        """Demand 2."""
        incarnation = node.incarnation
        while node.incarnation is incarnation and node.node is None:  # noqa: ASYNC110
            await trio.sleep(_STEP_S)
        if incarnation is None or node.incarnation is not incarnation:
            return
        end_offset = node.metadata_log.log_end_offset
        if end_offset < committed:
            raise SimulationFailure(
                f"{node.name} knew metadata up to {committed} to be committed, and has begun again"
                f" with {end_offset}"
            )

    # -- syncs that fail ------------------------------------------------------------------------

    async def failed_sync(self) -> None:
        """One sync fails, and what it should have made durable is gone."""
        node = self._owner.some_node()
        if node is None:
            return
        if node.is_controller and (not node.is_broker or self._rng.random() < 0.5):
            await self._fail_sync(node, is_metadata, stops=False)
            await self._owner.restart(node)
        elif node.is_broker and self._owner.may_lose_power(node):
            self._cluster.weak.add(node.node_id)
            await self._fail_sync(node, _is_log, stops=self._rng.random() < 0.7)
            await self._owner.restart(node)
            await self._owner.until_in_sync(node)
            self._cluster.weak.discard(node.node_id)

    async def _fail_sync(self, node: SimNode, which: Callable[[str], bool], *, stops: bool) -> None:
        disk, incarnation = node.disk, node.incarnation
        assert incarnation is not None
        disk.sync_fails = which
        self._note(node, "the next sync fails")
        with trio.move_on_after(self._owner.length_s()):
            while not disk.failed_syncs and node.incarnation is incarnation:  # noqa: ASYNC110
                await trio.sleep(_STEP_S)
        if stops and node.incarnation is incarnation:
            await self._owner.stop_node(node)
        disk.sync_fails = None
        self._note(node, f"failed: {disk.failed_syncs}")
        if not disk.failed_syncs:
            return
        if is_metadata(disk.failed_syncs[0]) or len(node.config.log_dirs) == 1:
            await self._demand_end(node, incarnation, disk.failed_syncs[0])
        elif node.incarnation is incarnation:
            await self._owner.stop_node(node)  # it went on with its other directory

    async def _demand_end(self, node: SimNode, incarnation: Incarnation, path: str) -> None:
        """Demand 3."""
        waited_s = 0.0
        while node.incarnation is incarnation:
            await trio.sleep(_STEP_S)
            if not incarnation.is_paused:
                waited_s += _STEP_S
            if waited_s > _END_DEADLINE_S:
                raise SimulationFailure(f"{incarnation!r} went on after a failed sync of {path}")

    # -- syncs that lie, and calls that fail ----------------------------------------------------

    async def lying_syncs(self) -> None:
        """A broker's disk only says that it syncs the logs, and then the power fails."""
        node = self._owner.some_node()
        if node is None or not node.is_broker:
            return
        node.disk.freeze()
        self._note(node, "syncs lie")
        await trio.sleep(self._owner.length_s())
        if node.is_running and not node.is_paused and self._owner.may_lose_power(node):
            self._cluster.weak.add(node.node_id)
            node.crash(power_cut=True)
            await self._owner.restart(node)
            await self._owner.until_in_sync(node)
            self._cluster.weak.discard(node.node_id)
        node.disk.thaw()

    async def few_files(self) -> None:
        """Some calls that need a file descriptor find none."""
        await self._fail_calls(errno.EMFILE)

    async def no_room_now(self) -> None:
        """Some calls that need room find none."""
        await self._fail_calls(errno.ENOSPC)

    async def _fail_calls(self, error: int) -> None:
        node = self._owner.some_node()
        if node is None:
            return
        chance = self._rng.choice((0.02, 0.1, 0.5))
        calls = FailingCalls(Random(self._rng.getrandbits(64)), error, chance)
        disk, incarnation = node.disk, node.incarnation
        disk.failing_calls = calls
        self._note(node, f"calls fail with {errno.errorcode[error]}, chance {chance:g}")
        await trio.sleep(self._owner.length_s())
        disk.failing_calls = None
        self._note(node, f"{len(calls.failed)} calls failed")
        if calls.failed and node.incarnation is incarnation and self._rng.random() < 0.3:
            node.crash()  # what was left half-done is all that there is
            await self._owner.restart(node)
        elif not node.is_running:
            await self._owner.restart(node)


def _is_log(path: str) -> bool:
    """Whether a file is of a partition's log that is in service."""
    is_deleted = "-delete/" in path
    return path.endswith(".log") and not is_metadata(path) and not is_deleted
