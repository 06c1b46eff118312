"""Several consensus cores wired by plain calls, with a seeded network, crashes and invariants.

After every event: one leader per epoch, one vote per epoch and voter, committed prefixes equal,
high watermarks never go back, what a leader committed is never lost, and no message claims more
than is durable. Disks keep what was made durable, and lose the rest. Messages are lost, doubled,
overtake each other, and meet links that are cut in one direction or both; a node that is down
refuses, and a link that flaps refuses now and then though its node lives.
"""

from __future__ import annotations

import heapq
import itertools
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.messages import Fetch, Message, Request, Vote
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, SnapshotId
from kraftrio.kraft_meta.raft.voters import VoterSet

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
            voters=VoterSet.of_ids(self.voters),
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
        self.flap_rate = 0.0
        self.cut: set[int] = set()
        self.cut_links: set[tuple[int, int]] = set()  # from, to
        self.flapping: set[tuple[int, int]] = set()
        self.sent: Counter[type] = Counter()
        self.committed: list[LogBatch] = []
        self.committed_in: list[int] = []  # the epoch in which each was first seen committed
        self.leaders: dict[int, int] = {}
        self.trace: list[str] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
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
                self.now_ms, _order, event = heapq.heappop(self._queue)
                event()
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
        for node in self.nodes.values():
            fetch = None if node.core is None else node.core.fetch_under_way
            if fetch is not None and fetch.destination == node_id:
                self._later(1 + self.rng.random(), partial(self._break, fetch))

    def _break(self, fetch: Fetch) -> None:
        """Let a node know that the connection broke on which it waits for an answer."""
        core = self.nodes[fetch.source].core
        link = fetch.source, fetch.destination
        if core is not None and core.fetch_under_way is fetch and not self._is_cut(*link):
            self._refuse(fetch, refused=False)

    def wipe(self, node_id: int, *, state: bool = True, log: bool = True) -> None:
        """Give a node that is down another disk, or take only a part of what is on it."""
        node = self.nodes[node_id]
        assert node.core is None
        if state:
            node.state = None
        if log:
            node.log = MemoryLog()

    def unproven(self) -> list[int]:
        """The voters that may not be believed, by their disks."""
        found = []
        for voter in self.voters:
            state = self.nodes[voter].state
            lost = state is not None and state.committed_offset > self.nodes[voter].log.end_offset
            if state is None or not state.is_proven or lost:
                found.append(voter)
        return found

    def restart(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.start(self.now_ms)
        self._settle(node)

    def heal(self) -> None:
        """End every fault; all nodes run again."""
        self.drop_rate = self.duplicate_rate = self.crash_rate = self.flap_rate = 0
        self.cut, self.cut_links, self.flapping = set(), set(), set()
        for node in self.nodes.values():
            if node.core is None:
                self.restart(node.node_id)

    def values(self, node_id: int) -> list[bytes]:
        """Return the records (not control records) that a node applied."""
        return [
            value
            for batch in self.nodes[node_id].applied
            if not batch.is_control
            for value in batch.values
        ]

    # ---- the machinery

    def _is_cut(self, source: int, destination: int) -> bool:
        return bool({source, destination} & self.cut) or (source, destination) in self.cut_links

    def _deliver(self, message: Message) -> None:
        link = message.source, message.destination
        if self._is_cut(*link):
            return
        node = self.nodes[message.destination]
        flaps = link in self.flapping or self.rng.random() < self.flap_rate
        if node.core is None or (flaps and isinstance(message, Request)):
            self._refuse(message, refused=node.core is None or self.rng.random() < 0.7)
            return
        node.core.step(message, self.now_ms)
        self._settle(node)

    def _refuse(self, message: Message, *, refused: bool) -> None:
        """Let the sender know that nobody listens there, or that the connection broke."""
        sender = self.nodes[message.source]
        if isinstance(message, Request) and sender.core is not None:
            sender.core.peer_unreachable(message.destination, self.now_ms, refused=refused)
            self._settle(sender)

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
                _check_election_state(node.state, ready.election_state)
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
                self._check_message(node, message)
                self._send(message)
            if ready.install_snapshot is not None:
                fetch = partial(self._install, node, core, *ready.install_snapshot)
                self._later(self.rng.random() * 500, fetch)
            core.advance()
            if ready.high_watermark is not None:
                self._apply(node, ready.high_watermark)
            self._check(node, core)

    def _install(self, node: Node, core: RaftCore, source: int, snapshot_id: SnapshotId) -> None:
        """End the fetch of a snapshot, if the node still lives and its source still has it."""
        if node.core is not core:
            return
        origin = self.nodes[source].log
        is_there = origin.snapshot_id == snapshot_id and not self._is_cut(source, node.node_id)
        if not (is_there and core.snapshots.begin(snapshot_id)):
            core.snapshots.on_failed(self.now_ms)
        else:
            node.log.snapshot_id = snapshot_id
            node.log.snapshot = list(origin.snapshot)
            node.log.batches = []
            node.applied = []
            core.snapshots.on_installed(snapshot_id, self.now_ms)
        self._settle(node)

    def _send(self, message: Message) -> None:
        self.sent[type(message)] += 1
        copies = 2 if self.rng.random() < self.duplicate_rate else 1
        for _ in range(copies):
            if self.rng.random() >= self.drop_rate:
                self._later(1 + self.rng.random() * 20, partial(self._deliver, message))

    def _later(self, delay_ms: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), event))

    def _check_message(self, node: Node, message: Message) -> None:
        if isinstance(message, Fetch):
            assert message.fetch_offset <= node.log.end_offset, (
                "a fetch ends where the durable log does"
            )
        elif isinstance(message, Vote) and not message.pre_vote:
            assert node.state is not None
            assert node.state.voted_id == node.node_id or node.state.epoch > message.epoch

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


def _check_election_state(before: ElectionState | None, after: ElectionState) -> None:
    """A voter votes once per epoch and knows one leader of it."""
    if before is None:
        return
    assert after.epoch >= before.epoch
    if after.epoch == before.epoch:
        assert before.voted_id in (-1, after.voted_id), "a vote is given once"
        assert -1 in (before.leader_id, after.leader_id) or before.leader_id == after.leader_id
