"""Connections over loopback to a scripted peer: order, bounds, and every way to lose one."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.net.connection import (
    Connection,
    ConnectionBusy,
    ConnectionLost,
    Reply,
    RequestTimedOut,
    open_connection,
)
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode, LocalProtocolError
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
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.protocol.api import APIS, response_header_version
from kraftrio.wire.protocol.framing import parse_request_start

VERSION = 12  # of Metadata: flexible, so that headers have tagged fields


class Peer:
    """The other end of one connection, by hand."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def receive(self) -> tuple[int, str | None, Any]:
        """The next request: (correlation id, client id, body)."""
        while len(self._buffer) < 4 or len(self._buffer) < 4 + self._size():
            data = await self.stream.receive_some()
            if not data:
                raise EOFError
            self._buffer += data
        frame = memoryview(self._buffer)[4 : 4 + self._size()]
        self._buffer = self._buffer[4 + len(frame) :]
        start = parse_request_start(frame, lambda key: APIS[key].flexible_from)
        api = APIS[start.api_key]
        body, end = decode(api.request, start.api_version, frame, start.body_position)
        assert end == len(frame)
        return start.correlation_id, start.client_id, body

    def _size(self) -> int:
        return int(struct.unpack(">i", self._buffer[:4])[0])

    async def send(self, *parts: bytes) -> None:
        await self.stream.send_all(b"".join(parts))

    async def wait_gone(self) -> None:
        """Wait until the client has closed."""
        try:
            while await self.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass


def answer(correlation_id: int, response: Any, key: int = 3, version: int = VERSION) -> bytes:
    header = struct.pack(">i", correlation_id) + b"\0" * response_header_version(key, version)
    body = header + encode(response, version)
    return struct.pack(">i", len(body)) + body


def metadata(controller_id: int) -> MetadataResponse:
    return MetadataResponse(controller_id=controller_id)


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def connected(script: Script, **options: Any) -> AsyncIterator[Connection]:
    """A connection to a peer that plays `script` and closes when it ends."""
    with trio.fail_after(10):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]

        async def serve() -> None:
            async with listener:
                stream = await listener.accept()
            async with stream:
                await script(Peer(stream))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            async with open_connection(
                SystemNetwork(),
                "127.0.0.1",
                port,
                client_id="tester",
                connect_timeout_s=5,
                **options,
            ) as connection:
                yield connection
            nursery.cancel_scope.cancel()


async def silent(peer: Peer) -> None:
    await peer.wait_gone()


def closes_with(reason: str) -> Any:
    return pytest.raises(ConnectionLost, match=reason)


# -- answers ------------------------------------------------------------------------------------


async def test_a_request_is_answered_and_says_who_asks() -> None:
    seen: list[Any] = []

    async def script(peer: Peer) -> None:
        correlation_id, client_id, request = await peer.receive()
        seen.append((client_id, type(request)))
        await peer.send(answer(correlation_id, metadata(7)))
        await peer.wait_gone()

    async with connected(script) as connection:
        response = await connection.call(MetadataRequest(), VERSION, timeout_s=5)
        assert isinstance(response, MetadataResponse)
        assert response.controller_id == 7
        assert connection.requests_in_flight == 0
    assert seen == [("tester", MetadataRequest)]


async def test_hundred_requests_travel_at_once_and_are_answered_in_order() -> None:
    """All are sent before the first is answered, and one answer arrives in single bytes."""
    segments: list[bytes] = []

    async def script(peer: Peer) -> None:
        segments.append(await peer.stream.receive_some(1 << 20))
        peer._buffer = segments[0]
        ids = [(await peer.receive())[0] for _ in range(100)]
        stream = b"".join(answer(number, metadata(number)) for number in ids)
        for at in range(70):
            await peer.send(stream[at : at + 1])
        await peer.send(stream[70:])
        await peer.wait_gone()

    async with connected(script) as connection:
        order: list[int] = []
        replies = []
        for _ in range(100):
            reply = connection.send(MetadataRequest(), VERSION)
            reply.then(lambda reply: order.append(reply.value().controller_id))
            replies.append(reply)
        await replies[-1].wait()
        assert order == sorted(order)
        assert len(order) == 100
        assert all(reply.done for reply in replies)
    assert segments[0].count(b"tester") == 100, "what was queued together goes out together"


