"""Requests reach the broker they are for, or fail; no broker holds up another."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.base.deferred import Deferred
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.peers import broker_links
from kraftrio.broker.peers.broker_links import BrokerLinks
from kraftrio.broker.peers.local_calls import LocalCalls
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.server import ServerListener, bind
from kraftrio.broker.server.slices.sliced_work import SlicedWork
from kraftrio.kraft_meta.metadata.image import BrokerImage, Endpoint
from kraftrio.net.connection import ConnectionBusy, ConnectionLost, RequestTimedOut
from kraftrio.net.link import LinkSettings
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.messages.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.support.server_limits import LIMITS

THIS_BROKER = 1
LISTENER = "INTERNAL"
SETTINGS = LinkSettings("broker-1", ExponentialBackoff(1000, 1000), ExponentialBackoff(20, 100))


def request(key: str = "k") -> FindCoordinatorRequest:
    """Make a request that stands for any."""
    return FindCoordinatorRequest(key_type=0, coordinator_keys=[key])


class Peer:
    """Another broker, which answers what the test says while it is up."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.answer: Callable[[Any], Any] = lambda _request: FindCoordinatorResponse(
            throttle_time_ms=2
        )
        self.requests: list[Any] = []
        self.versions: set[int] = set()
        self._nursery = nursery
        self._arrived = trio.Event()
        self._scope = trio.CancelScope()
        self._sock: Any = bind("127.0.0.1", 0)
        self.port: int = self._sock.getsockname()[1]
        self.connections: set[int] = set()
        self.start()

    def start(self) -> None:
        if self._sock is None:
            self._sock = bind("127.0.0.1", self.port)
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._serve, self._sock, self._scope)

    def stop(self) -> None:
        self._scope.cancel()
        self._sock.close()
        self._sock = None

    async def _serve(self, sock: Any, scope: trio.CancelScope) -> None:
        with scope:
            table = {ApiKey.FIND_COORDINATOR: self._handle}
            await ServerListener(LISTENER, sock, Dispatcher(table), LIMITS).run()

    def _handle(self, request: Any, context: RequestContext) -> Any:
        self.requests.append(request)
        self.versions.add(context.api_version)
        self.connections.add(context.client_port)
        self._arrived.set()
        return self.answer(request)

    async def wait_requests(self, count: int) -> None:
        """Wait until so many requests have come in all."""
        while len(self.requests) < count:
            self._arrived = trio.Event()
            await self._arrived.wait()


@dataclass
class Cluster:
    """The links of broker 1, and two others."""

    links: BrokerLinks
    local_calls: LocalCalls
    metadata: MetadataCache
    second: Peer
    third: Peer

    def send(self, broker_id: int = 2, timeout_ms: float = 10_000) -> Deferred[Any]:
        return self.links.send(broker_id, request(), timeout_ms=timeout_ms)

    def register(self, broker_id: int, port: int, broker_epoch: int = 1) -> None:
        broker = BrokerImage(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            incarnation_id=bytes(16),
            endpoints=(Endpoint(LISTENER, "127.0.0.1", port, 0),),
            rack=None,
            fenced=False,
            in_controlled_shutdown=False,
        )
        image = self.metadata.image
        self.metadata.image = replace(image, brokers=image.brokers.set(broker_id, broker))
        self.links.metadata_changed()

    def unregister(self, broker_id: int) -> None:
        image = self.metadata.image
        self.metadata.image = replace(image, brokers=image.brokers.delete(broker_id))
        self.links.metadata_changed()


def make_links(metadata: MetadataCache) -> tuple[BrokerLinks, LocalCalls]:
    local_calls = LocalCalls(SlicedWork(lambda: 0.0), "broker-1", LISTENER)
    links = BrokerLinks(
        "tests", THIS_BROKER, metadata, local_calls,
        SystemNetwork(), LISTENER, SETTINGS, random.Random(1),
    )  # fmt: skip
    return links, local_calls


@pytest.fixture
async def cluster(nursery: trio.Nursery) -> Cluster:
    metadata = MetadataCache()
    links, local_calls = make_links(metadata)
    cluster = Cluster(links, local_calls, metadata, Peer(nursery), Peer(nursery))
    cluster.register(2, cluster.second.port)
    cluster.register(3, cluster.third.port)
    nursery.start_soon(links.run)
    await wait_all_tasks_blocked()
    return cluster


async def answer_of(answer: Deferred[Any], within_s: float = 5) -> Any:
    with trio.fail_after(within_s):
        return await answer.wait()


