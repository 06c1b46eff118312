"""Several consensus cores wired by plain calls, with a seeded network, crashes and invariants.

After every event: one leader per epoch, committed prefixes equal, high watermarks never go back,
and what a leader committed is never lost. Disks keep what was made durable, and lose the rest.
"""

from __future__ import annotations

import heapq
import itertools
import random
from bisect import bisect_left
from collections.abc import Sequence

from kraftrio.kraft_meta.epoch_starts import EpochStarts
from kraftrio.kraft_meta.ports import ElectionState, LogBatch, SnapshotId
from kraftrio.kraft_meta.raft import RaftCore
from kraftrio.kraft_meta.raft_messages import Message
from kraftrio.kraft_meta.raft_ready import RaftConfig

CONFIG = RaftConfig()


class MemoryLog:
    """A log of batches, all durable; `snapshots` by id hold the batches below them."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []
        self.snapshot_id: SnapshotId | None = None
        self.snapshot: list[LogBatch] = []

    @property
    def start_offset(self) -> int:
        return self.snapshot_id.end_offset if self.snapshot_id else 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start_offset

    def append(self, batches: Sequence[LogBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset
            self.batches.append(batch)

    def truncate_to(self, offset: int) -> None:
        while self.batches and self.batches[-1].end_offset > offset:
            self.batches.pop()
        assert self.end_offset == offset

    def take_snapshot(self, end_offset: int) -> SnapshotId:
        """Forget the batches below end_offset, which is a batch's end."""
        kept = [batch for batch in self.batches if batch.base_offset >= end_offset]
        gone = self.batches[: len(self.batches) - len(kept)]
        self.snapshot += gone
        self.snapshot_id = SnapshotId(end_offset, gone[-1].epoch)
        self.batches = kept
        return self.snapshot_id

    def everything(self) -> list[LogBatch]:
        return self.snapshot + self.batches

    def epochs(self) -> EpochStarts:
        starts: list[tuple[int, int]] = []
        for batch in self.batches:
            if not starts or batch.epoch > starts[-1][0]:
                starts.append((batch.epoch, batch.base_offset))
        return EpochStarts(starts, self.start_offset, self.end_offset, self.snapshot_id)

    def read(self, start_offset: int, max_offset: int, max_bytes: int) -> list[LogBatch]:
        found = [
            b for b in self.batches if b.base_offset >= start_offset and b.end_offset <= max_offset
        ]
        return found[:2]


class Node:
    """One node: a core, its disk, and what it has applied."""

    def __init__(self, node_id: int, voters: Sequence[int], rng: random.Random) -> None:
        self.node_id = node_id
        self.voters = tuple(voters)
        self.rng = rng
        self.log = MemoryLog()
        self.state: ElectionState | None = None
        self.applied: list[LogBatch] = []
        self.high_watermark = 0
        self.core: RaftCore | None = None

    def start(self, now_ms: float) -> None:
        self.core = RaftCore(
            node_id=self.node_id,
            voters=self.voters,
            log=self.log,
            epochs=self.log.epochs(),
            stored=self.state,
            config=CONFIG,
            rng=self.rng,
            now_ms=now_ms,
        )
        self.high_watermark = self.log.start_offset


