"""Brokers with real sockets for a test: `KafkaBroker`, one, and `KafkaCluster`, several.

Owns the words of tests; `cluster_life` is the way to what runs. Rules:
1. They live in a thread of their own (`loop_thread`), or in a process of their own, so that a test
   may block or run any event loop. Every method waits for its result, and any thread may call it.
   The class is flat, since these are the words of tests; what they do is in the modules named here.
2. `stop` leaves nothing behind: no thread, task, socket, process or file.

Called by: tests, through `kraftrio.testing`; the fixtures of `plugin`; `kraftrio test-broker`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from os import PathLike, fspath
from types import TracebackType
from typing import Self, TypeVar

from kraftrio.clients.admin.types import GroupDescription
from kraftrio.clients.arguments.values import whole_number
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.clients.producer.batch import RecordMetadata
from kraftrio.testing.arguments import node_config
from kraftrio.testing.cluster_life import ClusterLife
from kraftrio.testing.explaining.explain import Explanation, Placed, explain
from kraftrio.testing.faults.moves import Moves
from kraftrio.testing.faults.on_sockets import ClusterLinks, ClusterNode
from kraftrio.testing.faults.requests import DisturbedRequests, RequestFaults
from kraftrio.testing.local_nodes import LocalNodes, NodesSpec
from kraftrio.testing.snapshots.snapshot import Snapshot, Start, snapshot_at
from kraftrio.testing.story import aligned
from kraftrio.testing.subjects import LookAt, Subjects
from kraftrio.testing.waiting import Wait
from kraftrio.wire.primitives import TopicPartition

T = TypeVar("T")


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

    Attributes:
        life: whether it runs, and what the test fixtures ask for.

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
        self.life = ClusterLife(self._spec, in_process=in_process)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every node, and wait until clients can connect.

        Raises:
            ValueError: no node can start with `config`, or `folder` has something in it where the
                cluster is to begin with a snapshot.
            RuntimeError: it runs already, or a node could not start; the text says why.
        """
        self.life.start()
        return self

    def stop(self) -> None:
        """End every node at once; what was in memory is gone. Nothing happens if none runs.

        Raises:
            RuntimeError: a node had ended by itself; the text says why.
        """
        self.life.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- what is in it ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin: "HOST:PORT,HOST:PORT"."""
        return self.life.bootstrap_servers

    @property
    def topics(self) -> dict[str, TopicMetadata]:
        """The topics by name, without Kafka's own: partitions, leaders, replicas, ISR."""
        return self.life.call(lambda contents: contents.topics())

    @property
    def groups(self) -> dict[str, GroupDescription]:
        """The groups of the classic and the consumer protocol by id: state and members."""
        return self.life.call(lambda contents: contents.groups())

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
        self.life.call(lambda c: c.create_topic(name, partitions, replication_factor, settings))

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
        return self.life.call(
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
        return self.life.call(
            lambda contents: contents.records(topic, partition, read_committed=read_committed)
        )

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed, by partition."""
        return self.life.call(lambda contents: contents.committed(group))

    # -- waiting ----------------------------------------------------------------------------------

    def _nodes_up(self) -> dict[int, bool]:
        return self.life.started()[0].nodes.up()

    def _watch(self, what: str, look: LookAt, timeout_s: float) -> Wait:
        return self.life.watch(what, look, timeout_s)

    # -- faults -----------------------------------------------------------------------------------

    def node(self, node_id: int) -> ClusterNode:
        """A node, to be killed, paused, stopped and started again; its disk and its clock.

        Raises:
            ValueError: there is no such node, or not in this process.
        """
        nodes, running, loop = self.life.here("end together")
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
        nodes, _, loop = self.life.here("have links that cannot be cut")
        return ClusterLinks(nodes.traffic, loop)

    def _disturb(self, ask: Callable[[RequestFaults], None]) -> None:
        _, running, loop = self.life.here("cannot be disturbed")
        requests = running.requests
        assert requests is not None
        loop.do(lambda: ask(requests))

    def _move(self, move: Callable[[Moves], Awaitable[T]]) -> T:
        nodes = self.life.started()[0].nodes

        def note(text: str) -> None:
            if isinstance(nodes, LocalNodes):
                nodes.traffic.note("fault", text)

        return self.life.call(lambda contents: move(Moves(contents, note)))

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
        for node_id in self.life.here("have clocks that cannot be moved")[0].by_id:
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
        nodes, running, loop = self.life.here("have logs that cannot be looked at")
        return loop.do(
            lambda: explain(running.evidence(nodes), record, partition, offset, key, value)
        )

    def story(self) -> str:
        """What has happened so far, a line for each event, aligned.

        Nodes with what they log (elections, ISR, rebalances), faults, and what clients asked for,
        each by its client id. The newest 10,000 lines and 16 MB of requests are kept.

        Raises:
            ValueError: the nodes are in another process.
        """
        nodes, running, loop = self.life.here("have no story")
        return loop.do(lambda: aligned(running.evidence(nodes).events))

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Take what all nodes have on their disks at this instant: logs, groups, transactions.

        In memory the nodes do not notice it. With a `folder`, the nodes that run are killed, as by
        `kill -9`, and started again once the files are copied: clients' connections are cut.

        Raises:
            ValueError: the nodes are in another process.
        """
        nodes, running, loop = self.life.here("cannot be copied")
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
        nodes, running, loop = self.life.here("cannot go back")
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

    # -- all of it --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Delete every topic, group and transaction, and the settings that were changed meanwhile.

        Clients stay connected; members of groups join again. A broker that was reset is like
        a new one, except for users, ACLs and quotas, which stay.
        """
        self.life.call(lambda contents: contents.reset())


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