async def test_apis_with_old_response_headers_fit_between_others() -> None:
    """ApiVersions answers without tagged fields in its header, whatever its version."""

    async def script(peer: Peer) -> None:
        first, second = (await peer.receive())[0], (await peer.receive())[0]
        await peer.send(
            answer(first, ApiVersionsResponse(error_code=ErrorCode.LEADER_NOT_AVAILABLE), 18, 3),
            answer(second, metadata(2)),
        )
        await peer.wait_gone()

    async with connected(script) as connection:
        versions = connection.send(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3
        )
        other = connection.send(MetadataRequest(), VERSION)
        assert (await other.wait()).controller_id == 2
        assert versions.value().error_code == 5


async def test_large_records_arrive_writable_in_a_buffer_of_their_own() -> None:
    """A follower stamps and keeps what it fetched, while the next answer arrives."""
    records = bytes(range(256)) * (12 << 10)

    async def script(peer: Peer) -> None:
        for _ in range(2):
            correlation_id, _, _ = await peer.receive()
            partition = PartitionData(partition_index=0, records=memoryview(records))
            topic = FetchableTopicResponse(topic_id=b"t" * 16, partitions=[partition])
            await peer.send(answer(correlation_id, FetchResponse(responses=[topic]), 1, 17))
        await peer.wait_gone()

    async with connected(script) as connection:
        replies = [connection.send(FetchRequest(), 17) for _ in range(2)]
        first, second = [
            (await reply.wait()).responses[0].partitions[0].records for reply in replies
        ]
        first[:4] = b"AAAA"
        assert not first.readonly
        assert second == records
        assert first[4:] == records[4:]


async def test_large_requests_wait_for_a_slow_peer_and_arrive_whole() -> None:
    records = memoryview(bytes(range(256)) * (16 << 10))
    allowed = trio.Event()
    got: list[Any] = []

    async def script(peer: Peer) -> None:
        await allowed.wait()
        got.append((await peer.receive())[2])
        got.append((await peer.receive())[2])
        await peer.wait_gone()

    async with connected(script, max_unsent_bytes=5 << 20) as connection:
        partition = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[partition])
        request = ProduceRequest(acks=0, topic_data=[topic])
        connection.send_oneway(request, 9)
        connection.send_oneway(request, 9)
        with pytest.raises(ConnectionBusy, match="bytes wait"):
            connection.send_oneway(request, 9)
        assert connection.requests_in_flight == 0
        allowed.set()
        while len(got) < 2:
            await trio.testing.wait_all_tasks_blocked(0.005)
        assert connection.unsent_bytes == 0
        assert not connection.is_closed
    assert all(request.topic_data[0].partition_data[0].records == records for request in got)


# -- refusals of ours ---------------------------------------------------------------------------


async def test_too_many_unanswered_requests_are_refused_and_nothing_else_happens() -> None:
    allowed = trio.Event()

    async def script(peer: Peer) -> None:
        ids = [(await peer.receive())[0] for _ in range(3)]
        await allowed.wait()
        for number in ids:
            await peer.send(answer(number, metadata(number)))
        await peer.wait_gone()

    async with connected(script, max_requests_in_flight=3) as connection:
        replies = [connection.send(MetadataRequest(), VERSION) for _ in range(3)]
        with pytest.raises(ConnectionBusy, match="3 requests"):
            connection.send(MetadataRequest(), VERSION)
        allowed.set()
        assert [(await reply.wait()).controller_id for reply in replies] == [0, 1, 2]


async def test_what_cannot_be_encoded_leaves_the_connection_as_it_was() -> None:
    async def script(peer: Peer) -> None:
        correlation_id, _, _ = await peer.receive()
        await peer.send(answer(correlation_id, metadata(1)))
        await peer.wait_gone()

    async with connected(script) as connection:
        with pytest.raises(LocalProtocolError):
            connection.send(MetadataRequest(), 99)
        with pytest.raises(LocalProtocolError, match="not a request"):
            connection.send(MetadataResponse(), VERSION)
        response = await connection.call(MetadataRequest(), VERSION, timeout_s=5)
        assert response.controller_id == 1


