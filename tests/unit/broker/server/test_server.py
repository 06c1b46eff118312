"""Listeners over loopback: limits, pace, idle connections, and what is logged of a fault."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.lowlevel

from kraftrio.broker.server.admission.connection_quotas import ConnectionLimits, ConnectionQuotas
from kraftrio.broker.server.resources import ServerResources
from kraftrio.kraft_meta.metadata.quota_image import quota_entity
from kraftrio.wire.codec.message import encode
from kraftrio.wire.messages.cluster import (
    MetadataResponse,
)
from kraftrio.wire.messages.data import (
    ProduceRequest,
)
from tests.support.server_limits import LIMITS
from tests.unit.broker.server.server_context import (
    FETCH_BODY,
    METADATA_BODY,
    NARROW,
    Fetches,
    Handlers,
    Stored,
    listening,
    park,
    settled,
)


def granting(**limits: Any) -> ServerResources:
    return ServerResources(connections=ConnectionQuotas(ConnectionLimits(**limits)))


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


async def test_connections_of_one_address_are_limited() -> None:
    async with listening(Handlers(), resources=granting(max_connections_per_ip=2)) as (_, connect):
        kept = [await connect(), await connect()]
        refused = await connect()
        assert await refused.is_closed()
        for client in kept:
            await client.send(18, 0, 1, b"")
            assert (await client.receive())[0] == 1


async def test_connections_come_no_faster_than_allowed() -> None:
    """max.connection.creation.rate: a second's worth at once, then by and by, until it changes."""
    resources = granting(max_connection_creation_rate=4)
    async with listening(Handlers(), resources=resources) as (listener, connect):
        begin = trio.current_time()
        clients = [await connect() for _ in range(5)]
        for client in clients:
            await client.send(18, 0, 1, b"")
            assert (await client.receive())[0] == 1
        assert trio.current_time() - begin >= 0.2
        resources.connections.limit(ConnectionLimits(max_connection_creation_rate=0))
        late = await connect()
        await late.send(18, 0, 1, b"")
        await settled()
        assert len(listener._connections) == 5
        resources.connections.limit(ConnectionLimits())
        assert (await late.receive())[0] == 1


async def test_statistics_count_connections_bytes_and_requests() -> None:
    """Also of connections that have ended; what one moved does not go with it."""
    resources = ServerResources()
    async with listening(Handlers(), resources=resources) as (listener, connect):
        first, second = await connect(), await connect()
        for client in (first, second):
            await client.send(18, 0, 1, b"")
            assert (await client.receive())[0] == 1
        before = listener.statistics()
        assert before["connections"] == before["connections_accepted_total"] == 2
        assert before["received_bytes_total"] == 2 * (4 + 10)
        assert before["sent_bytes_total"] == 2 * (4 + 4 + 2 + 4)
        assert (before["requests_total"], before["api_versions_requests_total"]) == (2, 2)
        assert before["metadata_requests_total"] == 0
        await first.stream.aclose()
        while len(listener._connections) == 2:
            await trio.lowlevel.checkpoint()
        after = listener.statistics()
        assert (after["connections"], after["connections_accepted_total"]) == (1, 2)
        assert after["received_bytes_total"] == before["received_bytes_total"]
        assert after["sent_bytes_total"] == before["sent_bytes_total"]
        assert before["connections"] == 2, "a snapshot does not change"
        resources.connections.limit(ConnectionLimits(max_connections_per_ip=1))
        assert await (await connect()).is_closed()
        assert listener.statistics()["connections_refused_total"] == 1
    assert not any(resources.statistics().values())


async def test_limits_may_change_while_it_listens() -> None:
    """Who waits is let in when there is more room; a lower limit closes nobody's connection."""
    resources = granting(max_connections=1)
    async with listening(Handlers(), resources=resources) as (listener, connect):
        first, second = await connect(), await connect()
        await second.send(18, 0, 1, b"")
        await first.send(18, 0, 1, b"")
        assert (await first.receive())[0] == 1
        assert len(listener._connections) == 1
        resources.connections.limit(ConnectionLimits(max_connections=2))
        assert (await second.receive())[0] == 1
        resources.connections.limit(
            ConnectionLimits(max_connections=1, max_connections_per_ip_overrides={"127.0.0.1": 1})
        )
        await first.send(18, 0, 2, b"")
        assert (await first.receive())[0] == 2


async def test_above_the_connection_limit_a_client_waits_its_turn() -> None:
    async with listening(Handlers(), resources=granting(max_connections=1)) as (_, connect):
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


async def test_a_flood_from_one_address_is_held_off_while_others_come_and_work() -> None:
    """What comes too fast from there is closed after a while, and never served."""
    resources = ServerResources()
    flooder = quota_entity({"ip": "127.0.0.2"})
    resources.connections.change({flooder: {"connection_creation_rate": 1.0}})
    async with listening(Handlers(), resources=resources) as (listener, connect):
        port = listener._sock.getsockname()[1]
        served = [await connect()]
        flood = [await from_address("127.0.0.2", port) for _ in range(60)]
        served.append(await connect())
        for client in served:
            await client.send(18, 0, 1, b"")
            assert (await client.receive())[0] == 1
        statistics = listener.statistics()
        assert (statistics["connections"], statistics["connections_refused_total"]) == (12, 50)
        closed = trio.socket.from_stdlib_socket(flood[-1])
        assert await closed.recv(1) == b""
        for sock in flood:
            sock.close()


async def from_address(host: str, port: int) -> socket.socket:
    """Connect from another address of this machine."""
    sock = socket.socket()
    sock.bind((host, 0))
    sock.setblocking(False)
    async_sock = trio.socket.from_stdlib_socket(sock)
    await async_sock.connect(("127.0.0.1", port))
    return sock


async def test_a_client_makes_room_for_a_broker() -> None:
    """The one that has been silent for longest is closed, not the one that just spoke."""
    resources = granting(max_connections=2, protected_listener="BROKERS")
    async with listening(Handlers(), resources=resources) as (_, connect):
        silent, busy = await connect(), await connect()
        for client in (silent, busy):
            await client.send(18, 0, 1, b"")
            assert (await client.receive())[0] == 1
        brokers = listening(Handlers(), resources=resources, name="BROKERS")
        async with brokers as (_, connect_broker):
            broker = await connect_broker()
            await broker.send(18, 0, 1, b"")
            assert (await broker.receive())[0] == 1
            assert await silent.is_closed()
            await busy.send(18, 0, 2, b"")
            assert (await busy.receive())[0] == 2