async def test_a_request_goes_to_its_broker_in_the_newest_version(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    assert (await answer_of(cluster.send(2))).throttle_time_ms == 2
    assert len(cluster.second.requests) == 1
    assert cluster.second.versions == {APIS[ApiKey.FIND_COORDINATOR].max_version}
    assert not cluster.third.requests
    assert cluster.links.statistics()["unanswered_requests"] == 0


async def test_requests_share_one_connection_and_are_pipelined(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    held: list[Deferred[Any]] = []

    def hold(_request: Any) -> Any:
        held.append(Deferred())
        return held[-1]

    cluster.second.answer = hold
    answers = [cluster.send() for _ in range(3)]
    await cluster.second.wait_requests(3)
    assert not any(answer.done for answer in answers)
    for one in held:
        one.complete(FindCoordinatorResponse())
    for answer in answers:
        await answer_of(answer)
    assert len(cluster.second.connections) == 1


async def test_a_broker_that_does_not_answer_holds_up_no_other(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = lambda _request: Deferred()
    silent = cluster.send(2, timeout_ms=3000)
    assert (await answer_of(cluster.send(3), within_s=0.5)).throttle_time_ms == 2
    assert not silent.done
    with pytest.raises(RequestTimedOut):
        await answer_of(silent)


async def test_a_broker_that_refuses_fails_what_waits_and_is_reached_once_it_listens(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.stop()
    answers = [cluster.send(), cluster.send()]
    for answer in answers:
        with pytest.raises(ConnectionLost, match="cannot connect"):
            await answer_of(answer, within_s=0.5)
    cluster.second.start()
    await answer_of(cluster.send(), within_s=0.5)
    assert cluster.links.statistics()["failures_total"] == 2


async def test_a_connection_that_ends_fails_what_was_sent_and_not_what_comes_after(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = lambda _request: Deferred()
    sent = cluster.send()
    await cluster.second.wait_requests(1)
    cluster.second.stop()
    with pytest.raises(ConnectionLost):
        await answer_of(sent, within_s=0.5)
    cluster.second.answer = lambda _request: FindCoordinatorResponse()
    cluster.second.start()
    await answer_of(cluster.send(), within_s=0.5)
    assert len(cluster.second.connections) == 2


async def test_a_broker_that_is_not_known_fails_at_once(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    answer = cluster.send(4)
    assert isinstance(answer.error, ConnectionLost)


async def test_a_broker_that_leaves_the_cluster_fails_its_requests(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.second.answer = lambda _request: Deferred()
    sent = cluster.send()
    await cluster.second.wait_requests(1)
    cluster.unregister(2)
    with pytest.raises(ConnectionLost):
        await answer_of(sent, within_s=0.5)
    assert isinstance(cluster.send().error, ConnectionLost)


async def test_a_broker_that_moved_is_dialled_where_it_is_now(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await answer_of(cluster.send())
    cluster.register(2, cluster.third.port, broker_epoch=2)
    await answer_of(cluster.send(), within_s=0.5)
    assert len(cluster.second.requests) == 1
    assert len(cluster.third.requests) == 1


async def test_requests_to_one_broker_are_bounded(
    cluster: Cluster, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_links, "_MAX_UNANSWERED", 2)
    cluster.second.answer = lambda _request: Deferred()
    cluster.send()
    cluster.send()
    assert isinstance(cluster.send().error, ConnectionBusy)
    assert cluster.links.statistics()["unanswered_requests"] == 2
    await answer_of(cluster.send(3))


async def test_requests_before_the_links_run_wait_and_those_after_fail(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    metadata = MetadataCache()
    links, local_calls = make_links(metadata)
    cluster = Cluster(links, local_calls, metadata, Peer(nursery), Peer(nursery))
    cluster.register(2, cluster.second.port)
    early = cluster.send()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as running:
            running.start_soon(links.run)
            await answer_of(early)
            scope.cancel()
    assert isinstance(cluster.send().error, ConnectionLost)


# -- this broker --------------------------------------------------------------------------------


async def test_a_request_to_this_broker_is_answered_at_once(cluster: Cluster) -> None:
    seen: list[RequestContext] = []

    def handle(_request: Any, context: RequestContext) -> FindCoordinatorResponse:
        seen.append(context)
        return FindCoordinatorResponse(throttle_time_ms=1)

    cluster.local_calls.serve({ApiKey.FIND_COORDINATOR: handle})
    assert cluster.send(THIS_BROKER).value.throttle_time_ms == 1
    assert seen[0].api_version == APIS[ApiKey.FIND_COORDINATOR].max_version
    assert seen[0].listener_name == LISTENER


async def test_work_and_later_answers_of_this_broker_come_as_plain_responses(
    cluster: Cluster,
) -> None:
    later: Deferred[Any] = Deferred()

    def handle(_request: Any, _context: RequestContext) -> Any:
        yield None
        return later

    def last_steps() -> Any:
        yield None
        return FindCoordinatorResponse(throttle_time_ms=1)

    cluster.local_calls.serve({ApiKey.FIND_COORDINATOR: handle})
    answer = cluster.send(THIS_BROKER)
    assert not answer.done
    later.complete(last_steps())
    assert (await answer_of(answer)).throttle_time_ms == 1


async def test_an_error_of_this_broker_reaches_the_reader_of_the_answer(
    cluster: Cluster,
) -> None:
    def handle(_request: Any, _context: RequestContext) -> Any:
        yield None
        raise ValueError("a fault")

    cluster.local_calls.serve({ApiKey.FIND_COORDINATOR: handle})
    assert isinstance(cluster.send(THIS_BROKER).error, ValueError)
