"""A listener on loopback with scripted handlers, and raw clients to speak to it."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio
import trio.lowlevel

from kraftrio.base.deferred import Deferred
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.admission.admission import Admission
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.limits import ServerLimits
from kraftrio.broker.server.resources import ServerResources
from kraftrio.broker.server.server import ServerListener
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kraftrio.wire.messages.data import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ProduceRequest,
    ProduceResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.stored_bytes import StoredBytes, StoredBytesGone
from tests.support.server_limits import LIMITS


class Handlers:
    """Metadata waits until told, ApiVersions answers at once, Produce has no reply or fails."""

    def __init__(self) -> None:
        self.parked: list[Deferred[MetadataResponse]] = []
        self.big_answer = ""
        self.seen: list[RequestContext] = []
        self.authorizer: Authorizer = ALLOW_ALL
        self.throttle: Throttle | None = None

    def metadata(self, request: MetadataRequest, context: RequestContext) -> Any:
        deferred: Deferred[MetadataResponse] = Deferred()
        self.parked.append(deferred)
        self.seen.append(context)
        return deferred

    def parked_first(self, request: MetadataRequest, context: RequestContext) -> Any:
        """The first one waits, those behind it are answered at once, with much."""
        if not self.parked:
            return Handlers.metadata(self, request, context)
        self.seen.append(context)
        return MetadataResponse(cluster_id="x" * 30_000)

    def api_versions(self, request: ApiVersionsRequest, context: RequestContext) -> Any:
        return ApiVersionsResponse(error_code=ErrorCode.of_peer(len(self.big_answer)))

    def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
        if request.acks == 0:
            return None
        raise RuntimeError("a fault of ours")

    def dispatcher(self) -> Dispatcher:
        return Dispatcher(
            {
                ApiKey.METADATA: self.metadata,
                ApiKey.API_VERSIONS: self.api_versions,
                ApiKey.PRODUCE: self.produce,
            },
            authorizer=self.authorizer,
            throttle=self.throttle,
        )


class Client:
    """A raw client that counts correlation ids."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = bytearray()

    async def send(self, key: int, version: int, correlation_id: int, body: bytes) -> None:
        header = struct.pack(">hhih", key, version, correlation_id, -1)
        await self.send_raw(header + body)

    async def send_raw(self, frame: bytes) -> None:
        await self.stream.send_all(struct.pack(">i", len(frame)) + frame)

    async def receive(self) -> tuple[int, bytes]:
        while len(self.buffer) < 4 or len(self.buffer) < 4 + self.length():
            data = await self.stream.receive_some()
            if not data:
                raise EOFError
            self.buffer += data
        frame = bytes(self.buffer[4 : 4 + self.length()])
        del self.buffer[: 4 + len(frame)]
        return struct.unpack(">i", frame[:4])[0], frame[4:]

    def length(self) -> int:
        return int(struct.unpack(">i", self.buffer[:4])[0])

    async def is_closed(self) -> bool:
        try:
            with trio.fail_after(2):
                return await self.stream.receive_some() == b""
        except trio.BrokenResourceError:
            return True


Connect = Callable[[], Any]


@asynccontextmanager
async def listening(
    handlers: Handlers,
    limits: ServerLimits = LIMITS,
    network: SystemNetwork | None = None,
    resources: ServerResources | None = None,
    *,
    admission: Admission | None = None,
    for_peers: bool = False,
    name: str = "PLAINTEXT",
) -> AsyncIterator[tuple[ServerListener, Connect]]:
    network = network or SystemNetwork()
    sock = network.bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    resources = resources or ServerResources()
    listener = ServerListener(
        name,
        sock,
        handlers.dispatcher(),
        limits,
        network,
        resources,
        admission=admission,
        for_peers=for_peers,
    )

    clients: list[Client] = []

    async def connect() -> Client:
        client = Client(await trio.open_tcp_stream("127.0.0.1", port))
        clients.append(client)
        return client

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        nursery.start_soon(resources.run)
        try:
            with trio.fail_after(10):
                yield listener, connect
        finally:
            for client in clients:
                client.stream.socket.close()
        nursery.cancel_scope.cancel()


METADATA_BODY = encode(MetadataRequest(), 1)


class Stored(StoredBytes):
    """Records that lie elsewhere, as large as wanted; counts what is read."""

    def __init__(self, size_bytes: int, *, cold: bool = False, gone_at: int = 1 << 62) -> None:
        self.size_bytes = size_bytes
        self.cold = cold
        self.gone_at = gone_at
        self.loads = 0
        self.read_bytes = 0
        self.ahead: Callable[[], None] | None = None

    def __len__(self) -> int:
        return self.size_bytes

    def file_range(self, start: int) -> None:
        return None

    def read(self, start: int, size_bytes: int) -> bytes:
        if start + size_bytes > self.gone_at:
            raise StoredBytesGone("truncated")
        self.read_bytes += size_bytes
        return bytes(size_bytes)

    def is_at_hand(self, start: int, size_bytes: int) -> bool:
        return not self.cold

    def load(self, start: int, size_bytes: int) -> None:
        self.loads += 1

    def loading_ahead(self, start: int) -> Callable[[], None] | None:
        ahead, self.ahead = self.ahead, None
        return ahead


class Fetches(Handlers):
    """Fetch is answered with stored records, Metadata at once with a large answer."""

    def __init__(self, *records: Stored) -> None:
        super().__init__()
        self.records = list(records)
        self.fetched = 0
        self.answer = MetadataResponse(cluster_id="x" * 30_000)
        self.asked = 0

    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse:
        records = self.records[self.fetched]
        self.fetched += 1
        data = PartitionData(partition_index=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    def metadata(self, request: MetadataRequest, context: RequestContext) -> Any:
        self.asked += 1
        return self.answer

    def dispatcher(self) -> Dispatcher:
        return Dispatcher(
            {
                ApiKey.FETCH: self.fetch,
                ApiKey.METADATA: self.metadata,
                ApiKey.API_VERSIONS: self.api_versions,
            }
        )


FETCH_BODY = encode(FetchRequest(), 4)


NARROW = replace(LIMITS, socket_send_buffer_bytes=65536)


async def settled() -> None:
    """Let everything happen that can without a client's doing."""
    for _ in range(200):
        await trio.lowlevel.checkpoint()


async def park(client: Client, handlers: Handlers, ended: list[str], name: str) -> None:
    """Have a request parked and note the end of its connection in `ended`."""
    count = len(handlers.seen)
    await client.send(3, 1, 1, METADATA_BODY)
    while len(handlers.seen) == count:
        await trio.lowlevel.checkpoint()
    handlers.seen[-1].client.on_close.append(lambda: ended.append(name))
