"""Quotas of clients at the server: what counts, what a response says, and who has to wait."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import trio

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.broker.security.quotas.client_quotas import ClientQuotas
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.kraft_meta.metadata.quota_image import quota_entity
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.admin import CreateTopicsRequest, CreateTopicsResponse
from kraftrio.wire.messages.cluster import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from kraftrio.wire.messages.data import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.framing import RequestStart
from tests.unit.broker.server.server_context import Handlers, listening

ANY_USER = quota_entity({"user": None})


class SetClock(Clock):
    """A clock that a test, or a handler that works, moves."""

    __slots__ = ("now_ms",)

    def __init__(self) -> None:
        self.now_ms = 1000.0

    def monotonic_ms(self) -> float:
        return self.now_ms


class Server:
    """A dispatcher with one handler, with quotas for any user."""

    def __init__(self, key: ApiKey, handler: Callable[..., Any], **limits: float) -> None:
        self.clock = SetClock()
        self.quotas = ClientQuotas(RateWindows(11, 1000))
        self.quotas.change({ANY_USER: limits})
        self.key = key
        self.dispatcher = Dispatcher({key: handler}, throttle=Throttle(self.quotas, self.clock))
        self.client = ClientInfo("h", 1, "PLAINTEXT", principal=KafkaPrincipal("User", "u"))

    def send(self, request: Any, version: int, response: type | None) -> Any:
        """Send a request; return its response, as it was encoded, and when the client may go on."""
        start = RequestStart(self.key, version, 1, "c", 0)
        answer = self.dispatcher.handle(memoryview(encode(request, version)), start, self.client)
        run_waiting()
        while isinstance(answer, Deferred):
            answer = answer.value
        if response is None:
            assert answer is None
            return None
        assert answer is not None
        frame = b"".join(answer())  # type: ignore[arg-type]
        header = 9 if version >= 9 else 8
        return decode(response, version, frame[header:])[0]

    @property
    def muted_ms(self) -> float:
        return max(0.0, self.client.muted_until_s * 1000 - self.clock.now_ms)


def batch_of(size_bytes: int, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(acks=acks, transactional_id="x" * size_bytes)


def test_a_response_says_how_long_the_connection_is_muted() -> None:
    """What it has sent counts whole, with all that goes around it."""
    server = Server(ApiKey.PRODUCE, lambda *_: ProduceResponse(), producer_byte_rate=1000.0)
    assert server.send(batch_of(9000), 8, ProduceResponse).throttle_time_ms == 0
    assert server.muted_ms == 0
    said = server.send(batch_of(2000), 8, ProduceResponse).throttle_time_ms
    assert said == 1000 + 2 * (len(encode(batch_of(0), 8)))
    assert server.muted_ms == said


@pytest.mark.parametrize("how", ["later", "in steps", "later in steps"])
def test_a_response_that_comes_later_says_it_too(how: str) -> None:
    parked: list[Deferred[Any]] = []

    def steps() -> Generator[None, None, ProduceResponse]:
        yield None
        return ProduceResponse()

    def steps_to_later() -> Generator[None, None, Deferred[Any]]:
        for _ in range(50):
            yield None
        parked.append(Deferred())
        return parked[-1]

    def handler(*_: Any) -> Any:
        if how == "in steps":
            return steps()
        if how == "later in steps":
            return steps_to_later()
        parked.append(Deferred())
        return parked[-1]

    server = Server(ApiKey.PRODUCE, handler, producer_byte_rate=100.0)
    start = RequestStart(ApiKey.PRODUCE, 8, 1, "c", 0)
    answer = server.dispatcher.handle(memoryview(encode(batch_of(2000), 8)), start, server.client)
    if how != "in steps":
        assert server.muted_ms == 0
        parked[0].complete(steps() if how == "later in steps" else ProduceResponse())
        run_waiting()
    while isinstance(answer, Deferred):
        answer = answer.value
    assert answer is not None
    response = decode(ProduceResponse, 8, b"".join(answer())[8:])[0]  # type: ignore[arg-type]
    assert response.throttle_time_ms == server.muted_ms > 10_000


def test_a_producer_that_wants_no_response_is_muted_for_its_bytes() -> None:
    """But not for its time, as in Kafka."""
    server = Server(ApiKey.PRODUCE, lambda *_: None, producer_byte_rate=100.0)
    server.send(batch_of(2000, acks=0), 8, None)
    assert server.muted_ms > 10_000

    def slow(*_: Any) -> None:
        server.clock.now_ms += 5000

    server = Server(ApiKey.PRODUCE, slow, request_percentage=1.0)
    server.send(batch_of(1, acks=0), 8, None)
    assert server.muted_ms == 0


def test_the_time_of_handling_counts_as_a_share_of_all_time() -> None:
    """5 % of ten seconds are 500 ms; who has to wait for its time waits for a second at most."""

    def busy(_request: Any, _context: RequestContext) -> MetadataResponse:
        server.clock.now_ms += 300
        return MetadataResponse()

    server = Server(ApiKey.METADATA, busy, request_percentage=5.0)
    assert server.send(MetadataRequest(), 4, MetadataResponse).throttle_time_ms == 0
    assert server.send(MetadataRequest(), 4, MetadataResponse).throttle_time_ms == 1000
    assert server.muted_ms == 1000


@pytest.mark.parametrize("where", ["steps", "encoding"])
def test_the_time_of_steps_and_of_encoding_counts(where: str) -> None:
    def broker(index: int) -> MetadataResponseBroker:
        server.clock.now_ms += 1 if where == "encoding" else 0
        return MetadataResponseBroker(node_id=index)

    def work() -> Generator[None, None, MetadataResponse]:
        for _ in range(100):
            server.clock.now_ms += 10 if where == "steps" else 0
            yield None
        return MetadataResponse(brokers=each(broker, range(1000)))

    server = Server(ApiKey.METADATA, lambda *_: work(), request_percentage=5.0)
    first = server.send(MetadataRequest(), 4, MetadataResponse)
    second = server.send(MetadataRequest(), 4, MetadataResponse)
    assert (first.throttle_time_ms > 0) == (where == "steps")
    assert second.throttle_time_ms > 0


def test_a_longer_throttle_time_of_the_controller_stays() -> None:
    server = Server(
        ApiKey.CREATE_TOPICS,
        lambda *_: CreateTopicsResponse(throttle_time_ms=7000),
        controller_mutation_rate=1.0,
    )
    response = server.send(CreateTopicsRequest(), 4, CreateTopicsResponse)
    assert (response.throttle_time_ms, server.muted_ms) == (7000, 7000)


def test_a_response_that_cannot_say_it_mutes_nevertheless() -> None:
    def busy(*_: Any) -> ApiVersionsResponse:
        server.clock.now_ms += 5000
        return ApiVersionsResponse()

    server = Server(ApiKey.API_VERSIONS, busy, request_percentage=1.0)
    server.send(MetadataRequest(), 0, ApiVersionsResponse)
    assert server.muted_ms == 1000


@pytest.mark.parametrize("who", ["replica", "peer"])
def test_nodes_of_the_cluster_never_wait(who: str) -> None:
    def busy(*_: Any) -> FetchResponse:
        server.clock.now_ms += 5000
        return FetchResponse()

    server = Server(ApiKey.FETCH, busy, request_percentage=1.0)
    server.client.is_peer = who == "peer"
    request = FetchRequest(replica_id=2 if who == "replica" else -1)
    for _ in range(2):
        assert server.send(request, 4, FetchResponse).throttle_time_ms == 0
    assert server.muted_ms == 0


def test_nothing_is_counted_while_there_is_no_quota() -> None:
    server = Server(ApiKey.PRODUCE, lambda *_: ProduceResponse(), producer_byte_rate=1000.0)
    server.quotas.change({ANY_USER: None})
    for _ in range(5):
        server.send(batch_of(10_000), 8, ProduceResponse)
    server.quotas.change({ANY_USER: {"producer_byte_rate": 1000.0}})
    assert server.send(batch_of(1000), 8, ProduceResponse).throttle_time_ms == 0
    assert server.quotas.producer.client_count == 1


class Quick(Handlers):
    """Produce is answered."""

    def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        return ProduceResponse()


def with_quota(handlers: Handlers) -> Handlers:
    quotas = ClientQuotas(RateWindows(2, 1000))
    quotas.change({ANY_USER: {"producer_byte_rate": 10_000.0}})
    handlers.throttle = Throttle(quotas, Clock())
    return handlers


async def test_a_muted_connection_is_answered_at_once_and_served_later() -> None:
    """Requests that were sent together wait, too; other connections do not."""
    async with listening(with_quota(Quick())) as (_, connect):
        client, other = await connect(), await connect()
        body = encode(batch_of(12_000), 8)
        began = trio.current_time()
        for number in (1, 2):
            await client.send(0, 8, number, body)
        await client.send(18, 0, 3, b"")
        number, answer = await client.receive()
        throttle_ms = decode(ProduceResponse, 8, answer)[0].throttle_time_ms
        assert (number, 150 < throttle_ms < 300) == (1, True)
        assert trio.current_time() - began < 0.1
        await other.send(18, 0, 9, b"")
        await other.receive()
        assert trio.current_time() - began < 0.1
        assert (await client.receive())[0] == 2
        assert trio.current_time() - began >= throttle_ms / 1000
        assert (await client.receive())[0] == 3
        assert trio.current_time() - began >= 2 * throttle_ms / 1000


async def test_a_muted_connection_ends_with_its_listener() -> None:
    async with listening(with_quota(Quick())) as (_, connect):
        client = await connect()
        await client.send(0, 8, 1, encode(batch_of(32_000), 8))
        await client.receive()
        await client.send(18, 0, 2, b"")
    assert client.stream.socket.fileno() == -1