# -- losses -------------------------------------------------------------------------------------


async def test_a_port_without_a_listener_refuses() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionLost, match="cannot connect to 127") as caught:
            async with open_connection(
                SystemNetwork(),
                "127.0.0.1",
                sock.getsockname()[1],
                client_id="tester",
                connect_timeout_s=5,
            ):
                raise AssertionError("nobody is there")
    assert caught.value.refused


class Unreachable(SystemNetwork):
    """Packets to everyone get lost, or a router says so."""

    def __init__(self, error: OSError | None) -> None:
        self._error = error

    async def connect(self, host: str, port: int) -> socket.socket:
        if self._error is not None:
            raise self._error
        await trio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (None, False),
        (OSError(113, "No route to host"), False),
        (socket.gaierror(-2, "Name or service not known"), False),
        (ConnectionResetError(104, "reset while connecting"), True),
    ],
)
async def test_only_a_refusal_counts_as_one(
    error: OSError | None, refused: bool, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(ConnectionLost, match="cannot connect to there:9") as caught:
        async with open_connection(
            Unreachable(error), "there", 9, client_id="tester", connect_timeout_s=30
        ):
            raise AssertionError("nobody is there")
    assert caught.value.refused is refused


async def test_several_addresses_must_all_refuse() -> None:
    """One address of a name that is silent may have the node behind it."""
    refusal, silence = ConnectionRefusedError(111, "refused"), TimeoutError(110, "silence")
    no_such_family = OSError(97, "Address family not supported by protocol")
    for causes, refused in (
        ([refusal, refusal], True),
        ([refusal, no_such_family], True),
        ([refusal, silence], False),
        ([no_such_family], False),
    ):
        error = OSError("all attempts failed")
        error.__cause__ = ExceptionGroup("all attempts failed", causes)
        with pytest.raises(ConnectionLost) as caught:
            async with open_connection(
                Unreachable(error), "there", 9, client_id="tester", connect_timeout_s=30
            ):
                raise AssertionError("nobody is there")
        assert caught.value.refused is refused


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "the peer closed the connection$"),
        (b"\0\0", "within a response"),
        (answer(0, metadata(1))[:-1], "within a response"),
        (answer(5, metadata(1)), "the response to 5 instead of 0"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 1 << 30), "a frame of 1073741824 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n", "a frame of 1213486160 bytes"),
        (struct.pack(">i", 0), "within the response header"),
        (struct.pack(">ii", 4, 0), "within the response header"),
        (struct.pack(">ii", 5, 0) + b"\0", "broke the protocol"),
        (answer(0, metadata(1))[:4] + b"\0\0\0\0\0" + b"\xff" * 80, "broke the protocol"),
    ],
)
async def test_a_peer_that_closes_or_talks_nonsense_loses_the_connection(
    sent: bytes, reason: str
) -> None:
    """All pending replies get the reason, in order, and later ones too."""

    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.send(sent)

    async with connected(script) as connection:
        completed: list[Reply] = []
        replies = [connection.send(MetadataRequest(), VERSION) for _ in range(3)]
        for reply in replies:
            reply.then(completed.append)
        await connection.wait_closed()
        assert connection.is_closed
        assert completed == replies
        for reply in replies:
            with closes_with(reason):
                reply.value()
        with closes_with(reason):
            connection.send(MetadataRequest(), VERSION)
        with closes_with(reason):
            await connection.call(MetadataRequest(), VERSION, timeout_s=1)


async def test_answers_before_the_nonsense_count() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.send(answer(0, metadata(1)), answer(0, metadata(1)))
        await peer.wait_gone()

    async with connected(script) as connection:
        first = connection.send(MetadataRequest(), VERSION)
        await connection.wait_closed()
        assert first.value().controller_id == 1
        with closes_with("a response 0 that nothing asked for"):
            connection.send(MetadataRequest(), VERSION)


