"""Connections over loopback: order, limits, and what ends a connection."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.lowlevel

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server import client_connection
from kraftrio.broker.server.accept_pace import AcceptPace
from kraftrio.broker.server.client_connection import ServerLimits, ServerResources
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.server import Listener
from kraftrio.net.connection import open_connection
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
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

LIMITS = ServerLimits(
    socket_request_max_bytes=1 << 20,
    max_connections=100,
    max_connections_per_ip=100,
    connections_max_idle_ms=600_000,
    max_in_flight_requests=100,
    socket_send_buffer_bytes=-1,
    socket_receive_buffer_bytes=-1,
)


class Handlers:
    """Metadata waits until told, ApiVersions answers at once, Produce has no reply or fails."""

    def __init__(self) -> None:
        self.parked: list[Deferred[MetadataResponse]] = []
        self.big_answer = ""
        self.seen: list[RequestContext] = []

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
        return ApiVersionsResponse(error_code=len(self.big_answer))

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
            }
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
    for_peers: bool = False,
) -> AsyncIterator[tuple[Listener, Connect]]:
    network = network or SystemNetwork()
    sock = network.bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    resources = resources or ServerResources()
    listener = Listener(
        "PLAINTEXT",
        sock,
        handlers.dispatcher(),
        limits,
        network,
        resources,
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


async def test_responses_leave_in_request_order_though_a_later_one_is_ready_first() -> None:
    handlers = Handlers()
    async with listening(handlers) as (_, connect):
        client = await connect()
        await client.send(3, 1, 1, METADATA_BODY)
        await client.send(18, 0, 2, b"")
        await client.send(3, 1, 3, METADATA_BODY)
        while len(handlers.parked) < 2:
            await trio.lowlevel.checkpoint()
        handlers.parked[1].complete(MetadataResponse(controller_id=3))
        handlers.parked[0].complete(MetadataResponse(controller_id=1))
        assert [(await client.receive())[0] for _ in range(3)] == [1, 2, 3]


async def test_hundreds_of_pipelined_requests_are_all_answered_in_order() -> None:
    handlers = Handlers()
    async with listening(handlers, replace(LIMITS, max_in_flight_requests=5)) as (_, connect):
        client = await connect()

        async def answer() -> None:
            done = 0
            while done < 200:
                await trio.lowlevel.checkpoint()
                while done < len(handlers.parked):
                    assert len(handlers.parked) - done <= 5, "more in flight than allowed"
                    handlers.parked[done].complete(MetadataResponse())
                    done += 1

        async def send() -> None:
            for correlation_id in range(200):
                await client.send(3, 1, 2 * correlation_id, METADATA_BODY)
                await client.send(18, 0, 2 * correlation_id + 1, b"")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            nursery.start_soon(send)
            received = [(await client.receive())[0] for _ in range(400)]
        assert received == list(range(400))


async def test_a_request_without_reply_takes_no_place_in_the_order() -> None:
    async with listening(Handlers()) as (_, connect):
        client = await connect()
        await client.send(0, 3, 1, encode(ProduceRequest(acks=0), 3))
        await client.send(18, 0, 2, b"")
        assert (await client.receive())[0] == 2


async def test_a_fault_of_ours_closes_that_connection_and_is_logged_with_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(Handlers()) as (_, connect):
        victim, other = await connect(), await connect()
        with caplog.at_level(logging.ERROR, "kraftrio.server"):
            await victim.send(0, 3, 77, encode(ProduceRequest(acks=1), 3))
            assert await victim.is_closed()
        [entry] = caplog.records
        assert "api=Produce api_key=0 version=3 correlation_id=77" in entry.getMessage()
        assert entry.exc_info is not None and isinstance(entry.exc_info[1], RuntimeError)
        await other.send(18, 0, 1, b"")
        assert (await other.receive())[0] == 1


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 3, 99, 1, -1),
        struct.pack(">hhih", 0, 2, 1, -1),
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1 << 30),
        struct.pack(">hhih", 3, 1, 1, -1) + b"\0",
        b"",
    ],
    ids=[
        "unknown key",
        "negative key",
        "version above",
        "produce below 3",
        "absurd array",
        "truncated body",
        "empty frame",
    ],
)
async def test_what_cannot_be_served_closes_that_connection_only(frame: bytes) -> None:
    async with listening(Handlers()) as (_, connect):
        client, other = await connect(), await connect()
        await client.send_raw(frame)
        assert await client.is_closed()
        await other.send(18, 0, 1, b"")
        assert (await other.receive())[0] == 1


@pytest.mark.parametrize("version", [5, 127, 32767])
async def test_unknown_api_versions_version_is_answered_in_the_layout_of_version_0(
    version: int,
) -> None:
    async with listening(Handlers()) as (_, connect):
        client = await connect()
        await client.send(18, version, 9, b"\0junk that is no body")
        correlation_id, body = await client.receive()
        response, end = decode(ApiVersionsResponse, 0, body)
        assert (correlation_id, end) == (9, len(body))
        assert response.error_code == 35
        assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [
            (18, 0, 4)
        ]
        await client.send(18, 3, 10, b"\0" + encode(ApiVersionsRequest(), 3))
        assert (await client.receive())[0] == 10


async def test_connections_of_one_address_are_limited() -> None:
    async with listening(Handlers(), replace(LIMITS, max_connections_per_ip=2)) as (_, connect):
        kept = [await connect(), await connect()]
        refused = await connect()
        assert await refused.is_closed()
        for client in kept:
            await client.send(18, 0, 1, b"")
            assert (await client.receive())[0] == 1


async def test_connections_come_no_faster_than_allowed() -> None:
    """max.connection.creation.rate: a second's worth at once, then by and by, until it changes."""
    resources = ServerResources(pace=AcceptPace(4))
    async with listening(Handlers(), resources=resources) as (listener, connect):
        begin = trio.current_time()
        clients = [await connect() for _ in range(5)]
        for client in clients:
            await client.send(18, 0, 1, b"")
            assert (await client.receive())[0] == 1
        assert trio.current_time() - begin >= 0.2
        resources.pace.rate = 0
        late = await connect()
        await late.send(18, 0, 1, b"")
        await settled()
        assert len(listener._connections) == 5
        resources.pace.rate = 1e9
        assert (await late.receive())[0] == 1


