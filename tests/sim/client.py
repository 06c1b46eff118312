"""A small Kafka client for simulations: connections, metadata, and one request at a time.

Owns: `SimClient`. Rules:
1. It hides nothing that a test must know: whatever keeps a request from being answered, or answered
   well, is `Unavailable`; its caller decides whether to ask again.
2. It speaks the real protocol through `clients.connection`, over the simulated network.
3. Versions name topics by name (`NAMED`), unless a caller asks for another.
4. A request that must be answered in bounded time, and is not, ends the simulation (`judge`).

Called by: the workloads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from kraftrio.net.connection import (
    Connection,
    ConnectionLost,
    RequestTimedOut,
    open_connection,
)
from kraftrio.net.transport import Network
from kraftrio.testing.simulation.world import SimulationFailure, World
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kraftrio.wire.protocol.api import APIS

_VERSIONS = {api.request: api.max_version for api in APIS.values()}
# Whoever is asked answers these in time whatever happens to others: who waits for more than itself
# has a deadline of its own.
_ANSWERED_IN_TIME = frozenset(
    {
        "Metadata",
        "Produce",
        "Fetch",
        "ListOffsets",
        "DeleteRecords",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetFetch",
    }
)
NAMED = {
    "ProduceRequest": 12,
    "FetchRequest": 12,
    "OffsetCommitRequest": 9,
    "OffsetFetchRequest": 7,
}


class Unavailable(Exception):
    """The request was not answered, or cannot be served now: ask again later."""


@dataclass(slots=True)
class PartitionView:
    """What metadata said of a partition."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


@dataclass(slots=True)
class TopicView:
    topic_id: bytes
    partitions: dict[int, PartitionView] = field(default_factory=dict)


