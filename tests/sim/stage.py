"""Short scripts on the simulator: a cluster without random faults, where a test is the nemesis.

Owns: `Stage`, what a script sees and does, and `play`, which runs one. Conditions are checked
whenever the world is at rest, so a script acts at the very instant at which one comes true.

Called by: the scenario tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio

from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.testing.simulation.cluster import FileSizes, Shape, SimCluster, SimNode
from kraftrio.testing.simulation.world import SimulationFailure, World
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, build_batch, iter_headers, iter_records
from tests.sim.client import SimClient, Unavailable, client_of
from tests.sim.invariants import Invariants
from tests.sim.log_contents import read_files

_CALM = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "60000",
    "replica.fetch.wait.max.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
Script = Callable[["Stage"], Awaitable[None]]


def name_of(part: Script | str) -> str:
    """A name that is the same in every process, so that several may share the tests."""
    return part if isinstance(part, str) else part.__name__


def play(
    script: Script,
    *,
    seed: str = "scenario",
    properties: Mapping[str, str] | None = None,
    may_lose: bool = False,
    tail_cache_bytes: int | None = None,
    first_credentials: tuple[UserScramCredentialRecord, ...] = (),
) -> World:
    """Run a script with three brokers and three controllers.

    Args:
        tail_cache_bytes: of newest records in a broker's memory; 0: all is read from its disk.
        first_credentials: of the cluster's first users.
        may_lose: the script makes a cluster lose records legally (an unclean election).

    Raises:
        SimulationFailure: a promise was broken.
    """
    world = World(seed)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            shape = Shape(3, True, {**_CALM, **(properties or {})}, first_credentials)
            stage = Stage(world, nursery, shape, may_lose=may_lose)
            stage.cluster.files = FileSizes(tail_cache_bytes)
            await stage.begin()
            try:
                await script(stage)
            except SimulationFailure as failure:
                world.fail(failure)
            nursery.cancel_scope.cancel()

    world.run(run)
    return world


class Stage:
    """See the module."""

    def __init__(
        self, world: World, nursery: trio.Nursery, shape: Shape, *, may_lose: bool
    ) -> None:
        self.world = world
        self.cluster = SimCluster(world, nursery, shape)
        self._nursery = nursery
        self._conditions: dict[trio.Event, Callable[[], bool]] = {}
        if not may_lose:
            world.checks.append(Invariants(self.cluster).check)
        world.checks.append(self._check_conditions)

    async def begin(self) -> None:
        """Start all nodes."""
        self.cluster.start()
        await self.cluster.wait_until(self.cluster.all_ready, "all brokers are up")

    def client(self, name: str) -> SimClient:
        """Make a client on a machine of its own."""
        network = self.cluster.client_network(name)
        return client_of(self.world, self._nursery, network, self.cluster.bootstrap, name)

    # -- looking --------------------------------------------------------------------------------

    def _check_conditions(self) -> None:
        for event, condition in list(self._conditions.items()):
            if condition():
                del self._conditions[event]
                event.set()

    async def until(self, condition: Callable[[], bool], what: str, deadline_s: float = 60) -> None:
        """Wait for a condition, to the instant."""
        event = trio.Event()
        self._conditions[event] = condition
        try:
            with trio.move_on_after(deadline_s):
                await event.wait()
                return
        finally:
            self._conditions.pop(event, None)
        raise SimulationFailure(f"not within {deadline_s:g} s: {what}")

    def image(self, topic_partition: TopicPartition) -> PartitionImage:
        """What the active controller knows of a partition."""
        for node in self.cluster.controllers:
            if node.node is not None and node.quorum.is_active_controller:
                found = node.quorum.image.partition(*topic_partition)
                if found is not None:
                    return found
        return PartitionImage((), (), -1, -1, -1)

    def node(self, node_id: int) -> SimNode:
        return self.cluster.nodes[node_id]

    def log(self, node_id: int, topic_partition: TopicPartition) -> PartitionLog | None:
        """A broker's replica, if it is there."""
        manager = self.node(node_id).replica_manager
        found = None if manager is None else manager.hosted.partition(topic_partition)
        return None if found is None else found.log

    def end(self, node_id: int, topic_partition: TopicPartition) -> int:
        log = self.log(node_id, topic_partition)
        return -1 if log is None else log.log_end_offset

    def high_watermark(self, node_id: int, topic_partition: TopicPartition) -> int:
        log = self.log(node_id, topic_partition)
        return -1 if log is None else log.high_watermark

    def leads(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """Return whether a broker takes itself for the leader."""
        manager = self.node(node_id).replica_manager
        found = None if manager is None else manager.hosted.partition(topic_partition)
        return found is not None and found.state.is_leader

    def values(self, node_id: int, topic_partition: TopicPartition) -> list[str]:
        """What a replica holds, committed or not."""
        log = self.log(node_id, topic_partition)
        if log is None or log.log_end_offset == 0:
            return []
        with self.node(node_id).disk.as_written():
            found = read_files(log, 0, log.log_end_offset)
        assert found is not None
        return values_of(memoryview(found.records))

    # -- doing ----------------------------------------------------------------------------------

    def hang(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Let nothing pass from some nodes to others."""
        for source in sources:
            for target in targets:
                if source != target:
                    self.cluster.internet.hang(f"n{source}", f"n{target}")

    def mend(self) -> None:
        self.cluster.internet.mend_all()

    def cut_off(self, node_id: int) -> None:
        """Hang all links of a node to other nodes; clients still reach it."""
        others = list(self.cluster.nodes)
        self.hang([node_id], others)
        self.hang(others, [node_id])

    async def create(self, topic: str, replicas: list[int], **configs: object) -> TopicPartition:
        """Create a topic of one partition on these brokers; the first one leads."""
        creatable = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=str(value).lower())
                for name, value in configs.items()
            ],
        )
        client = self.client("creator")
        response = await client.call_any(CreateTopicsRequest(topics=[creatable], timeout_ms=5_000))
        assert response.topics[0].error_code == ErrorCode.NONE, response
        topic_partition = TopicPartition(topic, 0)
        await self.until(lambda: self.leads(replicas[0], topic_partition), f"{topic} has a leader")
        return topic_partition

    async def produce(
        self,
        client: SimClient,
        node_id: int,
        topic_partition: TopicPartition,
        *values: str,
        acks: int = -1,
    ) -> ErrorCode:
        """Produce one record after the other to a broker that should lead."""
        client.addresses.setdefault(node_id, (f"n{node_id}", 9092))
        for value in values:
            batch = build_batch([Record(0, 1_700_000_000_000, None, value.encode())])
            data = PartitionProduceData(index=topic_partition.partition, records=memoryview(batch))
            topic = TopicProduceData(name=topic_partition.topic, partition_data=[data])
            request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
            try:
                response = await client.call_node(node_id, request, extra_s=30)
            except Unavailable:
                return ErrorCode.NETWORK_EXCEPTION
            code = ErrorCode(response.responses[0].partition_responses[0].error_code)
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE

    def start(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Do something beside the script."""
        self._nursery.start_soon(work, *arguments)

    async def fetch(
        self,
        client: SimClient,
        node_id: int,
        topic_partition: TopicPartition,
        offset: int,
        leader_epoch: int = -1,
    ) -> PartitionData:
        """Fetch as a consumer."""
        client.addresses.setdefault(node_id, (f"n{node_id}", 9092))
        partition = FetchPartition(
            partition=topic_partition.partition,
            fetch_offset=offset,
            current_leader_epoch=leader_epoch,
            partition_max_bytes=1 << 20,
        )
        topic = FetchTopic(topic=topic_partition.topic, partitions=[partition])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, session_epoch=-1, topics=[topic])
        response = await client.call_node(node_id, request)
        answer: PartitionData = response.responses[0].partitions[0]
        return answer


def values_of(records: Any) -> list[str]:
    """The values of all records in batches."""
    return [
        (record.value or b"").decode()
        for header in iter_headers(records or b"", allow_partial=True)
        for record in iter_records(records or b"", header)
    ]


def expect(condition: bool, text: str) -> None:
    """Fail the scenario unless a condition holds."""
    if not condition:
        raise SimulationFailure(text)
