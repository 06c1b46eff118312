"""A replicated cluster in virtual time, with the clients of a test: `KafkaWorld`.

Rules:
1. Time stands still while anything can run, and jumps when nothing can: a session time-out of 45 s
   takes milliseconds. `time.time()` is the world's, too, in the thread that runs it.
2. One seed decides everything random: the run of a seed is the same each time.
3. Clients of `kraftrio` that are made in the world are in its network, without being told: the
   program under test is run as it is.
4. A node that logs an error or ends by itself fails the run: it is a bug of the broker.

Called by: tests, through the fixture `kafka_world` or `kraftrio.testing.KafkaWorld`.
"""

from __future__ import annotations

import inspect
import itertools
import random
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from os import PathLike
from typing import TypeVar
from unittest import mock

import trio

from kraftrio.broker.config.types import PropertyError
from kraftrio.clients import surroundings
from kraftrio.clients.admin.types import GroupDescription
from kraftrio.clients.arguments.values import whole_number
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.clients.producer.batch import RecordMetadata
from kraftrio.testing.arguments import node_config
from kraftrio.testing.explaining.explain import Explanation, Placed, explain
from kraftrio.testing.explaining.gathering import of_world, story_of
from kraftrio.testing.faults.on_demand import Links, NodeFaults
from kraftrio.testing.faults.plan import Fault, check_nodes
from kraftrio.testing.faults.player import FaultPlayer
from kraftrio.testing.faults.requests import DisturbedRequests, RequestFaults
from kraftrio.testing.leftovers import LeftOpen, Leftovers
from kraftrio.testing.node_settings import node_settings
from kraftrio.testing.simulation.cluster import Shape, SimCluster
from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.world import World
from kraftrio.testing.snapshots.snapshot import Snapshot, Start, snapshot_at
from kraftrio.testing.story import aligned
from kraftrio.testing.subjects import LookAt, Subjects
from kraftrio.testing.traffic.traffic import PROGRAM, TEST_MACHINE
from kraftrio.testing.waiting import LAST_EVENTS, Wait
from kraftrio.testing.world_cluster import WorldCluster
from kraftrio.wire.primitives import TopicPartition

T = TypeVar("T")


