"""Whole nodes in one world: production code on simulated disks, networks and clocks.

Owns: `SimNode` (one machine and the lives of the process on it) and `SimCluster`. Rules:
1. A node is a `broker.node.Node` as the command line runs it; only its `Environment` is replaced.
   From one life to the next it keeps its disk.
2. A crash stops a process between two steps of its tasks: at that instant its disk and network are
   taken from it, so that nothing its `finally` blocks do has any effect; its log lines are dropped.
3. A node that ends by itself, or logs an error, fails the simulation, unless a fault explains it.
4. Work in threads runs on the loop, before or after a random delay of the disk, and like a thread
   it is not abandoned when its caller is cancelled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.start_errors import NodeError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.node import Node
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.net.transport import Network
from kraftrio.testing.simulation.disk import SimDisk
from kraftrio.testing.simulation.disk_image import DiskImage
from kraftrio.testing.simulation.incarnation import Incarnation, current
from kraftrio.testing.simulation.network import HostNetwork, Internet, LinkQuality
from kraftrio.testing.simulation.world import SimulationFailure, World, describe

BROKER_PORT = 9092
CONTROLLER_PORT = 9093
_STOP_DEADLINE_S = 60.0


class SimClock(Clock):
    """A node's clocks: Trio's for deadlines, and a wall clock of its own."""

    __slots__ = ("_world", "drift", "offset_ms")

    def __init__(self, world: World) -> None:
        self._world = world
        self.drift = 0.0  # how much faster than the world's time it runs; 0.01: by one percent
        self.offset_ms = 0.0

    def monotonic_ms(self) -> float:
        """Trio's clock, plus the work done in this turn, for which the node will be busy."""
        return (self._world.now_s + self._world.work.owed_s(current.get())) * 1000

    def ticks_ns(self) -> int:
        return int(self.monotonic_ms() * 1_000_000)

    def wall_ms(self) -> int:
        now_ms = self._world.now_s * 1000
        start_ms = self._world.start_wall_ms
        return start_ms + int(now_ms * (1 + self.drift) + self.offset_ms)


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """How long work in threads takes, and whether it is done after that time or before.

    Attributes:
        works_last: None: drawn each time.
    """

    shortest_s: float = 0.0002
    longest_s: float = 0.003
    works_last: bool | None = None


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Sizes of logs that are smaller than settings allow; None: as they are set."""

    tail_cache_bytes: int | None = None  # of newest records in a node's memory
    segment_bytes: int | None = None
    metadata_segment_bytes: int | None = None

    def apply(self, node: Node) -> None:
        """Set them in a node that was made and does not run yet."""
        if self.tail_cache_bytes is not None:
            resources = node._storage.log_manager.factory.resources
            resources.tail_budget.limit_bytes = self.tail_cache_bytes
        if self.metadata_segment_bytes is not None:
            node._storage.metadata_log._segment_bytes = self.metadata_segment_bytes
        if self.segment_bytes is not None:
            limit, original = self.segment_bytes, node._dynamic.log_config

            def log_config(image: MetadataImage, topic: str) -> LogConfig:
                config = original(image, topic)
                return replace(config, segment_bytes=min(limit, config.segment_bytes))

            node._dynamic.log_config = log_config  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class Shape:
    """Which nodes there are, and their properties."""

    node_count: int = 3
    separate_controllers: bool = False  # of node_count nodes each
    properties: Mapping[str, str] = field(default_factory=dict)
    first_credentials: tuple[UserScramCredentialRecord, ...] = ()

    def roles(self) -> dict[int, str]:
        """Roles by node id."""
        ids = range(1, self.node_count + 1)
        if not self.separate_controllers:
            return dict.fromkeys(ids, "broker,controller")
        return {**dict.fromkeys(ids, "broker"), **{100 + i: "controller" for i in ids}}


class SimNode:
    """See the module."""

    def __init__(self, cluster: SimCluster, node_id: int, roles: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = rng
        self.node_id = node_id
        self.roles = roles
        self.name = cluster.name_of(node_id)
        self.clock = SimClock(cluster.world)
        self.disk = SimDisk(self.clock.wall_ms)
        self.speed = DiskSpeed()
        self.config = BrokerConfig(cluster.properties(node_id, roles), host_name=lambda: self.name)
        self.node: Node | None = None
        self.incarnation: Incarnation | None = None
        self.ready = trio.Event()  # it serves clients
        self._network: HostNetwork | None = None
        self._scope = trio.CancelScope()
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self._ended.set()

    @property
    def is_running(self) -> bool:
        return self.incarnation is not None

    @property
    def is_ready(self) -> bool:
        return self.ready.is_set()

    @property
    def is_paused(self) -> bool:
        return self.incarnation is not None and self.incarnation.is_paused

    @property
    def is_stopping(self) -> bool:
        return self.incarnation is not None and self._stopping.is_set()

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    # -- what invariants look at ------------------------------------------------------------------

    @property
    def quorum(self) -> QuorumService:
        assert self.node is not None
        return self.node._quorum

    @property
    def metadata_log(self) -> MetadataLog:
        assert self.node is not None
        return self.node._storage.metadata_log

    @property
    def replica_manager(self) -> ReplicaManager | None:
        """The replicas of the running node, if it is a broker and has not closed their logs."""
        if self.node is None or self.node._broker is None:
            return None
        manager = self.node._broker.services.replica_manager
        if self.is_stopping and any(
            replica.log.durability.is_closed
            for replica in manager.hosted.partitions()
            if replica.state.role is not Role.OFFLINE  # a failed directory closes them before
        ):
            return None
        return manager

    # -- a life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process; this does not wait until it is up."""
        assert self.incarnation is None, f"{self.name} is running"
        self.incarnation = self._world.incarnate(self.name)
        self._world.disturbances += 1  # it listens, but answers nobody yet
        self._scope = trio.CancelScope()
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self._network = HostNetwork(self._cluster.internet, self.name)
        self._world.note(self.name, "start", repr(self.incarnation))
        self._cluster.nursery.start_soon(self._live, self.incarnation)

    async def _live(self, incarnation: Incarnation) -> None:
        current.set(incarnation)
        ended, stopping, network = self._ended, self._stopping, self._network
        assert network is not None
        environment = Environment(
            fs=self.disk,
            clock=self.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            network=network,
            run_in_thread=self._run_in_thread,
        )
        failure: BaseException | None = None
        try:
            with self._scope:
                self.node = Node(
                    self.config,
                    environment,
                    lambda _line: self._on_ready(incarnation),
                    self._cluster.shape.first_credentials,
                )
                self._cluster.files.apply(self.node)
                self._cluster.on_made(self.node)
                await self.node.run_until(stopping)
        except BaseException as error:
            if not incarnation.is_alive:
                return  # a dead process raises nothing
            if _is_cancellation(error):
                raise  # of the whole simulation
            failure = error
        finally:
            ended.set()
        if incarnation.is_alive:
            self._on_end(incarnation, failure, stopping.is_set())

    def _on_ready(self, incarnation: Incarnation) -> None:
        if incarnation.is_alive:
            self.ready.set()
            self._end_start()
            self._world.note(self.name, "ready", repr(incarnation))

    def _end_start(self) -> None:
        self._world.disturbances -= 1
        self._world.calm_since_s = max(self._world.calm_since_s, self._world.now_s)

    def _on_end(
        self, incarnation: Incarnation, failure: BaseException | None, was_asked: bool
    ) -> None:
        self._leave()
        if failure is None and was_asked:
            self._world.note(self.name, "stop", repr(incarnation))
            return
        text = "ended by itself" if failure is None else describe(failure)
        self._world.note(self.name, "end", text)
        if failure is None or not _is_plain(failure) or not self._world.tolerates(text):
            error = SimulationFailure(f"{incarnation!r} ended: {text}")
            error.__cause__ = failure
            self._world.fail(error)

    def _leave(self) -> None:
        """Take from the process what the kernel takes from a dead one."""
        assert self.incarnation is not None
        if self.is_ready:
            self.ready = trio.Event()
        else:
            self._end_start()
        self.incarnation.is_alive = False
        self._world.forget_work(self.incarnation)
        if self.incarnation.is_paused:
            self._world.resume(self.incarnation)
        self.incarnation = None
        self.node = None
        if self._network is not None:
            self._network.is_dead = True
            self._network = None
        self._cluster.internet.kill_process(self._cluster.internet.host(self.name))
        self.disk = self.disk.after_kill()

    # -- faults -----------------------------------------------------------------------------------

    def crash(self, *, power_cut: bool = False) -> None:
        """Kill the process now, or cut the machine's power."""
        if self.incarnation is None:
            return
        self._world.note(self.name, "crash", "power cut" if power_cut else "kill -9")
        disk, scope = self.disk, self._scope
        if power_cut:
            self._cluster.internet.cut_power(self._cluster.internet.host(self.name))
        self._leave()
        if power_cut:
            self.disk = disk.after_power_cut(self._rng)
        scope.cancel()

    def load(self, image: DiskImage) -> None:
        """Replace the disk, while no process runs, by one with these contents."""
        assert self.incarnation is None, f"{self.name} is running"
        self.disk = SimDisk.of(image, self.clock.wall_ms)

    def restore(self) -> None:
        """Give the machine its power back, if it has none."""
        self._cluster.internet.restore_power(self._cluster.internet.host(self.name))

    async def stop(self) -> None:
        """Ask for a graceful stop, and wait for it; the simulation fails if it takes too long."""
        if self.incarnation is None:
            return
        self._world.note(self.name, "term", "")
        ended, incarnation = self._ended, self.incarnation
        self._stopping.set()
        with trio.move_on_after(_STOP_DEADLINE_S):
            await ended.wait()
            return
        if incarnation.is_alive and not incarnation.is_paused:
            text = f"{incarnation!r} did not stop within {_STOP_DEADLINE_S:g} s"
            self._world.fail(SimulationFailure(text))

    def pause(self) -> None:
        """Stop the process as SIGSTOP does; its kernel goes on."""
        if self.incarnation is not None and not self.incarnation.is_paused:
            self._world.note(self.name, "pause", "")
            self._world.pause(self.incarnation)

    def resume(self) -> None:
        if self.incarnation is not None and self.incarnation.is_paused:
            self._world.note(self.name, "resume", "")
            self._world.resume(self.incarnation)

    async def _run_in_thread(self, work: Callable[[], object]) -> None:
        delay_s = self._rng.uniform(self.speed.shortest_s, self.speed.longest_s)
        works_last = self.speed.works_last
        if works_last is None:
            works_last = self._rng.random() < 0.5
        with trio.CancelScope(shield=True):
            in_thread = self._world.work.in_thread
            if works_last:
                await trio.sleep(delay_s)
                with in_thread():
                    work()
            else:
                try:
                    with in_thread():
                        work()
                finally:
                    await trio.sleep(delay_s)


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancellation, error.exceptions))
    return isinstance(error, trio.Cancelled)


