"""Brokers with real sockets for a test: `KafkaBroker`, one, and `KafkaCluster`, several.

Rules:
1. They live in a thread of their own (`loop_thread`), or in a process of their own, so that a test
   may block or run any event loop. Every method waits for its result, and any thread may call it.
   The class is flat, since these are the words of tests; what they do is in the modules named here.
2. `stop` leaves nothing behind: no thread, task, socket, process or file.

Called by: tests, through `kraftrio.testing`; the fixtures of `plugin`; `kraftrio test-broker`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from os import PathLike, fspath
from types import TracebackType
from typing import Self, TypeVar

import trio

from kraftrio.clients.admin.types import GroupDescription
from kraftrio.clients.arguments.values import whole_number
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.clients.producer.batch import RecordMetadata
from kraftrio.testing.arguments import node_config
from kraftrio.testing.contents import Contents, CurrentContents
from kraftrio.testing.explaining.evidence import Evidence
from kraftrio.testing.explaining.exchanges import Exchanges
from kraftrio.testing.explaining.explain import Explanation, Placed, explain
from kraftrio.testing.explaining.gathering import of_nodes
from kraftrio.testing.faults.moves import Moves
from kraftrio.testing.faults.on_sockets import ClusterLinks, ClusterNode
from kraftrio.testing.faults.requests import DisturbedRequests, RequestFaults
from kraftrio.testing.local_nodes import LocalNodes, NodesSpec
from kraftrio.testing.loop_thread import Call, LoopThread, shared_loop
from kraftrio.testing.node_process import NodeProcess
from kraftrio.testing.snapshots.snapshot import Snapshot, Start, snapshot_at
from kraftrio.testing.story import aligned
from kraftrio.testing.subjects import LookAt, Subjects
from kraftrio.testing.waiting import LAST_EVENTS, Seen, Wait
from kraftrio.wire.primitives import TopicPartition

T = TypeVar("T")
_KEPT_BYTES = 16 << 20  # of requests and answers
_REQUEST_TIMEOUT_MS = 5_000  # of what a test asks for itself, also of a paused node


class _Running:
    """The parts of a running cluster; its methods are called in the loop's thread."""

    def __init__(self, nodes: LocalNodes | NodeProcess, nursery: trio.Nursery) -> None:
        self.nodes = nodes
        self.nursery = nursery
        self.requests: RequestFaults | None = None
        self.exchanges: Exchanges | None = None
        self._current = CurrentContents()
        self._opening = trio.Lock()

    async def contents(self) -> Contents:
        """What is in it; the clients for that are opened when they are first wanted."""
        async with self._opening:
            contents = self._current.contents
            if contents is None:
                contents = Contents(
                    self.nodes.bootstrap_servers, request_timeout_ms=_REQUEST_TIMEOUT_MS
                )
                await self.nursery.start(contents.run)
                self._current.contents = contents
        return contents

    async def restore(self, nodes: LocalNodes, snapshot: Snapshot) -> None:
        """Let the nodes be as they were then; clients for looking at them are opened again."""
        async with self._opening:
            self._current.replace(None)
            if self.exchanges is not None:
                self.exchanges.has_past = True
            await nodes.restore(snapshot, self.nursery)

    async def look(self, look: LookAt) -> Seen:
        """Look once at what is waited for."""
        return await look(await self.contents())