async def test_limits_may_change_while_it_listens() -> None:
    """Who waits is let in when there is more room; a lower limit closes nobody's connection."""
    few = replace(LIMITS, max_connections=1)
    async with listening(Handlers(), few) as (listener, connect):
        first, second = await connect(), await connect()
        await second.send(18, 0, 1, b"")
        await first.send(18, 0, 1, b"")
        assert (await first.receive())[0] == 1
        assert len(listener._connections) == 1
        listener.limit(replace(few, max_connections=2))
        assert (await second.receive())[0] == 1
        listener.limit(replace(few, max_connections_per_ip_overrides={"127.0.0.1": 1}))
        await first.send(18, 0, 2, b"")
        assert (await first.receive())[0] == 2


async def test_above_the_connection_limit_a_client_waits_its_turn() -> None:
    async with listening(Handlers(), replace(LIMITS, max_connections=1)) as (_, connect):
        first, second = await connect(), await connect()
        await first.send(18, 0, 1, b"")
        assert (await first.receive())[0] == 1
        await second.send(18, 0, 2, b"")
        await first.stream.aclose()
        assert (await second.receive())[0] == 2


async def test_idle_connections_are_closed_but_not_those_with_a_request_parked() -> None:
    handlers = Handlers()
    limits = replace(LIMITS, connections_max_idle_ms=200)
    async with listening(handlers, limits) as (_, connect):
        idle, waiting = await connect(), await connect()
        await waiting.send(3, 1, 5, METADATA_BODY)
        assert await idle.is_closed()
        handlers.parked[0].complete(MetadataResponse())
        assert (await waiting.receive())[0] == 5


async def test_a_client_that_does_not_read_stops_being_read() -> None:
    """Unsent responses are bounded: the reader pauses, and goes on when the client reads."""
    handlers = Handlers()
    answer = MetadataResponse(cluster_id="x" * 30_000)
    async with listening(handlers, replace(LIMITS, socket_send_buffer_bytes=65536)) as (_, connect):
        client = await connect()
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)

        async def send() -> None:
            for correlation_id in range(500):
                await client.send(3, 2, correlation_id, METADATA_BODY)

        answered = 0

        async def answer_all() -> None:
            nonlocal answered
            while answered < 500:
                await trio.lowlevel.checkpoint()
                while answered < len(handlers.parked):
                    handlers.parked[answered].complete(answer)
                    answered += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(answer_all)
            for _ in range(1500):
                await trio.lowlevel.checkpoint()
            assert answered < 400, "everything was encoded for a client that reads nothing"
            received = [(await client.receive())[0] for _ in range(500)]
        assert received == list(range(500))


