"""What one connection may hold: unread answers, stored records, half a request."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import struct
import threading
import weakref
from dataclasses import replace

import pytest
import trio
import trio.lowlevel

from kraftrio.broker.server import resources as resources_module
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.resources import ServerResources
from kraftrio.wire.messages.cluster import (
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.support.server_limits import LIMITS
from tests.unit.broker.server.server_context import (
    FETCH_BODY,
    METADATA_BODY,
    NARROW,
    Client,
    Fetches,
    Handlers,
    Stored,
    listening,
    settled,
)


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


async def test_what_is_read_next_is_loaded_while_the_former_is_sent() -> None:
    """By a thread that nobody waits for but the end of the connection."""
    records = Stored(3 << 20)
    received, loaded = threading.Event(), threading.Event()

    def ahead() -> None:
        if received.wait(5):
            loaded.set()

    records.ahead = ahead
    async with listening(Fetches(records)) as (_, connect):
        client = await connect()
        await client.send(1, 4, 7, FETCH_BODY)
        assert (await client.receive())[0] == 7
        received.set()
    assert loaded.is_set()


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


BROKERS = [MetadataResponseBroker(host="h" * 30_000) for _ in range(20)]


async def test_large_answers_wait_while_others_are_not_taken() -> None:
    """Clients that take nothing fill the memory of answers; another one's turn comes later."""
    handlers = Fetches()
    handlers.answer = MetadataResponse(cluster_id="x" * 32_000, brokers=BROKERS)
    resources = ServerResources(response_memory=MemoryBudget(1 << 20))
    async with listening(handlers, NARROW, resources=resources) as (_, connect):
        idle = [await connect() for _ in range(6)]
        for client in idle:
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            await client.send(3, 2, 1, METADATA_BODY)
        await settled()
        assert handlers.asked < 6
        assert resources.response_memory.waiting_count == 6 - handlers.asked
        assert resources.response_memory.used_bytes < 4 << 20
        small = await connect()
        await small.send(18, 0, 5, b"")
        assert (await small.receive())[0] == 5, "small answers wait for nobody"
        for client in idle:
            assert (await client.receive())[0] == 1
        assert resources.response_memory.used_bytes == 0


async def test_nodes_of_the_cluster_do_not_wait_for_the_memory_of_answers() -> None:
    """Whatever clients leave lying: brokers that are not answered in time would be fenced."""
    resources = ServerResources(response_memory=MemoryBudget(1))
    for number in range(2):  # what there is, and what one may have beyond it
        resources.response_memory.share(lambda: None, lambda: None).take((number + 1) << 20)
    async with listening(Fetches(), resources=resources) as (_, connect):
        client = await connect()
        await client.send(3, 2, 1, METADATA_BODY)
        await settled()
        assert resources.response_memory.waiting_count == 1
    async with listening(Fetches(), resources=resources, for_peers=True) as (_, connect):
        peer = await connect()
        await peer.send(3, 2, 1, METADATA_BODY)
        assert (await peer.receive())[0] == 1


async def send_what_is_taken(client: Client, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        await client.stream.send_all(data)


async def test_large_requests_wait_for_memory_and_those_that_stand_still_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames that were begun and never end fill the memory of requests, but not for ever."""
    monkeypatch.setattr(resources_module, "_STALL_CHECK_INTERVAL_S", 0.05)
    handlers = Fetches()
    resources = ServerResources(request_memory=MemoryBudget(2 << 20))
    limits = replace(LIMITS, socket_request_max_bytes=8 << 20)
    begun = struct.pack(">i", 8 << 20) + bytes(3 << 20)
    async with listening(handlers, limits, resources=resources) as (listener, connect):
        hostile = [await connect() for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for client in hostile:
                nursery.start_soon(send_what_is_taken, client, begun)
            await settled()
            assert resources.request_memory.used_bytes < 9 << 20, "the limit, and one beyond it"
            honest = await connect()
            await honest.send(18, 0, 5, bytes(4 << 20))
            assert (await honest.receive())[0] == 5
            nursery.cancel_scope.cancel()
        assert len(listener._connections) < 6


async def test_the_memory_of_a_connection_goes_with_it() -> None:
    """Also that of a request which never came to its end, and not at some later time."""
    resources = ServerResources(request_memory=MemoryBudget(64 << 20))
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
            assert resources.request_memory.used_bytes == 0
        finally:
            gc.enable()
