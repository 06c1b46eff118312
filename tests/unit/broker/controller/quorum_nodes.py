"""Whole quorum nodes in virtual time: service, peers and controller listener on disks and networks
in memory. A quick harness, too:

    quorum = Quorum([1, 2, 3], observers=[9], seed=0)

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        quorum.kill(leader.node_id)

    quorum.run(main)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.exception_groups import innermost
from kraftrio.broker.api.quorum import QuorumHandlers
from kraftrio.broker.controller.quorum_peers import QuorumPeers
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.server import ServerListener
from kraftrio.kraft_meta.controller.control import ControllerConfig, registered_features
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity, ClusterIdError
from kraftrio.kraft_meta.quorum.service import QuorumService
from kraftrio.kraft_meta.quorum.settings import QuorumConfig, QuorumPorts
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.voters import Voter, VoterEndpoint, VoterSet
from kraftrio.net.connection import open_connection
from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.network import HostNetwork, Internet
from kraftrio.testing.simulation.world import START_WALL_MS, World
from kraftrio.wire.messages.admin import CreateTopicsRequest
from kraftrio.wire.messages.cluster import DescribeClusterResponse
from kraftrio.wire.messages.quorum import BrokerHeartbeatRequest, BrokerRegistrationRequest
from kraftrio.wire.protocol.api import ApiKey
from tests.support.memory_files import MemoryFileSystem
from tests.support.server_limits import LIMITS
from tests.unit.kraft_meta.controller.context import FakeConfigs, topic

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAg"
DIRECTORY = "/data/__cluster_metadata-0"
PORT = 9093


class WorldClock(Clock):
    """The world's time."""

    def wall_ms(self) -> int:
        return START_WALL_MS + int(self.monotonic_ms())


def address(node_id: int) -> str:
    return f"node{node_id}"


def new_fs() -> MemoryFileSystem:
    """A disk with an empty data folder."""
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


class QuorumNode:
    """One node in its present life; its disk is in `fs`."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.fs = new_fs()
        self.identity = ClusterIdentity(CLUSTER_ID, "meta.properties")
        self.failure: BaseException | None = None
        self.scope: trio.CancelScope | None = None
        self.leaders: list[tuple[int, int]] = []

    @property
    def is_running(self) -> bool:
        return self.scope is not None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Live until killed or stopped."""
        quorum, node_id = self.quorum, self.node_id
        life = quorum.world.incarnate(address(node_id))
        current.set(life)
        self.network = HostNetwork(quorum.internet, address(node_id))
        self.rng = quorum.world.rng(repr(life))
        self.peers = QuorumPeers(
            self.network,
            node_id,
            bytes(15) + bytes([node_id]),
            quorum.raft,
        )
        configs = FakeConfigs()
        self.log = MetadataLog(self.fs, DIRECTORY, segment_bytes=2000)
        self.service = QuorumService(
            QuorumConfig(
                node_id=node_id,
                voters=VoterSet(
                    tuple(
                        Voter(voter, (VoterEndpoint("CONTROLLER", address(voter), PORT),))
                        for voter in quorum.voters
                    )
                ),
                raft=quorum.raft,
                **quorum.options,
            ),
            ControllerConfig(cluster_id=self.identity.cluster_id, node_id=node_id),
            QuorumPorts(
                log=self.log,
                election_store=QuorumStateFile(self.fs, DIRECTORY),
                validator=configs,
                topic_configs=configs,
                clock=WorldClock(),
                rng=self.rng,
                peers=self.peers,
                run_in_thread=self._run_in_thread,
            ),
            self.identity,
        )
        self.leaders = []
        self.service.on_leader_change(lambda *leader: self.leaders.append(leader))
        self.peers.attach(self.service)
        with trio.CancelScope() as self.scope:
            try:
                await self._run_parts(task_status)
            except* (OSError, ClusterIdError) as group:
                # A failed disk ends the node, as in a process; so does another cluster.
                self.failure = innermost(group)
                self.scope = None
                self.quorum.internet.kill_process(self.network.host)
                self.network.is_dead = True

    async def _run_parts(self, task_status: trio.TaskStatus[None]) -> None:
        handlers = QuorumHandlers(self.service, ["CONTROLLER"]).table()
        handlers[ApiKey.DESCRIBE_CLUSTER] = lambda _request, _context: DescribeClusterResponse(
            endpoint_type=2, cluster_id=self.identity.cluster_id
        )
        dispatcher = Dispatcher(handlers)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.peers.run)
            if self.node_id in self.quorum.voters:
                sock = self.network.bind(address(self.node_id), PORT)
                listener = ServerListener("CONTROLLER", sock, dispatcher, LIMITS, self.network)
                nursery.start_soon(listener.run)
            await nursery.start(self.service.run)
            task_status.started()

    async def _run_in_thread(self, work: Callable[[], object]) -> None:
        await trio.sleep(self.rng.random() * 0.003)
        work()

    @property
    def topics(self) -> set[str]:
        return set(self.service.image.topics_by_name)