class SimClient:
    """See the module; its connections run in the nursery given to it."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        network: Network,
        bootstrap: list[tuple[str, int]],
        name: str,
        rng: Random,
    ) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.timeout_s = 5.0
        self.held_until_s = 0.0  # what it sends to some node arrives late until then
        self.addresses: dict[int, tuple[str, int]] = {}
        self.controller_id = -1
        self.topics: dict[str, TopicView] = {}
        self._nursery = nursery
        self._network = network
        self._bootstrap = bootstrap
        self._newest_epochs: dict[tuple[bytes, int], int] = {}
        self._connections: dict[tuple[str, int], Connection] = {}

    def note(self, text: str) -> None:
        """Write a line of the trace."""
        self.world.note(self.name, "client", text)

    # -- connections ----------------------------------------------------------------------------

    async def connection(self, address: tuple[str, int]) -> Connection:
        """Find the open connection to an address or make one.

        Raises:
            Unavailable: it cannot connect.
        """
        found = self._connections.get(address)
        if found is not None and not found.is_closed:
            return found
        made = await self._nursery.start(self._hold, address)
        if not isinstance(made, Connection):
            raise Unavailable(str(made))
        self._connections[address] = made
        return made

    async def _hold(
        self,
        address: tuple[str, int],
        task_status: trio.TaskStatus[Connection | ConnectionLost],
    ) -> None:
        try:
            async with open_connection(
                self._network,
                *address,
                client_id=self.name,
                connect_timeout_s=self.timeout_s,
            ) as connection:
                task_status.started(connection)
                await connection.wait_closed()
        except ConnectionLost as lost:
            task_status.started(lost)

    def drop(self, address: tuple[str, int]) -> None:
        """Close the connection to an address."""
        found = self._connections.pop(address, None)
        if found is not None:
            found.close()

    def close(self) -> None:
        """Close every connection."""
        for address in list(self._connections):
            self.drop(address)

    async def call(
        self, address: tuple[str, int], request: Any, version: int | None = None, extra_s: float = 0
    ) -> Any:
        """Send a request and return its response.

        Raises:
            Unavailable: there is none.
        """
        connection = await self.connection(address)
        begin_s = self.world.now_s
        try:
            return await connection.call(
                request, version_of(request, version), self.timeout_s + extra_s
            )
        except ConnectionLost as lost:
            self.judge(type(request).__name__.removesuffix("Request"), begin_s, lost)
            raise Unavailable(lost.reason) from lost

    def judge(self, name: str, begin_s: float, lost: ConnectionLost) -> None:
        """Fail the simulation if a request was not answered though it had to be.

        Args:
            name: of the API.
            begin_s: when it was sent.
        """
        must_come = isinstance(lost, RequestTimedOut) and name in _ANSWERED_IN_TIME
        if begin_s < self.held_until_s:
            return
        if must_come and self.world.was_calm_since(begin_s):
            waited_s = self.world.now_s - begin_s
            raise SimulationFailure(f"{self.name} got no answer to {name} within {waited_s:g} s")

    async def call_node(
        self, node_id: int, request: Any, version: int | None = None, extra_s: float = 0
    ) -> Any:
        """Send a request to a broker by its id."""
        address = self.addresses.get(node_id)
        if address is None:
            await self.refresh()
            address = self.addresses.get(node_id)
            if address is None:
                raise Unavailable(f"no address of node {node_id}")
        return await self.call(address, request, version, extra_s)

    async def call_any(self, request: Any, version: int | None = None, extra_s: float = 0) -> Any:
        """Send a request to some broker."""
        return await self.call(self._some_address(), request, version, extra_s)

    def _some_address(self) -> tuple[str, int]:
        return self.rng.choice(list(self.addresses.values()) or self._bootstrap)

    # -- metadata -------------------------------------------------------------------------------

    async def refresh(self, *names: str) -> None:
        """Ask some broker for metadata of topics.

        Raises:
            Unavailable: it cannot be had.
        """
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        address = self.rng.choice(self._bootstrap)
        response = await self.call(address, request, 12)
        if response.brokers:
            self.addresses = {b.node_id: (b.host, b.port) for b in response.brokers}
        self.controller_id = response.controller_id
        for topic in response.topics:
            assert topic.name is not None
            if topic.error_code != ErrorCode.NONE:
                self.topics.pop(topic.name, None)
                continue
            self.topics[topic.name] = TopicView(
                topic.topic_id,
                {
                    p.partition_index: PartitionView(
                        p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes
                    )
                    for p in topic.partitions
                },
            )

    async def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Find the leader of a partition and its epoch.

        Raises:
            Unavailable: there is none, or metadata cannot be had.
        """
        view = self.topics.get(topic)
        if view is None or view.partitions.get(partition, _NO_LEADER).leader < 0:
            await self.refresh(topic)
            view = self.topics.get(topic)
        if view is None:
            raise Unavailable(f"no metadata of {topic}")
        found = view.partitions.get(partition, _NO_LEADER)
        if found.leader < 0:
            raise Unavailable(f"{topic}-{partition} has no leader")
        key = (view.topic_id, partition)
        newest = self._newest_epochs.get(key, -1)
        if found.leader_epoch < newest:
            self.forget(topic)  # the broker that answered is behind (KIP-320)
            raise Unavailable(f"{topic}-{partition} was described in an old leader epoch")
        self._newest_epochs[key] = found.leader_epoch
        return found.leader, found.leader_epoch

    def forget(self, topic: str) -> None:
        """Ask for a topic's metadata again before the next use."""
        self.topics.pop(topic, None)

    async def coordinator(self, key: str, key_type: int = 0) -> int:
        """Find the coordinator of a group, or of a transactional id (key type 1).

        Raises:
            Unavailable: it is not known.
        """
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        response = await self.call_any(request, 4)
        found = response.coordinators[0]
        if found.error_code != ErrorCode.NONE:
            raise Unavailable(ErrorCode(found.error_code).name)
        self.addresses[found.node_id] = (found.host, found.port)
        return int(found.node_id)

    async def pause(self, longest_s: float = 0.5) -> None:
        """Back off."""
        await trio.sleep(self.rng.uniform(0.02, longest_s))


_NO_LEADER = PartitionView(-1, -1, [], [])


def version_of(request: Any, version: int | None) -> int:
    """The version to send a request in."""
    if version is not None:
        return version
    return NAMED.get(type(request).__name__, _VERSIONS[type(request)])


def client_of(
    world: World,
    nursery: trio.Nursery,
    network: Network,
    bootstrap: list[tuple[str, int]],
    name: str,
) -> SimClient:
    """Make a client with dice of its own."""
    return SimClient(world, nursery, network, bootstrap, name, world.rng(f"client-{name}"))