class KafkaCluster(Subjects, DisturbedRequests):
    """A cluster for tests; a context manager, or `start` and `stop`.

    Args:
        brokers: how many nodes, each a broker and a controller.
        config: properties of every node, by Kafka's names, as in server.properties.
        folder: where the files go; None: disks in memory, which are the fastest.
        in_process: False: in a process of its own, so that the program's work does not delay it.
        start: what it begins with: a snapshot, where one was saved, or a log directory of Apache
            Kafka (see `Snapshot.load`). The nodes' clocks show the present time, so retention may
            delete old records; properties are not in a snapshot.

    Raises:
        ValueError: there cannot be such a cluster; the text says what is wanted.
        SnapshotError: it cannot begin from `start`; the text says why.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, object] | None = None,
        folder: str | PathLike[str] | None = None,
        in_process: bool = True,
        start: Start | None = None,
    ) -> None:
        whole_number("brokers", brokers, 1)
        settings = node_config(config)
        snapshot = None if start is None else snapshot_at(start, brokers)
        place = None if folder is None else fspath(folder)
        self._spec = NodesSpec(brokers, settings, place, snapshot)
        self._in_process = in_process
        self._stack = ExitStack()
        self._loop: LoopThread | None = None
        self._life: Call[None] | None = None
        self._running: _Running | None = None

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every node, and wait until clients can connect.

        Raises:
            ValueError: no node can start with `config`, or `folder` has something in it where the
                cluster is to begin with a snapshot.
            RuntimeError: it runs already, or a node could not start; the text says why.
        """
        if self._loop is not None:
            raise RuntimeError("this cluster runs already: start it once, or make another one")
        nodes = LocalNodes(self._spec) if self._in_process else NodeProcess(self._spec)
        self._stack.callback(nodes.close)
        loop = self._loop = self._stack.enter_context(shared_loop())
        started: Future[_Running] = Future()
        self._life = loop.call(lambda: _live(nodes, started))
        try:
            self._running = started.result()
        except BaseException:
            self._end()
            raise
        return self

    def stop(self) -> None:
        """End every node at once; what was in memory is gone. Nothing happens if none runs.

        Raises:
            RuntimeError: a node had ended by itself; the text says why.
        """
        failures = self.failures
        self._end()
        if failures:
            raise RuntimeError("; ".join(failures))

    @property
    def failures(self) -> list[str]:
        """Why nodes ended by themselves, if any did."""
        return [] if self._running is None else self._running.nodes.failures()

    @property
    def is_whole(self) -> bool:
        """Whether every node runs, and nothing that a test has done to them lasts."""
        running = self._running
        if running is None or not all(running.nodes.up().values()):
            return False
        is_awaited = running.requests is not None and running.requests.is_awaited
        return not is_awaited and not running.nodes.is_disturbed

    def _end(self) -> None:
        life, self._life, self._running, self._loop = self._life, None, None, None
        with self._stack.pop_all():
            if life is not None:
                life.cancel()
                life.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _started(self) -> tuple[_Running, LoopThread]:
        if self._running is None or self._loop is None:
            raise RuntimeError(
                "this cluster does not run: use it within `with`, or between start() and stop()"
            )
        return self._running, self._loop

    def _call(self, work: Callable[[Contents], Awaitable[T]]) -> T:
        """Do something with the contents of the cluster, and wait for it."""
        running, loop = self._started()

        async def call() -> T:
            return await work(await running.contents())

        return loop.call(call).result()

    # -- what is in it ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin: "HOST:PORT,HOST:PORT"."""
        if self._running is None:
            raise RuntimeError(
                "this cluster has no address yet: use it within `with`, or after start()"
            )
        return self._running.nodes.bootstrap_servers

    @property
    def topics(self) -> dict[str, TopicMetadata]:
        """The topics by name, without Kafka's own: partitions, leaders, replicas, ISR."""
        return self._call(lambda contents: contents.topics())

    @property
    def groups(self) -> dict[str, GroupDescription]:
        """The groups of the classic and the consumer protocol by id: state and members."""
        return self._call(lambda contents: contents.groups())

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic, and wait until it can be used; -1: the brokers' default.

        Raises:
            TopicExistsError, InvalidTopicError, ...: it cannot be created.
        """
        settings = {key: str(value) for key, value in (config or {}).items()}
        self._call(lambda c: c.create_topic(name, partitions, replication_factor, settings))

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[RecordMetadata]:
        """Write a record for each value, and return where they are; text is written as UTF-8.

        A topic that is not there is created.
        """
        return self._call(
            lambda contents: contents.produce(
                topic,
                values,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )

    def records(
        self, topic: str, partition: int | None = None, *, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """Return a topic's records up to now, by partition and offset.

        Args:
            partition: None: of all partitions.
            read_committed: without those of transactions that are open or were aborted.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            ValueError: the topic has no such partition.
        """
        return self._call(
            lambda contents: contents.records(topic, partition, read_committed=read_committed)
        )

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed, by partition."""
        return self._call(lambda contents: contents.committed(group))

    # -- waiting ----------------------------------------------------------------------------------

    def _nodes_up(self) -> dict[int, bool]:
        return self._started()[0].nodes.up()

    def _watch(self, what: str, look: LookAt, timeout_s: float) -> Wait:
        running, loop = self._started()
        last_events = None
        if isinstance(nodes := running.nodes, LocalNodes):
            last_events = partial(_last_events, nodes, running)
        return Wait(what, lambda: running.look(look), timeout_s, loop, last_events)

    # -- faults -----------------------------------------------------------------------------------

    def node(self, node_id: int) -> ClusterNode:
        """A node, to be killed, paused, stopped and started again; its disk and its clock.

        Raises:
            ValueError: there is no such node, or not in this process.
        """
        nodes, running, loop = self._here("end together")
        by_id = nodes.by_id
        if node_id not in by_id:
            known = ", ".join(map(str, by_id))
            raise ValueError(f"there is no node {node_id}: the nodes are {known}")
        return ClusterNode(by_id[node_id], running.nursery, loop)

    @property
    def links(self) -> ClusterLinks:
        """The connections of nodes, to be cut and healed.

        Raises:
            ValueError: the nodes are in another process.
        """
        nodes, _, loop = self._here("have links that cannot be cut")
        return ClusterLinks(nodes.traffic, loop)

    def _disturb(self, ask: Callable[[RequestFaults], None]) -> None:
        _, running, loop = self._here("cannot be disturbed")
        requests = running.requests
        assert requests is not None
        loop.do(lambda: ask(requests))

    def _move(self, move: Callable[[Moves], Awaitable[T]]) -> T:
        nodes = self._started()[0].nodes

        def note(text: str) -> None:
            if isinstance(nodes, LocalNodes):
                nodes.traffic.note("fault", text)

        return self._call(lambda contents: move(Moves(contents, note)))

    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Let another in-sync replica lead a partition; return the id of its node.

        Args:
            to: the id of its node; None: any.

        Raises:
            ValueError: no such replica is in sync.
        """
        return self._move(lambda moves: moves.move_leader(topic, partition, to))

    def move_coordinator(
        self,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        to: int | None = None,
    ) -> int:
        """Let another node coordinate a group or a transactional id; return its id.

        Raises:
            ValueError: neither or both are named, or nobody else is in sync.
        """
        return self._move(lambda moves: moves.move_coordinator(group, transactional_id, to))

    def rebalance(self, group: str) -> None:
        """Let a member join a group and leave it again, without reading anything.

        Raises:
            ValueError: the group has no members with partitions.
        """
        self._move(lambda moves: moves.rebalance(group))

    def deliver_again(self, group: str, records: int = 1) -> None:
        """Let members get the newest records that they have committed once more.

        They are removed from their group meanwhile, as if they had died before those commits.

        Raises:
            ValueError: the group has no members, or has committed nothing.
        """
        self._move(lambda moves: moves.deliver_again(group, records))

    def move_clocks(self, seconds: float) -> None:
        """Set the wall clock of every node ahead (or back), which retention goes by.

        Timers stay, and so does the program's own clock: where those matter, use `kafka_world`.
        """
        for node_id in self._here("have clocks that cannot be moved")[0].by_id:
            self.node(node_id).move_clock(seconds)

    # -- why -------------------------------------------------------------------------------------

    def explain(
        self,
        record: Placed | str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        key: bytes | str | None = None,
        value: bytes | str | None = None,
    ) -> Explanation:
        """Explain why a record is not visible, was read twice, or went to its partition.

        Each answer names the event of the run that decided it, or says that the trace has none. A
        client counts as a machine of its client id. Only what came to a broker is known, so a
        request that never did is none here, and an answer that was sent has arrived.

        Args:
            record: as it was produced or consumed; or a topic, with partition and offset, or with
                `key` or `value` of a record that a program should have sent.

        Raises:
            ValueError: it is not clear which record is meant, or the nodes are in another process.
        """
        nodes, running, loop = self._here("have logs that cannot be looked at")
        return loop.do(
            lambda: explain(_evidence(nodes, running), record, partition, offset, key, value)
        )

    def story(self) -> str:
        """What has happened so far, a line for each event, aligned.

        Nodes with what they log (elections, ISR, rebalances), faults, and what clients asked for,
        each by its client id. The newest 10,000 lines and 16 MB of requests are kept.

        Raises:
            ValueError: the nodes are in another process.
        """
        nodes, running, loop = self._here("have no story")
        return loop.do(lambda: aligned(_evidence(nodes, running).events))

    def begin_story(self) -> None:
        """Forget what has happened so far, as at the beginning of a test."""
        nodes, running, loop = self._here("have no story")

        def forget() -> None:
            assert running.exchanges is not None
            running.exchanges.forget()
            nodes.trace.forget()

        loop.do(forget)

    @property
    def has_story(self) -> bool:
        """Whether `story` can be called now."""
        return self._running is not None and isinstance(self._running.nodes, LocalNodes)

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Take what all nodes have on their disks at this instant: logs, groups, transactions.

        In memory the nodes do not notice it. With a `folder`, the nodes that run are killed, as by
        `kill -9`, and started again once the files are copied: clients' connections are cut.

        Raises:
            ValueError: the nodes are in another process.
        """
        nodes, running, loop = self._here("cannot be copied")
        return loop.call(lambda: nodes.snapshot(running.nursery)).result()

    def restore(self, snapshot: Start) -> None:
        """Set the cluster back to a snapshot, at its addresses; wait for it to serve clients.

        Every node is killed, gets its disk from the snapshot, and is started, even if it did not
        run.
        Connections of clients are cut, as at a restart of all nodes. A client that goes on meets a
        cluster that has forgotten what came since: open new ones. Time goes on.

        Raises:
            SnapshotError: it is of a cluster with another number of nodes.
            ValueError: the nodes are in another process.
        """
        nodes, running, loop = self._here("cannot go back")
        found = snapshot_at(snapshot, self._spec.node_count)
        loop.call(lambda: running.restore(nodes, found)).result()

    def fork(self, snapshot: Start | None = None) -> KafkaCluster:
        """Make a second cluster that begins as this one is now, or was: `with cluster.fork() as b:`

        It is in memory, has addresses of its own, and is to be started and stopped as any other.
        Neither cluster knows of the other.

        Args:
            snapshot: what it begins with; None: what there is now, see `snapshot`.

        Raises:
            SnapshotError: the snapshot is of a cluster with another number of nodes.
            ValueError: the nodes are in another process.
        """
        start = self.snapshot() if snapshot is None else snapshot
        return KafkaCluster(self._spec.node_count, config=self._spec.config, start=start)

    def save(self, path: str | PathLike[str]) -> None:
        """Take a snapshot, and write it to a file for a later `start`; see `Snapshot.save`."""
        self.snapshot().save(path)

    def _here(self, what: str) -> tuple[LocalNodes, _Running, LoopThread]:
        """The nodes, which have to be in this process."""
        running, loop = self._started()
        if not isinstance(running.nodes, LocalNodes):
            raise ValueError(
                f"nodes in a process of their own {what}: make the cluster with in_process=True"
            )
        return running.nodes, running, loop

    # -- all of it --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Delete every topic, group and transaction, and the settings that were changed meanwhile.

        Clients stay connected; members of groups join again. A broker that was reset is like
        a new one, except for users, ACLs and quotas, which stay.
        """
        self._call(lambda contents: contents.reset())


class KafkaBroker(KafkaCluster):
    """A cluster of one node; see `KafkaCluster`."""

    def __init__(
        self,
        *,
        config: Mapping[str, object] | None = None,
        folder: str | PathLike[str] | None = None,
        in_process: bool = True,
        start: Start | None = None,
    ) -> None:
        super().__init__(1, config=config, folder=folder, in_process=in_process, start=start)


def _evidence(nodes: LocalNodes, running: _Running) -> Evidence:
    """What is known of a cluster's run; in its loop's thread."""
    assert running.exchanges is not None
    by_id = {node_id: each.node for node_id, each in nodes.by_id.items()}
    return of_nodes(by_id, nodes.trace, running.exchanges)


def _last_events(nodes: LocalNodes, running: _Running) -> str:
    """What has happened lately."""
    return aligned(_evidence(nodes, running).events[-LAST_EVENTS:])


async def _live(nodes: LocalNodes | NodeProcess, started: Future[_Running]) -> None:
    """Run the nodes of a cluster until this is cancelled, or they could not start."""
    try:
        async with trio.open_nursery() as nursery:
            running = _Running(nodes, nursery)
            if isinstance(nodes, LocalNodes):
                running.requests = RequestFaults(nodes.traffic)
                running.exchanges = Exchanges(nodes.traffic, _KEPT_BYTES)
                running.exchanges.has_past = nodes.has_past
                nodes.on_made = running.requests.stand_before
            try:
                await nodes.start(nursery)
            except Exception as error:
                started.set_exception(error)
                return
            started.set_result(running)
            try:
                await trio.sleep_forever()
            finally:
                nodes.resume()  # a paused node cannot end
    finally:
        with trio.CancelScope(shield=True):
            await nodes.kill()
        if not started.done():
            started.cancel()