class KafkaWorld(Subjects, DisturbedRequests):
    """See the module.

    Args:
        seed: decides everything random.
        brokers: how many nodes, each a broker and a controller.
        config: properties of every node, by Kafka's names.
        faults: what happens to it by itself.
        start: what it begins with, instead of empty disks: a snapshot, where one was saved, or a
            log directory of Apache Kafka (see `Snapshot.load`). All clocks begin at its time;
            properties of nodes are not in it.

    Raises:
        ValueError: there cannot be such a world; the text says what is wanted.
        SnapshotError: it cannot begin from `start`; the text says why.
    """

    def __init__(
        self,
        seed: int = 0,
        brokers: int = 3,
        *,
        config: Mapping[str, object] | None = None,
        faults: Sequence[Fault] = (),
        start: Start | None = None,
    ) -> None:
        whole_number("brokers", brokers, 1)
        check_nodes(faults, [f"n{number}" for number in range(1, brokers + 1)])
        self.seed = seed
        self.faults = faults
        self._world = World(f"kafka-world-{seed}")
        self._shape = Shape(brokers, properties={**node_settings(brokers), **node_config(config)})
        self._start = None if start is None else snapshot_at(start, brokers)
        if self._start is not None:
            self._world.start_wall_ms = self._start.wall_ms
        self._life: WorldCluster | None = None
        self._machine_numbers = itertools.count(1)
        self._client_numbers = itertools.count(1)
        self._fork_numbers = itertools.count(1)

    # -- the run ----------------------------------------------------------------------------------

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the world, once the cluster is up; return what it returns.

        Raises:
            SimulationFailure: a node failed, or every task waits for ever.
            Exception: what `main` raises.
            LeftOpen: `main` has left clients or tasks open.
            ValueError: no node can start with `config`; the text says why.
            RuntimeError: it has run already.
            TypeError: `main` is no function.
        """
        if self._life is not None:
            raise RuntimeError("this world has run already: make a new one for each run")
        if not callable(main):
            if inspect.iscoroutine(main):
                main.close()
            raise TypeError(f"run() takes an async function, as in run(main), not {main!r}")
        results: list[T] = []
        failures: list[BaseException] = []

        async def body() -> None:
            async with trio.open_nursery() as nursery:
                try:
                    cluster = SimCluster(self._world, nursery, self._shape)
                except PropertyError as error:
                    failures.append(ValueError(f"config: {error}"))
                    return
                life = self._life = WorldCluster(self._world, cluster)
                await life.begin(self._start)
                nursery.start_soon(FaultPlayer(life.faults).play, self.faults)
                with self.machine(PROGRAM):
                    opened = Leftovers()
                    try:
                        results.append(await main())
                    except trio.Cancelled:
                        raise
                    except BaseException as error:  # what pytest ends tests with, too
                        failures.append(error)
                    names = await opened.close()
                    if names:
                        failures.append(LeftOpen(names))
                for node in cluster.nodes.values():
                    node.resume()  # a paused node cannot end
                nursery.cancel_scope.cancel()

        with _wall_clock_of(self._world):
            self._world.run(body)
        if failures:
            raise failures[0]
        return results[0]

    @contextmanager
    def machine(self, name: str) -> Iterator[None]:
        """Let the clients that are made within the body, or by tasks started there, live on it.

        Raises:
            ValueError: it is a node's, or the one that the test looks from.
        """
        cluster = self._running().cluster
        host = cluster.internet.hosts.get(name)
        if name == TEST_MACHINE or (host is not None and host.is_node):
            raise ValueError(f"machine {name!r} is not one for clients: take another name")
        chance = self._world.rng(f"client-{next(self._machine_numbers)}-{name}")
        network = cluster.new_host(name)
        tokens = (
            surroundings.network.set(lambda: network),
            surroundings.chance.set(lambda: random.Random(chance.getrandbits(64))),
            surroundings.numbers.set(self._client_numbers),
        )
        life = current.set(self._world.incarnate(name))
        try:
            yield
        finally:
            current.reset(life)
            surroundings.numbers.reset(tokens[2])
            surroundings.chance.reset(tokens[1])
            surroundings.network.reset(tokens[0])

    def _running(self) -> WorldCluster:
        if self._life is None:
            raise RuntimeError(
                "this world does not run: make the test `async def`, or pass a function to run()"
            )
        return self._life

    @property
    def now_s(self) -> float:
        """The seconds of virtual time since the run began."""
        return self._world.now_s

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin."""
        return self._running().bootstrap_servers

    def story(self, *, packets: bool = False) -> str:
        """What has happened so far, a line for each event, aligned.

        Args:
            packets: with the bytes and connections of the network, too.
        """
        life = self._life
        cluster, exchanges = (None, None) if life is None else (life.cluster, life.exchanges)
        return aligned(story_of(self._world, cluster, exchanges, packets=packets))

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

        Each answer names the event of the run that decided it, or says that the trace has none.

        Args:
            record: as it was produced or consumed; or a topic, with partition and offset, or with
                `key` or `value` of a record that a program should have sent.

        Raises:
            ValueError: it is not clear which record is meant.
        """
        life = self._running()
        evidence = of_world(self._world, life.cluster, life.exchanges)
        return explain(evidence, record, partition, offset, key, value)

    # -- snapshots --------------------------------------------------------------------------------

    async def snapshot(self) -> Snapshot:
        """Take what all nodes have on their disks at this instant: logs, groups, transactions.

        The nodes and clients do not notice it.
        """
        cluster = self._running().cluster
        await trio.lowlevel.checkpoint()
        wall_ms = self._world.start_wall_ms + int(self._world.now_s * 1000)
        disks = {node_id: node.disk.image() for node_id, node in cluster.nodes.items()}
        return Snapshot(disks, wall_ms)

    def _seconds_of(self, snapshot: Snapshot) -> float:
        """When it was taken, as the story gives times; negative: before this run."""
        return (snapshot.wall_ms - self._world.start_wall_ms) / 1000

    async def restore(self, snapshot: Start) -> None:
        """Set the cluster back to a snapshot; wait until clients can connect.

        Every node is killed, gets its disk from the snapshot, and is started, even if it did not
        run.
        Connections of clients are cut, as at a restart of all nodes. A client that goes on meets a
        cluster that has forgotten what came since, its newest leader epochs, too: open new ones.
        Time goes on, for timers and wall clocks: it is later than at the snapshot. What was done
        to links and clocks stays; disks have nothing wrong with them.

        Raises:
            SnapshotError: it is of a cluster with another number of nodes, or cannot be read.
        """
        life = self._running()
        snapshot = snapshot_at(snapshot, len(life.cluster.nodes))
        self._world.note("world", "back", f"to {self._seconds_of(snapshot):.3f} s")
        life.kill_all()
        await life.begin(snapshot)

    @asynccontextmanager
    async def fork(self, snapshot: Start | None = None) -> AsyncIterator[KafkaWorld]:
        """Run a second cluster in this world that begins as this one is now, or was.

        It is a world as this one, with the same clock and network and nodes of its own, on
        machines such as "fork1-n1": clients reach it by its `bootstrap_servers`. Neither cluster
        knows of the other. It ends with the body.

        Args:
            snapshot: what it begins with; None: what there is now.

        Raises:
            SnapshotError: the snapshot is of a cluster with another number of nodes.
        """
        cluster = self._running().cluster
        if snapshot is None:
            snapshot = await self.snapshot()
        snapshot = snapshot_at(snapshot, len(cluster.nodes))
        other = copy(self)
        prefix = f"fork{next(self._fork_numbers)}-"
        nodes = SimCluster(
            self._world, cluster.nursery, self._shape, internet=cluster.internet, prefix=prefix
        )
        life = other._life = WorldCluster(self._world, nodes)
        self._world.note("world", "fork", f"{prefix}n1 as at {self._seconds_of(snapshot):.3f} s")
        try:
            await life.begin(snapshot)
            yield other
        finally:
            life.end()
            other._life = None

    async def save(self, path: str | PathLike[str]) -> None:
        """Take a snapshot, and write it to a file for a later `start`; see `Snapshot.save`."""
        (await self.snapshot()).save(path)

    # -- what is in it ----------------------------------------------------------------------------

    async def topics(self) -> dict[str, TopicMetadata]:
        """The topics by name, without Kafka's own."""
        return await self._running().contents.topics()

    async def groups(self) -> dict[str, GroupDescription]:
        """The groups of the classic and the consumer protocol, by id."""
        return await self._running().contents.groups()

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic, and wait until it can be used; -1: the brokers' default."""
        settings = {key: str(value) for key, value in (config or {}).items()}
        await self._running().contents.create_topic(name, partitions, replication_factor, settings)

    async def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[RecordMetadata]:
        """Write a record for each value; a topic that is not there is created."""
        return await self._running().contents.produce(
            topic,
            values,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    async def records(
        self, topic: str, partition: int | None = None, *, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """Return a topic's records up to now, by partition and offset."""
        return await self._running().contents.records(
            topic, partition, read_committed=read_committed
        )

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed."""
        return await self._running().contents.committed(group)

    # -- waiting ----------------------------------------------------------------------------------

    def _nodes_up(self) -> dict[int, bool]:
        return {key: node.is_ready for key, node in self._running().cluster.nodes.items()}

    def _watch(self, what: str, look: LookAt, timeout_s: float) -> Wait:
        life = self._running()
        return Wait(what, lambda: look(life.contents), timeout_s, None, self._last_events)

    def _last_events(self) -> str:
        return "\n".join(self.story().splitlines()[-LAST_EVENTS:])

    # -- faults -----------------------------------------------------------------------------------

    def node(self, node_id: int) -> NodeFaults:
        """A node, to be killed, paused or started again; its disk and its clock.

        Raises:
            ValueError: there is no such node.
        """
        return self._running().faults.node(node_id)

    @property
    def links(self) -> Links:
        """The network, to be cut and healed."""
        return self._running().faults.links

    def _disturb(self, ask: Callable[[RequestFaults], None]) -> None:
        ask(self._running().faults.requests)

    async def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Let another in-sync replica lead a partition; return the id of its node.

        Args:
            to: the id of its node; None: any.

        Raises:
            ValueError: no such replica is in sync.
        """
        return await self._running().faults.moves.move_leader(topic, partition, to)

    async def move_coordinator(
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
        return await self._running().faults.moves.move_coordinator(group, transactional_id, to)

    async def rebalance(self, group: str) -> None:
        """Let a member join a group and leave it again, without reading anything.

        Raises:
            ValueError: the group has no members with partitions.
        """
        await self._running().faults.moves.rebalance(group)

    async def deliver_again(self, group: str, records: int = 1) -> None:
        """Let members get the newest records that they have committed once more.

        They are removed from their group meanwhile, as if they had died before those commits.

        Raises:
            ValueError: the group has no members, or has committed nothing.
        """
        await self._running().faults.moves.deliver_again(group, records)

    def move_clocks(self, seconds: float) -> None:
        """Set every wall clock, of nodes and of the program, ahead (or back); timers stay.

        Retention, for one, goes by wall clocks. A week of timers takes minutes, this takes nothing.
        """
        self._running().faults.move_clocks(seconds)


@contextmanager
def _wall_clock_of(world: World) -> Iterator[None]:
    """Let `time.time` be the world's in this thread."""
    here, time_ns = threading.get_ident(), time.time_ns

    def wall_ns() -> int:
        if threading.get_ident() != here:
            return time_ns()
        return world.start_wall_ms * 1_000_000 + int(world.now_s * 1e9)

    with (
        mock.patch.object(time, "time", lambda: wall_ns() / 1e9),
        mock.patch.object(time, "time_ns", wall_ns),
    ):
        yield