async def test_a_reset_is_a_loss() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with connected(script) as connection:
        with closes_with("receiving failed"):
            await connection.call(MetadataRequest(), VERSION, timeout_s=5)


async def test_a_request_that_is_not_answered_in_time_closes_the_connection() -> None:
    """Only what is overdue has timed out; what else waits is lost with the connection."""
    async with connected(silent) as connection:
        patient = connection.send(MetadataRequest(), VERSION, timeout_s=60)
        with pytest.raises(RequestTimedOut):
            await connection.call(MetadataRequest(), VERSION, timeout_s=0.02)
        assert connection.is_closed
        with closes_with("not answered in time") as caught:
            patient.value()
        assert not isinstance(caught.value, RequestTimedOut)


async def test_answers_in_time_keep_the_connection_beyond_their_deadlines(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def script(peer: Peer) -> None:
        for number in range(3):
            await peer.receive()
            await peer.send(answer(number, metadata(number)))
        await peer.wait_gone()

    # The mock clock must not jump while bytes are under way.
    autojump_clock.autojump_threshold = 0.05
    async with connected(script) as connection:
        for _ in range(3):
            await connection.call(MetadataRequest(), VERSION, timeout_s=0.5)
        await trio.sleep(2)
        assert not connection.is_closed


async def test_a_cancelled_call_leaves_the_connection_to_the_others() -> None:
    allowed = trio.Event()

    async def script(peer: Peer) -> None:
        for number in range(2):
            await peer.receive()
            await allowed.wait()
            await peer.send(answer(number, metadata(number)))
        await peer.wait_gone()

    async with connected(script) as connection:
        with trio.move_on_after(0.01) as scope:
            await connection.call(MetadataRequest(), VERSION, timeout_s=60)
        assert scope.cancelled_caught
        assert connection.requests_in_flight == 1
        allowed.set()
        response = await connection.call(MetadataRequest(), VERSION, timeout_s=60)
        assert response.controller_id == 1


async def test_closing_completes_all_replies_and_a_callback_may_try_again() -> None:
    async with connected(silent) as connection:
        reply = connection.send(MetadataRequest(), VERSION)
        refused: list[str] = []

        def again(_reply: Reply) -> None:
            with pytest.raises(ConnectionLost) as caught:
                connection.send(MetadataRequest(), VERSION)
            refused.append(caught.value.reason)

        reply.then(again)
        connection.close()
        connection.close()
        await connection.wait_closed()
        with closes_with("closed on this side"):
            await reply.wait()
        assert refused == ["the connection was closed on this side"]


async def test_a_callback_may_close_in_the_middle_of_answers() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.receive()
        await peer.send(answer(0, metadata(0)), answer(1, metadata(1)))
        await peer.wait_gone()

    async with connected(script) as connection:
        first = connection.send(MetadataRequest(), VERSION)
        second = connection.send(MetadataRequest(), VERSION)
        first.then(lambda _reply: connection.close())
        with closes_with("closed on this side"):
            await second.wait()


async def test_leaving_closes_and_the_body_s_exception_comes_out_as_it_is() -> None:
    gone = trio.Event()
    kept: list[Any] = []

    async def script(peer: Peer) -> None:
        await peer.wait_gone()
        gone.set()

    with trio.fail_after(5):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener, trio.open_nursery() as nursery:

            async def serve() -> None:
                async with await listener.accept() as stream:
                    await script(Peer(stream))

            nursery.start_soon(serve)
            port = listener.socket.getsockname()[1]
            with pytest.raises(ValueError, match="mine"):
                async with open_connection(
                    SystemNetwork(), "127.0.0.1", port, client_id="c", connect_timeout_s=5
                ) as connection:
                    kept.append((connection, connection.send(MetadataRequest(), VERSION)))
                    raise ValueError("mine")
            await gone.wait()
    connection, reply = kept[0]
    assert connection.is_closed
    assert reply.done


async def test_a_cancelled_body_ends_the_connection_and_stays_cancelled() -> None:
    with trio.move_on_after(0.05) as scope:
        async with connected(silent) as connection:
            await connection.call(MetadataRequest(), VERSION, timeout_s=60)
    assert scope.cancelled_caught
    assert connection.is_closed
