"""A cluster in the test's own process, over loopback: enough of brokers for a client to live by.

It answers ApiVersions, Metadata, FindCoordinator, InitProducerId, Produce and, with no records,
Fetch; a test scripts everything else with `on`: a function that is asked first and may return a
response, None for the usual answer, or `CUT` (close the connection before) or `CUT_AFTER` (do it,
then close).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Coordinator,
    FinalizedFeatureKey,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftrio.wire.messages.data import (
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kraftrio.wire.protocol.api import APIS, ApiKey, decode_request, response_header_version
from kraftrio.wire.protocol.framing import parse_request_start
from tests.unit.clients.producer.producing import Partition

CUT: Final = "cut"
CUT_AFTER: Final = "cut after"

Script = Callable[["FakeNode", Any], Any]


@dataclass
class FakeTopic:
    """A topic's partitions as (leader, epoch), and its id."""

    leaders: list[tuple[int, int]]
    topic_id: bytes
    error_code: ErrorCode = ErrorCode.NONE


@dataclass
class FakeCluster:
    """The nodes, and what they all know."""

    nursery: trio.Nursery
    nodes: dict[int, FakeNode] = field(default_factory=dict)
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    logs: dict[tuple[str, int], Partition] = field(default_factory=dict)
    scripts: dict[int, Script] = field(default_factory=dict)
    requests: Counter[tuple[int, str]] = field(default_factory=Counter)
    versions_used: dict[str, int] = field(default_factory=dict)
    max_versions: dict[int, int] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)  # that are finalized
    auto_create: bool = False
    controller_id: int = 1
    coordinator_id: int = 1
    next_producer_id: int = 1000

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values() if node.is_up)

    def add_topic(self, name: str, leaders: list[int]) -> None:
        topic_id = len(self.topics).to_bytes(1, "big") + b"topic-id-of-test"[:15]
        self.topics[name] = FakeTopic([(leader, 0) for leader in leaders], topic_id)
        for index in range(len(leaders)):
            self.logs.setdefault((name, index), Partition())

    def lead(self, topic: str, partition: int, node_id: int) -> None:
        """Let another node lead a partition, in a new epoch."""
        leaders = self.topics[topic].leaders
        leaders[partition] = (node_id, leaders[partition][1] + 1)

    def on(self, key: ApiKey, script: Script) -> None:
        """Ask this function before a request of this kind is answered."""
        self.scripts[key] = script

    def delay(self, key: ApiKey, pause_s: float) -> None:
        """Give the usual answer to requests of this kind that much later."""

        def later(node: FakeNode, request: Any) -> trio.Event:
            event = trio.Event()
            self.nursery.start_soon(_set_later, event, pause_s)
            return event

        self.on(key, later)

    def off(self, key: ApiKey) -> None:
        del self.scripts[key]

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.logs[topic, partition].records]

    # -- the usual answers ----------------------------------------------------------------------

    def api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=key,
                    min_version=api.min_version,
                    max_version=min(self.max_versions.get(key, 99), api.max_version),
                )
                for key, api in APIS.items()
                if self.max_versions.get(key, 99) >= 0
            ],
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level)
                for name, level in self.features.items()
            ],
        )

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            names = list(self.topics)
        else:
            names = [topic.name for topic in request.topics if topic.name is not None]
        for name in names:
            if name not in self.topics and self.auto_create and request.allow_auto_topic_creation:
                self.add_topic(name, [1])
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node.node_id, host="127.0.0.1", port=node.port)
                for node in self.nodes.values()
                if node.is_up
            ],
            cluster_id="fake",
            controller_id=self.controller_id,
            topics=[self._describe(name) for name in names],
        )

    def _describe(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None or topic.error_code:
            code = topic.error_code if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=code, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=epoch,
                    replica_nodes=[1, 2],
                    isr_nodes=[1, 2],
                )
                for index, (leader, epoch) in enumerate(topic.leaders)
            ],
        )

    def coordinator(self, request: FindCoordinatorRequest, version: int) -> Any:
        node = self.nodes[self.coordinator_id]
        node_id, host, port = node.node_id, "127.0.0.1", node.port
        if version < 4:
            assert request.key and not request.coordinator_keys
            return FindCoordinatorResponse(node_id=node_id, host=host, port=port)
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node_id, host=host, port=port) for key in keys
            ]
        )

    def produce(self, node: FakeNode, request: ProduceRequest) -> ProduceResponse:
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        response = ProduceResponse()
        for topic in request.topic_data:
            name = topic.name or names[topic.topic_id]
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            for data in topic.partition_data:
                assert data.records is not None
                answer = PartitionProduceResponse(index=data.index, base_offset=-1)
                if self.topics[name].leaders[data.index][0] != node.node_id:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    log = self.logs[name, data.index]
                    answer.error_code, answer.base_offset = log.append(data.records)
                answers.partition_responses.append(answer)
            response.responses.append(answers)
        return response


