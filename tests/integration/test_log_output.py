"""What a broker writes to its log: one line per event, in columns, that says who and why.

Faults of our own, which no client can cause, are put into a listener's handlers here, in this
process; the rest is a real process's log.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.server import ServerListener, bind
from kraftrio.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kraftrio.wire.messages.data import ProduceRequest
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.conformance.broker_process import Broker
from tests.integration.wire_client import WireClient, frame_of, wait_until
from tests.support.logged import logged
from tests.support.server_limits import LIMITS

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (TRACE|DEBUG|INFO |WARN |ERROR|FATAL) [a-z_]{1,12} +\S"
)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The log of this process, as the command line sets it up."""
    with logged() as stream:
        yield stream


class FaultyHandlers:
    """Produce fails, Metadata's answer cannot be encoded; ApiVersions works."""

    def __init__(self) -> None:
        self.parked: list[Deferred[Any]] = []

    def produce(self, request: ProduceRequest, context: RequestContext) -> Any:
        raise RuntimeError("the cause\nin two lines")

    def metadata(self, request: MetadataRequest, context: RequestContext) -> Any:
        deferred: Deferred[Any] = Deferred()
        self.parked.append(deferred)
        return deferred

    def api_versions(self, request: ApiVersionsRequest, context: RequestContext) -> Any:
        return ApiVersionsResponse()

    def dispatcher(self) -> Dispatcher:
        return Dispatcher(
            {
                ApiKey.PRODUCE: self.produce,
                ApiKey.METADATA: self.metadata,
                ApiKey.API_VERSIONS: self.api_versions,
            }
        )


@asynccontextmanager
async def listening(handlers: FaultyHandlers) -> AsyncIterator[int]:
    sock = bind("127.0.0.1", 0)
    listener = ServerListener("PLAINTEXT", sock, handlers.dispatcher(), LIMITS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        with trio.fail_after(10):
            yield sock.getsockname()[1]
        nursery.cancel_scope.cancel()


async def send_and_lose(port: int, frame: bytes, then: Callable[[], None] = lambda: None) -> int:
    """Send a request whose connection is closed for it; return the port it came from."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(frame)
        await trio.testing.wait_all_tasks_blocked(0.01)
        then()
        assert await stream.receive_some() == b""
        return int(stream.socket.getsockname()[1])


async def test_a_handler_that_fails_is_named_with_its_request(log: io.StringIO) -> None:
    """API, version, client id, address and cause, then the traceback, indented."""
    frame, _, _ = frame_of(ProduceRequest(acks=1), 9, 77, client_id="billing")
    async with listening(FaultyHandlers()) as port:
        client_port = await send_and_lose(port, frame)
        async with await trio.open_tcp_stream("127.0.0.1", port) as other:
            await other.send_all(frame_of(ApiVersionsRequest(), 0)[0])
            assert await other.receive_some()
    first, *rest = log.getvalue().splitlines()
    assert LINE.match(first), first
    assert " ERROR server " in first
    for part in (
        "api=Produce",
        "version=9",
        "correlation_id=77",
        "client_id=billing",
        f"client=127.0.0.1:{client_port}",
    ):
        assert part in first
    assert rest[0] == "    Traceback (most recent call last):"
    assert "RuntimeError: the cause" in log.getvalue()
    assert all(line.startswith("    ") for line in rest), "a traceback is indented as a whole"


async def test_an_answer_that_cannot_be_encoded_is_named_with_its_request(
    log: io.StringIO,
) -> None:
    """Though the answer was parked and its request handled long before."""
    handlers = FaultyHandlers()
    frame, _, _ = frame_of(MetadataRequest(), 5, 78, client_id=None)
    async with listening(handlers) as port:
        await send_and_lose(port, frame, lambda: handlers.parked[0].complete("no response at all"))
    first = log.getvalue().splitlines()[0]
    assert "api=Metadata api_key=3 version=5 correlation_id=78 client_id=None" in first


async def test_what_a_client_writes_cannot_forge_a_line(log: io.StringIO) -> None:
    """Line ends and terminal codes in names are shown escaped."""
    frame, _, _ = frame_of(
        ProduceRequest(acks=1), 9, 79, client_id="x\n2026-01-01T00:00:00.000Z FATAL \x1b[31m"
    )
    async with listening(FaultyHandlers()) as port:
        await send_and_lose(port, frame)
    first = log.getvalue().splitlines()[0]
    assert r"client_id=x\n2026-01-01T00:00:00.000Z FATAL \x1b[31m" in first


async def test_many_refused_clients_are_few_lines(log: io.StringIO) -> None:
    """What peers do wrong cannot fill the log."""
    async with listening(FaultyHandlers()) as port:
        for _ in range(100):
            await send_and_lose(port, struct.pack(">i", -5))
    lines = log.getvalue().splitlines()
    assert "a frame of -5 bytes" in lines[0]
    assert len(lines) < 60


def test_a_start_with_groups_and_recovery_takes_few_lines(
    make_broker: Callable[..., Broker],
) -> None:
    """However many partitions and groups there are, the start takes ten lines at most."""
    broker = make_broker(offsets_topic_num_partitions=20)
    with WireClient((broker.host, broker.port)) as client:
        assert client.create_topic("t", 30) == 0
        wait_until(
            lambda: not find_coordinator(client, "g").coordinators[0].error_code, "coordinator"
        )
        for n in range(40):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=n)
            topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
            request = OffsetCommitRequest(group_id=f"g{n}", topics=[topic])
            response = client.call(request)
            assert response.topics[0].partitions[0].error_code == 0
    broker.kill9()
    before = len(broker.log_text().splitlines())
    broker.start()
    assert broker.terminate() == 0
    lines = broker.log_text().splitlines()[before:]
    assert len(lines) <= 10, "\n".join(lines)
    assert any("groups loaded partitions=" in line for line in lines)


def find_coordinator(client: WireClient, group_id: str) -> Any:
    return client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]))


def test_every_line_of_a_process_has_the_columns(make_broker: Callable[..., Broker]) -> None:
    """Also those about misbehaving clients, topics and a stop."""
    broker = make_broker()
    address = (broker.host, broker.port)
    with WireClient(address) as client:
        assert client.create_topic("t", 3) == 0
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises((EOFError, OSError)):
            client.receive_frame()
    wait_until(lambda: "connection closed" in broker.log_text(), "a line for the connection")
    assert broker.terminate() == 0
    lines = broker.log_text().splitlines()
    assert [line for line in lines if not LINE.match(line)] == []
    [closed] = [line for line in lines if "connection closed" in line]
    assert "client=127.0.0.1:" in closed
    assert "reason=" in closed