class Cluster:
    """The nodes, the network and the clock."""

    def __init__(
        self, voters: Sequence[int], *, observers: Sequence[int] = (), seed: int = 0
    ) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.voters = tuple(voters)
        self.nodes = {n: Node(n, voters, self.rng) for n in (*voters, *observers)}
        self.drop_rate = 0.0
        self.duplicate_rate = 0.0
        self.crash_rate = 0.0
        self.cut: set[int] = set()
        self.committed: list[LogBatch] = []
        self.committed_in: list[int] = []  # the epoch in which each was first seen committed
        self.leaders: dict[int, int] = {}
        self.trace: list[str] = []
        self._queue: list[tuple[float, int, Message]] = []
        self._order = itertools.count()
        for node in self.nodes.values():
            node.start(self.now_ms)
            self._settle(node)

    # ---- what tests do

    def run(self, duration_ms: float) -> None:
        """Let the cluster live for a while."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = [
                (d, node.node_id)
                for node in self.nodes.values()
                if node.core is not None and (d := node.core.next_deadline_ms()) is not None
            ]
            next_tick = min(due, default=(float("inf"), -1))
            next_message = self._queue[0][0] if self._queue else float("inf")
            if min(next_tick[0], next_message) > end_ms:
                break
            if next_message <= next_tick[0]:
                self.now_ms, _order, message = heapq.heappop(self._queue)
                self._deliver(message)
            else:
                self.now_ms = max(self.now_ms, next_tick[0])
                node = self.nodes[next_tick[1]]
                assert node.core is not None
                node.core.tick(self.now_ms)
                self._settle(node)
        self.now_ms = end_ms

    @property
    def leader(self) -> Node | None:
        """The node that leads the highest epoch, among those that are reachable."""
        leading = [
            node
            for node in self.nodes.values()
            if node.core is not None and node.core.is_leader and node.node_id not in self.cut
        ]
        return max(leading, key=lambda n: n.core.epoch if n.core else -1, default=None)

    def wait_for_leader(self, limit_ms: float = 60_000) -> Node:
        """Run until there is a leader that has committed its own epoch."""
        waited = 0.0
        while waited < limit_ms:
            leader = self.leader
            if (
                leader is not None
                and self.committed
                and leader.core is not None
                and self.committed[-1].epoch == leader.core.epoch
            ):
                return leader
            self.run(50)
            waited += 50
        raise AssertionError("no leader")

    def propose(self, *values: bytes) -> None:
        leader = self.leader
        assert leader is not None
        assert leader.core is not None
        leader.core.propose(values)
        self._settle(leader)

    def crash(self, node_id: int) -> None:
        self.nodes[node_id].core = None
        self.nodes[node_id].applied = []

    def restart(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.start(self.now_ms)
        self._settle(node)

    def values(self, node_id: int) -> list[bytes]:
        """Return the records (not control records) that a node applied."""
        return [
            value
            for batch in self.nodes[node_id].applied
            if not batch.is_control
            for value in batch.values
        ]

    # ---- the machinery

    def _deliver(self, message: Message) -> None:
        node = self.nodes[message.destination]
        if node.core is None or {message.source, message.destination} & self.cut:
            return
        node.core.step(message, self.now_ms)
        self._settle(node)

    def _settle(self, node: Node) -> None:
        """Work on a node's Readys as the shell does; maybe crash in the middle of one."""
        core = node.core
        while core is not None and core.has_ready():
            ready = core.ready(int(self.now_ms))
            crash_at = self.rng.randrange(3) if self.rng.random() < self.crash_rate else None
            if crash_at == 0:
                self.crash(node.node_id)
                return
            if ready.election_state is not None:
                assert node.state is None or ready.election_state.epoch >= node.state.epoch
                node.state = ready.election_state
            if ready.truncate_to is not None:
                node.log.truncate_to(ready.truncate_to)
            if crash_at == 1:
                kept = self.rng.randrange(len(ready.batches) + 1)
                node.log.append(ready.batches[:kept])
                self.crash(node.node_id)
                return
            node.log.append(ready.batches)
            if crash_at == 2:
                self.crash(node.node_id)
                return
            for message in ready.messages:
                self._send(message)
            if ready.install_snapshot is not None:
                self._install(node, core, *ready.install_snapshot)
            core.advance()
            if ready.high_watermark is not None:
                self._apply(node, ready.high_watermark)
            self._check(node, core)

    def _install(self, node: Node, core: RaftCore, source: int, snapshot_id: SnapshotId) -> None:
        origin = self.nodes[source].log
        if origin.snapshot_id == snapshot_id and source not in self.cut and core.may_install(snapshot_id):
            node.log.snapshot_id = snapshot_id
            node.log.snapshot = list(origin.snapshot)
            node.log.batches = []
            node.applied = []
            core.on_snapshot_installed(snapshot_id, self.now_ms)

    def _send(self, message: Message) -> None:
        copies = 2 if self.rng.random() < self.duplicate_rate else 1
        for _ in range(copies):
            if self.rng.random() >= self.drop_rate:
                at_ms = self.now_ms + 1 + self.rng.random() * 20
                heapq.heappush(self._queue, (at_ms, next(self._order), message))

    def _apply(self, node: Node, high_watermark: int) -> None:
        assert high_watermark >= node.high_watermark, "a high watermark never goes back"
        node.high_watermark = high_watermark
        node.applied = [b for b in node.log.everything() if b.end_offset <= high_watermark]
        assert not node.applied or node.applied[-1].end_offset == high_watermark
        common = min(len(node.applied), len(self.committed))
        assert node.applied[:common] == self.committed[:common], "committed prefixes are equal"
        if len(node.applied) > common:
            assert node.core is not None
            new = len(node.applied) - common
            self.committed = list(node.applied)
            self.committed_in += [node.core.epoch] * new

    def _check(self, node: Node, core: RaftCore) -> None:
        if core.is_leader:
            assert self.leaders.setdefault(core.epoch, node.node_id) == node.node_id
            # A leader has everything that was committed in earlier epochs.
            count = bisect_left(self.committed_in, core.epoch)
            earlier, held = self.committed[:count], node.log.everything()[:count]
            assert held == earlier, "a leader lacks what was committed"
        self.trace.append(f"{self.now_ms:.3f} {node.node_id} {core.state.value} {core.epoch}")