# -- memory -------------------------------------------------------------------------------------


class Stored(StoredBytes):
    """Records that lie elsewhere, as large as wanted; counts what is read."""

    def __init__(self, size_bytes: int, *, cold: bool = False, gone_at: int = 1 << 62) -> None:
        self.size_bytes = size_bytes
        self.cold = cold
        self.gone_at = gone_at
        self.loads = 0
        self.read_bytes = 0

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


async def test_records_are_read_as_the_client_takes_them() -> None:
    """An answer of 50 MB is not read for a client that takes nothing, and arrives whole."""
    records = Stored(50 << 20)
    handlers = Fetches(records)
    async with listening(handlers, NARROW) as (_, connect):
        client = await connect()
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        await client.send(1, 4, 7, FETCH_BODY)
        await settled()
        assert 0 < records.read_bytes < 4 << 20
        correlation_id, body = await client.receive()
        assert (correlation_id, len(body) >> 20) == (7, 50)


@pytest.mark.parametrize("at_once", [False, True])
async def test_requests_are_handled_one_ahead_of_what_the_client_takes(at_once: bool) -> None:
    handlers = Fetches(*(Stored(8 << 20) for _ in range(8)))
    async with listening(handlers, NARROW) as (_, connect):
        client = await connect()
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        frames = [struct.pack(">hhih", 1, 4, number, -1) + FETCH_BODY for number in range(8)]
        whole = [struct.pack(">i", len(frame)) + frame for frame in frames]
        for data in [b"".join(whole)] if at_once else whole:
            await client.stream.send_all(data)
            await settled()
        assert handlers.fetched == 2
        for correlation_id in range(8):
            assert (await client.receive())[0] == correlation_id
            assert handlers.fetched <= correlation_id + 4


async def test_answers_behind_a_parked_one_are_bounded() -> None:
    """They cannot leave, so not many are made: what is encoded counts."""
    handlers = Handlers()
    handlers.metadata = handlers.parked_first  # type: ignore[method-assign]
    async with listening(handlers) as (_, connect):
        client = await connect()
        for correlation_id in range(60):
            await client.send(3, 2, correlation_id, METADATA_BODY)
        await settled()
        assert len(handlers.seen) < 15
        handlers.parked[0].complete(MetadataResponse())
        for correlation_id in range(60):
            assert (await client.receive())[0] == correlation_id


@pytest.mark.parametrize("cold", [True, False])
async def test_cold_records_are_loaded_by_a_thread(cold: bool) -> None:
    records = Stored(3 << 20, cold=cold)
    async with listening(Fetches(records)) as (_, connect):
        client = await connect()
        await client.send(1, 4, 7, FETCH_BODY)
        assert (await client.receive())[0] == 7
        assert records.loads == (3 if cold else 0)


async def test_an_answer_whose_records_are_gone_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its length is out already: nothing else may follow in the place of the records."""
    handlers = Fetches(Stored(4 << 20, gone_at=2 << 20), Stored(10))
    async with listening(handlers) as (_, connect):
        with caplog.at_level(logging.DEBUG, "kraftrio.server"):
            client = await connect()
            await client.send(1, 4, 7, FETCH_BODY)
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await client.receive()
            assert len(client.buffer) <= (2 << 20) + 60
            other = await connect()
            await other.send(1, 4, 8, FETCH_BODY)
            assert (await other.receive())[0] == 8
    [line] = [entry for entry in caplog.records if "truncated" in entry.getMessage()]
    assert line.levelno == logging.DEBUG


async def test_large_answers_wait_while_others_are_not_taken() -> None:
    """Clients that take nothing fill the memory of answers; another one's turn comes later."""
    handlers = Fetches()
    handlers.answer = MetadataResponse(cluster_id="x" * 32_000, brokers=BROKERS)
    resources = ServerResources(answers=MemoryBudget(1 << 20))
    async with listening(handlers, NARROW, resources=resources) as (_, connect):
        idle = [await connect() for _ in range(6)]
        for client in idle:
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            await client.send(3, 2, 1, METADATA_BODY)
        await settled()
        assert handlers.asked < 6
        assert resources.answers.waiting_count == 6 - handlers.asked
        assert resources.answers.used_bytes < 4 << 20
        small = await connect()
        await small.send(18, 0, 5, b"")
        assert (await small.receive())[0] == 5, "small answers wait for nobody"
        for client in idle:
            assert (await client.receive())[0] == 1
        assert resources.answers.used_bytes == 0


