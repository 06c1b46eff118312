"""The order of responses on a connection, and what its end is to those who wait for it."""

from __future__ import annotations

import logging
import socket
import struct
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from kraftrio.broker.server.resources import ServerResources
from kraftrio.net.connection import open_connection
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.messages.cluster import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
)
from kraftrio.wire.messages.data import (
    ProduceRequest,
)
from kraftrio.wire.protocol.api import ApiKey
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
    park,
)


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


async def test_who_waits_for_its_turn_is_not_slow_for_that() -> None:
    """Only the request that the other one waits for is reported."""
    handlers, now_ms = Handlers(), 0
    reported: list[int] = []
    resources = ServerResources(ticks_ns=lambda: now_ms * 1_000_000)
    resources.slow_requests.nanoseconds = 100_000_000
    resources.slow_requests.report = lambda times, _sent: reported.append(times.start.api_key)
    async with listening(handlers, resources=resources) as (_, connect):
        client = await connect()
        await client.send(3, 1, 1, METADATA_BODY)
        await client.send(18, 0, 2, b"")
        while len(handlers.parked) < 1:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        now_ms = 500
        handlers.parked[0].complete(MetadataResponse())
        assert [(await client.receive())[0] for _ in range(2)] == [1, 2]
        await trio.testing.wait_all_tasks_blocked()
    assert reported == [ApiKey.METADATA]


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


def reset(client: Client) -> None:
    client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.stream.socket.close()


@pytest.mark.parametrize("how", ["close", "reset", "nonsense", "idle"])
async def test_the_end_of_a_connection_is_reported_once(
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