class FakeNode:
    """One broker: a listener whose port stays the same over `stop` and `start`."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.port = 0
        self.is_up = False
        self.connections = 0  # that were ever opened
        self._scope = trio.CancelScope()

    async def start(self) -> None:
        """Listen; clients can connect once this returns."""
        (listener,) = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        self._scope = trio.CancelScope()
        self.is_up = True
        self.cluster.nursery.start_soon(self._serve, listener)

    def stop(self) -> None:
        """End at once, as if killed."""
        self.is_up = False
        self._scope.cancel()

    async def _serve(self, listener: trio.SocketListener) -> None:
        with self._scope:
            await trio.serve_listeners(self._talk, [listener])
        with trio.CancelScope(shield=True):
            await listener.aclose()

    async def _talk(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        buffer = b""
        with stream.socket:
            while True:
                try:
                    data = await stream.receive_some()
                except trio.BrokenResourceError:
                    return
                if not data:
                    return
                buffer += data
                while len(buffer) >= 4:
                    end = 4 + int.from_bytes(buffer[:4], "big")
                    if len(buffer) < end:
                        break
                    frame, buffer = buffer[4:end], buffer[end:]
                    answer = await self._answer(memoryview(bytearray(frame)))
                    if answer is None:
                        return
                    try:
                        await stream.send_all(answer)
                    except trio.BrokenResourceError:
                        return

    async def _answer(self, frame: memoryview) -> bytes | None:
        start = parse_request_start(frame, lambda key: APIS[key].flexible_from)
        api, version = APIS[start.api_key], start.api_version
        cluster = self.cluster
        cluster.requests[self.node_id, api.name] += 1
        cluster.versions_used[api.name] = version
        if version > cluster.max_versions.get(api.key, 99):
            assert api.key == ApiKey.API_VERSIONS, f"{api.name} {version} was not offered"
            refusal = cluster.api_versions()
            refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
            return _frame(start.correlation_id, encode(refusal, 0), 0)
        request = decode_request(api, version, frame, start.body_position)
        script = cluster.scripts.get(api.key)
        response = script(self, request) if script is not None else None
        if isinstance(response, trio.Event):
            await response.wait()  # a slow broker
            response = None
        if response == CUT:
            return None
        if response is None or response == CUT_AFTER:
            usual = self._usual(request, version)
            if response == CUT_AFTER:
                return None
            response = usual
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return b""
        header = response_header_version(api.key, version)
        return _frame(start.correlation_id, encode(response, version), header)

    def _usual(self, request: Any, version: int) -> Any:
        cluster = self.cluster
        match request:
            case ApiVersionsRequest():
                return cluster.api_versions()
            case MetadataRequest():
                return cluster.metadata(request)
            case FindCoordinatorRequest():
                return cluster.coordinator(request, version)
            case InitProducerIdRequest():
                cluster.next_producer_id += 1
                return InitProducerIdResponse(producer_id=cluster.next_producer_id)
            case ProduceRequest():
                return cluster.produce(self, request)
            case FetchRequest():
                return FetchResponse()
        raise AssertionError(f"a test must script {type(request).__name__}")


async def _set_later(event: trio.Event, pause_s: float) -> None:
    await trio.sleep(pause_s)
    event.set()


def _frame(correlation_id: int, body: bytes, header_version: int) -> bytes:
    head = correlation_id.to_bytes(4, "big") + (b"\0" if header_version else b"")
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


@asynccontextmanager
async def fake_cluster(nodes: int = 1) -> AsyncIterator[FakeCluster]:
    """Run a cluster while the body runs."""
    with trio.fail_after(30 if nodes else math.inf):
        async with trio.open_nursery() as nursery:
            cluster = FakeCluster(nursery)
            for node_id in range(1, nodes + 1):
                cluster.nodes[node_id] = FakeNode(cluster, node_id)
                await cluster.nodes[node_id].start()
            yield cluster
            nursery.cancel_scope.cancel()
