"""Runs the commands of Raft scenarios (traces/*.txt) on cores that are wired by hand.

Nothing happens by itself: time stands still between commands, and messages wait until they are
delivered. Commands:

    voters IDS [observers IDS]   start nodes with empty disks, at time 0
    wait ID                      go on to the next deadline of a node, and let it act
    deliver [SOURCE->TARGET]     deliver what waits and what comes of it, refused by nodes that are
                                 down; over one link: only what waits there now
    drop SOURCE->TARGET          lose what waits on a link
    refuse SOURCE->TARGET        lose it because nobody listens at the target
    propose ID VALUES            append records, in one batch
    resign ID                    let a leader give up its epoch
    crash ID / restart ID        end a node, with what is under way from and to it and its
                                 connections; start it again
    wipe ID                      give a node that is down an empty disk
    snapshot ID OFFSET           take a snapshot of the log below an offset, and forget that part
    install ID                   finish the snapshot that a node has to fetch
    nodes                        show where every node stands

A trace has a line per effect: node, effect, details, in the order of the core's Ready.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from kraftrio.kraft_meta.raft.messages import (
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    Message,
    Request,
    Vote,
    VoteReply,
)
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.ready import Ready
from kraftrio.kraft_meta.raft.values import LogBatch, OffsetAndEpoch, SnapshotId
from kraftrio.wire.errors import ErrorCode
from tests.unit.kraft_meta.raft.raft_cluster import Node

_MOST_DELIVERIES = 200


class RaftScript:
    """The nodes of a scenario, their messages under way, and the clock."""

    def __init__(self) -> None:
        self._now_ms = 0.0
        self._nodes: dict[int, Node] = {}
        self._under_way: list[Message] = []
        self._wanted: dict[int, tuple[int, SnapshotId]] = {}
        self._roles: dict[int, str] = {}

    def run(self, command: str) -> Iterator[str]:
        """Run a command; yield the lines of its trace."""
        name, *words = command.split()
        commands: dict[str, Callable[..., Iterator[str]]] = {
            "voters": self._voters,
            "wait": self._wait,
            "deliver": self._deliver,
            "drop": self._drop,
            "refuse": self._refuse,
            "propose": self._propose,
            "resign": self._resign,
            "crash": self._crash,
            "restart": self._restart,
            "wipe": self._wipe,
            "snapshot": self._snapshot,
            "install": self._install,
            "nodes": self._show,
        }
        return commands[name](*words)

    # ---- commands

    def _voters(self, *words: str) -> Iterator[str]:
        voters = [int(word) for word in words[: _index(words, "observers")]]
        observers = [int(word) for word in words[len(voters) + 1 :]]
        for node_id in (*voters, *observers):
            self._nodes[node_id] = Node(node_id, voters, random.Random(node_id))
            yield from self._restart(str(node_id))

    def _wait(self, word: str) -> Iterator[str]:
        core = self._core(int(word))
        deadline_ms = core.next_deadline_ms()
        assert deadline_ms is not None
        self._now_ms = max(self._now_ms, deadline_ms)
        yield f"{word} time      {self._now_ms:.0f} ms"
        core.tick(self._now_ms)
        yield from self._settle(int(word))

    def _deliver(self, link: str = "") -> Iterator[str]:
        if link:
            for message in self._take(link):
                yield from self._step(message)
            return
        for _ in range(_MOST_DELIVERIES):
            if not self._under_way:
                return
            yield from self._step(self._under_way.pop(0))
        raise AssertionError("messages go on for ever")

    def _drop(self, link: str) -> Iterator[str]:
        return (f"{message.source} lost      {_shown(message)}" for message in self._take(link))

    def _refuse(self, link: str) -> Iterator[str]:
        for message in self._take(link):
            yield from self._refused(message)

    def _propose(self, word: str, *values: str) -> Iterator[str]:
        self._core(int(word)).propose([value.encode() for value in values])
        return self._settle(int(word))

    def _resign(self, word: str) -> Iterator[str]:
        self._core(int(word)).resign(self._now_ms)
        return self._settle(int(word))

    def _crash(self, word: str) -> Iterator[str]:
        self._nodes[int(word)].core = None
        self._roles.pop(int(word), None)
        self._under_way = [m for m in self._under_way if int(word) not in (m.source, m.destination)]
        for node_id, node in sorted(self._nodes.items()):
            fetch = None if node.core is None else node.core.fetch_under_way
            if node.core is not None and fetch is not None and fetch.destination == int(word):
                yield f"{node_id} broken    connection to {word}"
                node.core.peer_unreachable(int(word), self._now_ms, refused=False)
                yield from self._settle(node_id)

    def _restart(self, word: str) -> Iterator[str]:
        self._nodes[int(word)].start(self._now_ms)
        return self._settle(int(word))

    def _wipe(self, word: str) -> Iterator[str]:
        node = self._nodes[int(word)]
        assert node.core is None, "only a node that is down loses its disk"
        self._nodes[int(word)] = Node(node.node_id, node.voters, node.rng)
        return iter(())

    def _snapshot(self, word: str, offset: str) -> Iterator[str]:
        snapshot_id = self._nodes[int(word)].log.take_snapshot(int(offset))
        self._core(int(word)).log.on_snapshot_written(snapshot_id)
        yield f"{word} snapshot  {_point(snapshot_id)}"

    def _install(self, word: str) -> Iterator[str]:
        node, core = self._nodes[int(word)], self._core(int(word))
        source, snapshot_id = self._wanted.pop(int(word))
        if core.snapshots.begin(snapshot_id):
            node.log.snapshot_id = snapshot_id
            node.log.snapshot = list(self._nodes[source].log.snapshot)
            node.log.batches = []
            core.snapshots.on_installed(snapshot_id, self._now_ms)
            yield f"{word} install   {_point(snapshot_id)} from={source}"
        else:
            core.snapshots.on_failed(self._now_ms)
            yield f"{word} install   refused"
        core.tick(self._now_ms)
        yield from self._settle(int(word))

    def _show(self) -> Iterator[str]:
        yield "node role         epoch leader  log    durable committed"
        for node_id, node in sorted(self._nodes.items()):
            core = node.core
            if core is None:
                yield f"{node_id:4} down"
                continue
            log = core.log
            leader = "-" if core.leader_id < 0 else str(core.leader_id)
            committed = "-" if log.high_watermark is None else str(log.high_watermark)
            believed = "" if core.memory.is_proven else "  not believed"
            yield (
                f"{node_id:4} {core.state.value:12} {core.epoch:5} {leader:>6}  "
                f"{_point(log.end):6} {log.stable_end_offset:7} {committed:>9}{believed}"
            )

    # ---- the machinery

    def _core(self, node_id: int) -> RaftCore:
        core = self._nodes[node_id].core
        assert core is not None, f"node {node_id} is down"
        return core

    def _take(self, link: str) -> list[Message]:
        source, target = map(int, link.split("->"))
        taken = [m for m in self._under_way if (m.source, m.destination) == (source, target)]
        self._under_way = [m for m in self._under_way if m not in taken]
        assert taken, f"nothing is under way on {link}"
        return taken

    def _refused(self, message: Message) -> Iterator[str]:
        """Let the sender of a request know that nobody listens there; answers are lost."""
        source = message.source
        yield f"{source} refused   {_shown(message)}"
        if isinstance(message, Request):
            self._core(source).peer_unreachable(message.destination, self._now_ms, refused=True)
            yield from self._settle(source)

    def _step(self, message: Message) -> Iterator[str]:
        if self._nodes[message.destination].core is None:
            yield from self._refused(message)
            return
        yield f"{message.destination} receive   {_shown(message)}"
        self._core(message.destination).step(message, self._now_ms)
        yield from self._settle(message.destination)

    def _settle(self, node_id: int) -> Iterator[str]:
        """Do what the core asks for, as the shell does."""
        node, core = self._nodes[node_id], self._core(node_id)
        yield from self._role(node_id)
        while core.has_ready():
            ready = core.ready(int(self._now_ms))
            yield from self._do(node, ready)
            core.advance()
            yield from self._role(node_id)

    def _role(self, node_id: int) -> Iterator[str]:
        core = self._core(node_id)
        role = f"{core.state.value} epoch={core.epoch}"
        if self._roles.get(node_id) != role:
            self._roles[node_id] = role
            yield f"{node_id} role      {role}"

    def _do(self, node: Node, ready: Ready) -> Iterator[str]:
        node_id, state = node.node_id, ready.election_state
        if state is not None:
            node.state = state
            yield (
                f"{node_id} write     epoch={state.epoch} leader={state.leader_id} voted="
                f"{state.voted_id} committed={state.committed_offset}"
            )
        if ready.truncate_to is not None:
            node.log.truncate_to(ready.truncate_to)
            yield f"{node_id} cut       to={ready.truncate_to}"
        node.log.append(ready.batches)
        for batch in ready.batches:
            yield f"{node_id} append    {_batch(batch)}"
        for message in ready.messages:
            self._under_way.append(message)
            yield f"{node_id} send      {_shown(message)}"
        if ready.install_snapshot is not None:
            self._wanted[node_id] = ready.install_snapshot
            source, snapshot_id = ready.install_snapshot
            yield f"{node_id} download  {_point(snapshot_id)} from={source}"
        if ready.high_watermark is not None:
            yield f"{node_id} commit    below={ready.high_watermark}"


def _index(words: tuple[str, ...], word: str) -> int:
    return words.index(word) if word in words else len(words)


def _point(point: OffsetAndEpoch | SnapshotId) -> str:
    offset, epoch = point
    return f"{offset}@{epoch}"


def _batch(batch: LogBatch) -> str:
    what = "LeaderChange" if batch.is_control else b" ".join(batch.values).decode()
    return f"{_point(OffsetAndEpoch(batch.base_offset, batch.epoch))}:{what}"


def _shown(message: Message) -> str:
    """Return a message in one line: way, kind, and what makes a difference."""
    fields = [f"epoch={message.epoch}"]
    match message:
        case Vote():
            fields.append(f"end={_point(message.last_offset_and_epoch)}")
            fields += ["pre_vote"] * message.pre_vote
        case VoteReply():
            fields.append("granted" if message.vote_granted else "refused")
            fields += ["pre_vote"] * message.pre_vote
        case EndQuorumEpoch():
            fields.append("successors=" + ",".join(map(str, message.preferred_successors)))
        case Fetch():
            fields.append(
                f"end={_point(OffsetAndEpoch(message.fetch_offset, message.last_fetched_epoch))}"
            )
            fields.append(f"known={message.high_watermark}")
            fields += ["uncounted"] * (not message.is_counted)
        case FetchReply():
            fields.append(f"committed={message.high_watermark}")
            if message.diverging is not None:
                fields.append(f"diverging={_point(message.diverging)}")
            if message.snapshot_id is not None:
                fields.append(f"snapshot={_point(message.snapshot_id)}")
            fields += [_batch(batch) for batch in message.batches]
    if not isinstance(message, Request):
        if message.leader_id >= 0:
            fields.append(f"leader={message.leader_id}")
        if message.error is not ErrorCode.NONE:
            fields.append(message.error.name)
    kind = type(message).__name__
    return f"{message.source}->{message.destination} {kind} {' '.join(fields)}"