def _is_plain(failure: BaseException) -> bool:
    """Whether the node ended with an error that it reports in one sentence."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return isinstance(failure, NodeError)


class SimCluster:
    """All nodes of a simulation, and the network between them and their clients.

    Args:
        internet: that of another cluster, to share it; None: one of its own.
        prefix: of the names of its nodes, to tell them from those of other clusters there.
    """

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        shape: Shape | None = None,
        quality: LinkQuality | None = None,
        *,
        internet: Internet | None = None,
        prefix: str = "",
    ) -> None:
        self.world = world
        self.nursery = nursery
        self.shape = shape if shape is not None else Shape()
        self.internet = internet if internet is not None else Internet(world, quality)
        self._prefix = prefix
        self._voters = ",".join(
            f"{node_id}@{self.name_of(node_id)}:{CONTROLLER_PORT}"
            for node_id, roles in self.shape.roles().items()
            if "controller" in roles
        )
        self.files = FileSizes()
        self.on_made: Callable[[Node], object] = lambda _node: None  # before it runs
        self.secured: Callable[[Network], Network] = lambda network: network  # of clients
        self.weak: set[int] = set()  # lost power: may be in an ISR without all that was in it
        self.wiped: set[int] = set()  # came back without their memory, and are not in sync yet
        self.nodes: dict[int, SimNode] = {}
        for node_id, roles in self.shape.roles().items():
            self.internet.host(self.name_of(node_id)).is_node = True
            rng = world.rng(f"{prefix}node-{node_id}")
            self.nodes[node_id] = SimNode(self, node_id, roles, rng)

    def name_of(self, node_id: int) -> str:
        """The name of a node's machine."""
        return f"{self._prefix}n{node_id}"

    @property
    def brokers(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def controllers(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    def lost_power(self, node_id: int) -> bool:
        """Return whether a node may lack what it had, since the machine lost its power."""
        return node_id in self.weak

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Where clients begin."""
        return [(node.name, BROKER_PORT) for node in self.brokers]

    def properties(self, node_id: int, roles: str) -> dict[str, str]:
        """The server.properties of a node."""
        name = self.name_of(node_id)
        listeners = []
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://{name}:{BROKER_PORT}")
        if "controller" in roles:
            listeners.append(f"CONTROLLER://{name}:{CONTROLLER_PORT}")
        return {
            "node.id": str(node_id),
            "process.roles": roles,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self._voters,
            "log.dirs": "/data",
            **self.shape.properties,
        }

    def start(self) -> None:
        """Start every node that does not run."""
        for node in self.nodes.values():
            node.restore()
            if not node.is_running:
                node.start()

    async def wait_until(
        self, condition: Callable[[], bool], what: str, deadline_s: float = 60.0
    ) -> None:
        """Wait in simulated time; the simulation fails if the condition does not come true."""
        with trio.move_on_after(deadline_s):
            while not condition():  # noqa: ASYNC110 (nobody could set an event)
                await trio.sleep(0.05)
            return
        await self._fail_late(deadline_s, what)

    async def _fail_late(self, deadline_s: float, what: str) -> None:
        self.world.fail(SimulationFailure(f"not within {deadline_s:g} s: {what}"))
        await trio.lowlevel.checkpoint()

    def all_ready(self) -> bool:
        return all(node.is_ready for node in self.brokers)

    async def wait_all_ready(self, deadline_s: float = 60.0) -> None:
        """As `wait_until`, for all brokers to be up, but return at the very instant."""
        with trio.move_on_after(deadline_s):
            for node in self.brokers:
                await node.ready.wait()
            return
        await self._fail_late(deadline_s, "all brokers are up")

    def new_host(self, name: str) -> HostNetwork:
        """Return the network of a new machine for a client."""
        return HostNetwork(self.internet, name)

    def client_network(self, name: str) -> Network:
        """Return the network of a new machine for a client that logs in where that is required."""
        return self.secured(self.new_host(name))