async def test_nodes_of_the_cluster_do_not_wait_for_the_memory_of_answers() -> None:
    """Whatever clients leave lying: brokers that are not answered in time would be fenced."""
    resources = ServerResources(answers=MemoryBudget(1))
    for number in range(2):  # what there is, and what one may have beyond it
        resources.answers.share(lambda: None, lambda: None).take((number + 1) << 20)
    async with listening(Fetches(), resources=resources) as (_, connect):
        client = await connect()
        await client.send(3, 2, 1, METADATA_BODY)
        await settled()
        assert resources.answers.waiting_count == 1
    async with listening(Fetches(), resources=resources, for_peers=True) as (_, connect):
        peer = await connect()
        await peer.send(3, 2, 1, METADATA_BODY)
        assert (await peer.receive())[0] == 1


BROKERS = [MetadataResponseBroker(host="h" * 30_000) for _ in range(20)]


async def test_large_requests_wait_for_memory_and_those_that_stand_still_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames that were begun and never end fill the memory of requests, but not for ever."""
    monkeypatch.setattr(client_connection, "_LOOK_INTERVAL_S", 0.05)
    handlers = Fetches()
    resources = ServerResources(requests=MemoryBudget(2 << 20))
    limits = replace(LIMITS, socket_request_max_bytes=8 << 20)
    begun = struct.pack(">i", 8 << 20) + bytes(3 << 20)
    async with listening(handlers, limits, resources=resources) as (listener, connect):
        hostile = [await connect() for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for client in hostile:
                nursery.start_soon(send_what_is_taken, client, begun)
            await settled()
            assert resources.requests.used_bytes < 9 << 20, "the limit, and one beyond it"
            honest = await connect()
            await honest.send(18, 0, 5, bytes(4 << 20))
            assert (await honest.receive())[0] == 5
            nursery.cancel_scope.cancel()
        assert len(listener._connections) < 6


async def test_the_memory_of_a_connection_goes_with_it() -> None:
    """Also that of a request which never came to its end, and not at some later time."""
    resources = ServerResources(requests=MemoryBudget(64 << 20))
    limits = replace(LIMITS, socket_request_max_bytes=64 << 20)
    async with listening(Fetches(), limits, resources=resources) as (listener, connect):
        client = await connect()
        await client.send(18, 0, 1, b"")
        await client.receive()
        await client.stream.send_all(struct.pack(">i", 32 << 20) + bytes(8 << 20))
        await settled()
        [frame] = [weakref.ref(one._protocol._frame) for one in listener._connections]
        assert frame() is not None
        gc.disable()
        try:
            await client.stream.aclose()
            while listener._connections:
                await trio.lowlevel.checkpoint()
            await settled()
            assert frame() is None
            assert resources.requests.used_bytes == 0
        finally:
            gc.enable()


async def send_what_is_taken(client: Client, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        await client.stream.send_all(data)


async def test_what_is_ready_leaves_before_a_bad_request_ends_the_connection() -> None:
    """As if requests were handled one by one: with a bad frame, and with a bad request."""
    for bad in (struct.pack(">i", -5), struct.pack(">ihhih", 10, 999, 0, 3, -1)):
        handlers = Fetches(Stored(4 << 20))
        async with listening(handlers, NARROW) as (_, connect):
            client = await connect()
            header = struct.pack(">hhih", 1, 4, 1, -1) + FETCH_BODY
            await client.stream.send_all(struct.pack(">i", len(header)) + header + bad)
            assert (await client.receive())[0] == 1
            assert await client.is_closed()


async def test_a_client_that_takes_nothing_is_idle() -> None:
    """connections.max.idle.ms holds for it, too: it would keep its answer for ever."""
    limits = replace(NARROW, connections_max_idle_ms=200)
    async with listening(Fetches(Stored(50 << 20)), limits) as (listener, connect):
        client = await connect()
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await client.send(1, 4, 1, FETCH_BODY)
        while not listener._connections:
            await trio.lowlevel.checkpoint()
        while listener._connections:
            await trio.lowlevel.checkpoint()


# -- how a connection ends ----------------------------------------------------------------------


async def park(client: Client, handlers: Handlers, ended: list[str], name: str) -> None:
    """Have a request parked and note the end of its connection in `ended`."""
    count = len(handlers.seen)
    await client.send(3, 1, 1, METADATA_BODY)
    while len(handlers.seen) == count:
        await trio.lowlevel.checkpoint()
    handlers.seen[-1].client.on_close.append(lambda: ended.append(name))


def reset(client: Client) -> None:
    client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.stream.socket.close()


@pytest.mark.parametrize("how", ["close", "reset", "nonsense", "idle"])
async def test_who_waits_for_the_end_of_a_connection_is_told_once(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers()
    ended: list[str] = []
    limits = replace(LIMITS, connections_max_idle_ms=100 if how == "idle" else 600_000)
    async with listening(handlers, limits) as (_, connect):
        client = await connect()
        await park(client, handlers, ended, "first")
        [context] = handlers.seen
        context.client.on_close.append(lambda: ended.append("second"))
        assert not context.client.is_closed
        if how == "close":
            client.stream.socket.close()
        elif how == "reset":
            reset(client)
        elif how == "nonsense":
            await client.send_raw(b"nonsense")
        else:
            handlers.parked[0].complete(MetadataResponse())
        while not ended:
            await trio.lowlevel.checkpoint()
        assert ended == ["first", "second"]
        assert context.client.is_closed
        if how != "idle":
            handlers.parked[0].complete(MetadataResponse())  # as if it were still wanted
    assert ended == ["first", "second"]
    assert [entry for entry in caplog.records if entry.levelno >= logging.ERROR] == []


async def test_the_end_of_a_listener_ends_its_connections_in_the_order_they_came() -> None:
    handlers = Handlers()
    ended: list[str] = []
    async with listening(handlers) as (listener, connect):
        for name in "abc":
            await park(await connect(), handlers, ended, name)
        assert [connection.client.port for connection in listener._connections] == [
            context.client.port for context in handlers.seen
        ]
    assert sorted(ended) == ["a", "b", "c"]


class Unreachable(SystemNetwork):
    """Hands out sockets whose peer is cut off: what was received before is all there is."""

    def tune(self, sock: Any, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        super().tune(sock.sock, send_buffer_bytes, receive_buffer_bytes)

    def bind(self, host: str, port: int, **how: Any) -> Any:
        return _CutListener(super().bind(host, port, **how))

    def file_sender(self, sock: Any) -> None:
        return None

    async def wait_readable(self, sock: Any) -> None:
        await super().wait_readable(sock.sock)

    async def wait_writable(self, sock: Any) -> None:
        await super().wait_writable(sock.sock)


class _CutListener:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.getsockname = sock.getsockname
        self.close = sock.close

    def accept(self) -> tuple[Any, Any]:
        sock, address = self.sock.accept()
        return _CutSocket(sock), address


class _CutSocket:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.recvmsg_into = sock.recvmsg_into
        self.close = sock.close

    def send(self, data: Any) -> int:
        raise TimeoutError(110, "Connection timed out")


async def test_a_peer_that_cannot_be_reached_any_more_is_no_fault_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(Handlers(), network=Unreachable()) as (_, connect):
        client = await connect()
        with caplog.at_level(logging.DEBUG, "kraftrio.server"):
            await client.send(18, 0, 1, b"")
            assert await client.is_closed()
        [entry] = caplog.records
        assert entry.levelno == logging.DEBUG
        assert "Connection timed out" in entry.getMessage()


async def test_our_own_connections_are_served() -> None:
    """Both halves meet: what is parked, what is answered at once, and what has no answer."""
    handlers = Handlers()
    async with (
        listening(handlers, replace(LIMITS, max_in_flight_requests=7)) as (listener, _),
        open_connection(
            SystemNetwork(),
            "127.0.0.1",
            listener._sock.getsockname()[1],
            client_id="node-1",
            connect_timeout_s=5,
        ) as connection,
    ):
        replies = []
        for _ in range(50):
            replies.append(connection.send(MetadataRequest(), 12))
            connection.send_oneway(ProduceRequest(acks=0), 9)
            connection.send(ApiVersionsRequest(), 3)
        for number in range(50):
            while len(handlers.parked) <= number:
                await trio.lowlevel.checkpoint()
            handlers.parked[number].complete(MetadataResponse(controller_id=number))
        assert [(await reply.wait()).controller_id for reply in replies] == list(range(50))
        assert handlers.seen[0].client_id == "node-1"