class Quorum:
    """The nodes and the world that they live in."""

    def __init__(
        self,
        voters: Sequence[int],
        *,
        observers: Sequence[int] = (),
        seed: int = 0,
        raft: RaftConfig | None = None,
        **options: Any,
    ) -> None:
        self.world = World(f"quorum/{seed}")
        self.internet = Internet(self.world)
        self.rng: Random = self.world.rng("test")
        self.voters = tuple(voters)
        self.raft = raft if raft is not None else RaftConfig()
        self.options = options
        self.nodes = {n: QuorumNode(self, n) for n in (*voters, *observers)}
        self._nursery: trio.Nursery | None = None

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run a test in the world; the nodes end with it."""

        async def body() -> None:
            async with trio.open_nursery() as self._nursery:
                await main()
                self._nursery.cancel_scope.cancel()

        self.world.run(body)

    # ---- lives

    async def start(self, node_id: int) -> None:
        assert self._nursery is not None
        assert not self.nodes[node_id].is_running
        await self._nursery.start(self.nodes[node_id].run)

    async def start_all(self) -> None:
        for node_id, node in self.nodes.items():
            if not node.is_running:
                await self.start(node_id)

    def _end(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.scope is not None
        node.scope.cancel()
        node.scope = None
        self.internet.kill_process(node.network.host)
        node.network.is_dead = True

    def kill(self, node_id: int) -> None:
        """End a process at once; a part of what its disk was not asked to sync is lost."""
        self._end(node_id)
        fs = self.nodes[node_id].fs
        keep = self.rng.randrange(fs.unsynced_units + 1)
        self.nodes[node_id].fs = fs.after_crash(keep, self.rng)

    async def stop(self, node_id: int) -> None:
        """End a process in order: hand over first."""
        await self.nodes[node_id].service.leadership_transfer.hand_over(5000)
        self._end(node_id)
        self.nodes[node_id].fs = self.nodes[node_id].fs.after_crash()

    # ---- what tests wait for

    def running(self) -> list[QuorumNode]:
        return [node for node in self.nodes.values() if node.is_running]

    @property
    def leader(self) -> QuorumNode | None:
        """The running node that works as the active controller in the highest epoch."""
        active = [node for node in self.running() if node.service.is_active_controller]
        return max(active, key=lambda node: node.service.leader_epoch, default=None)

    async def until(self, condition: Callable[[], bool], limit_s: float = 30) -> float:
        """Wait for a condition; return how long that took (a failure beyond limit_s)."""
        start = trio.current_time()
        with trio.fail_after(limit_s):
            while not condition():  # noqa: ASYNC110
                await trio.sleep(0.001)
        return trio.current_time() - start

    async def wait_for_leader(self, limit_s: float = 30) -> QuorumNode:
        await self.until(lambda: self.leader is not None, limit_s)
        assert self.leader is not None
        return self.leader

    async def register_broker(self) -> None:
        """Let broker 1 live, so that topics can be made."""
        leader = await self.wait_for_leader()
        answer = await leader.service.submit(
            BrokerRegistrationRequest(
                broker_id=1,
                cluster_id=CLUSTER_ID,
                incarnation_id=bytes(15) + b"\x07",
                features=registered_features(),
            ),
            api_version=4,
        ).wait()
        assert answer.error_code == 0
        beat = await leader.service.submit(
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=answer.broker_epoch,
                current_metadata_offset=leader.service.image.offset,
            ),
            api_version=1,
        ).wait()
        assert not beat.is_fenced

    def try_to_create(self, node: QuorumNode, name: str) -> Any:
        return node.service.submit(CreateTopicsRequest(topics=[topic(name, 1, 1)]), api_version=7)

    async def create_topic(self, name: str) -> None:
        """Make a topic, through the leader."""
        await self.register_broker()
        answer = await self.try_to_create(await self.wait_for_leader(), name).wait()
        assert [t.error_code for t in answer.topics] == [0]

    async def wait_for_topics(self, names: set[str], limit_s: float = 30) -> float:
        """Wait until every running node has exactly these topics."""
        return await self.until(
            lambda: all(node.topics == names for node in self.running()), limit_s
        )

    async def call(self, node_id: int, request: Any, api_version: int) -> Any:
        """Send a request to a node's controller listener."""
        network = HostNetwork(self.internet, "client")
        connect = partial(open_connection, client_id="test", connect_timeout_s=1)
        async with connect(network, address(node_id), PORT) as connection:
            return await connection.call(request, api_version, 10)
