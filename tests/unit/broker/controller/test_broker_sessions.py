"""Dead brokers are noticed by their sockets; others are left to the session timeout."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kraftrio.broker.controller.broker_sessions import BrokerSessions
from kraftrio.broker.server.context import ClientInfo
from kraftrio.net.transport import SystemNetwork
from tests.unit.broker.controller.controller_fakes import ControllerNode, FakeQuorum

THIS_NODE = 1
BROKER = 7


class SlowNetwork(SystemNetwork):
    """Connecting does not come to an end when the link is cut."""

    def __init__(self) -> None:
        self.is_cut = False
        self.tried: list[int] = []

    async def connect(self, host: str, port: int) -> Any:
        self.tried.append(port)
        if self.is_cut:
            await trio.sleep_forever()
        return await super().connect(host, port)


class Context:
    """Node 1 watches; broker 7 listens on a loopback port."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = SlowNetwork()
        self.quorum = FakeQuorum(THIS_NODE)
        self.sessions = BrokerSessions(self.network, self.quorum, THIS_NODE, "PLAINTEXT")
        self.broker = ControllerNode(nursery)
        self.quorum.register(THIS_NODE, 10, 1)
        self.quorum.register(BROKER, 70, self.broker.address[1])

    def client(self) -> ClientInfo:
        """A connection from the broker."""
        return ClientInfo("127.0.0.1", 50_000, "CONTROLLER")

    async def lead(self) -> None:
        """Begin to lead and be past the beginning, with broker 7 heard of at once."""
        self.quorum.elect(THIS_NODE)
        self.sessions.heartbeat_seen(BROKER, 70, self.client())
        await trio.sleep(1)

    def fenced(self) -> list[tuple[int, int]]:
        return self.quorum.fenced


@pytest.fixture
async def context(nursery: trio.Nursery) -> AsyncIterator[Context]:
    context = Context(nursery)
    nursery.start_soon(context.sessions.run)
    await wait_all_tasks_blocked()
    yield context


async def test_a_broker_that_dies_is_fenced_at_once(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    await trio.sleep(5)
    assert not context.fenced()
    context.broker.stop()
    await trio.sleep(0.001)
    client.closed()
    await trio.sleep(0.1)
    assert context.fenced() == [(BROKER, 70)]


async def test_a_broker_whose_sockets_close_one_by_one_is_fenced(
    context: Context, autojump_clock: MockClock
) -> None:
    """Its listener still accepts when its connection to the controller is gone."""
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    client.closed()
    await trio.sleep(0.03)
    assert not context.fenced()
    context.broker.stop()
    await trio.sleep(0.2)
    assert context.fenced() == [(BROKER, 70)]


async def test_a_broker_that_still_listens_is_left_alone(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    client.closed()
    await trio.sleep(30)
    assert not context.fenced()
    assert 1 < len(context.network.tried) < 10


async def test_a_broker_behind_a_cut_link_is_left_alone(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    context.network.is_cut = True
    client.closed()
    await trio.sleep(30)
    assert not context.fenced()
    assert len(context.network.tried) == 1


async def test_one_trial_at_a_time_is_made(context: Context, autojump_clock: MockClock) -> None:
    await context.lead()
    for _ in range(5):
        client = context.client()
        context.sessions.heartbeat_seen(BROKER, 70, client)
        client.closed()
    context.broker.stop()
    await trio.sleep(5)
    assert context.fenced() == [(BROKER, 70)]
    assert len(context.network.tried) < 5


async def test_a_broker_on_a_new_connection_is_not_tried(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.lead()
    old, new = context.client(), context.client()
    context.sessions.heartbeat_seen(BROKER, 70, old)
    context.sessions.heartbeat_seen(BROKER, 70, new)
    context.broker.stop()
    old.closed()
    await trio.sleep(1)
    assert not context.network.tried
    new.closed()
    await trio.sleep(0.1)
    assert context.fenced() == [(BROKER, 70)]


async def test_a_heartbeat_ends_the_trial(context: Context, autojump_clock: MockClock) -> None:
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    client.closed()
    await trio.sleep(0.01)
    context.sessions.heartbeat_seen(BROKER, 70, context.client())
    context.broker.stop()
    await trio.sleep(5)
    assert not context.fenced()


async def test_an_outdated_incarnation_is_not_taken_for_the_broker(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.lead()
    context.sessions.heartbeat_seen(BROKER, 70, context.client())
    outdated = context.client()
    context.sessions.heartbeat_seen(BROKER, 69, outdated)
    context.broker.stop()
    outdated.closed()
    await trio.sleep(5)
    assert not context.fenced()


async def test_a_broker_that_registered_again_is_not_fenced_for_its_former_life(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    context.broker.stop()
    await trio.sleep(0.001)
    client.closed()
    context.quorum.register(BROKER, 90, context.broker.address[1])
    await trio.sleep(5)
    assert not context.fenced()


async def test_a_fenced_broker_is_not_tried(context: Context, autojump_clock: MockClock) -> None:
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    context.quorum.register(BROKER, 70, context.broker.address[1], fenced=True)
    client.closed()
    await trio.sleep(5)
    assert not context.network.tried


async def test_a_node_that_does_not_decide_tries_no_broker(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.lead()
    client = context.client()
    context.sessions.heartbeat_seen(BROKER, 70, client)
    context.quorum.elect(2)
    client.closed()
    await trio.sleep(5)
    assert not context.network.tried


async def test_a_new_controller_fences_brokers_that_died_with_the_former_one(
    context: Context, autojump_clock: MockClock
) -> None:
    context.quorum.elect(2)
    context.broker.stop()
    await trio.sleep(1)
    assert not context.network.tried
    context.quorum.elect(THIS_NODE)
    await trio.sleep(0.15)
    assert context.fenced() == [(BROKER, 70)]


async def test_the_former_controller_is_tried_without_delay(
    context: Context, autojump_clock: MockClock
) -> None:
    context.quorum.elect(BROKER)
    context.broker.stop()
    context.quorum.elect(-1)
    context.quorum.elect(THIS_NODE)
    await trio.sleep(0.001)
    assert context.fenced() == [(BROKER, 70)]


async def test_a_new_controller_waits_until_it_may_decide(
    context: Context, autojump_clock: MockClock
) -> None:
    context.broker.stop()
    context.quorum.elect(THIS_NODE)
    context.quorum.is_active_controller = False
    await trio.sleep(3)
    assert not context.fenced()
    context.quorum.is_active_controller = True
    await trio.sleep(0.15)
    assert context.fenced() == [(BROKER, 70)]


async def test_leadership_that_ended_before_it_began_fences_no_broker(
    context: Context, autojump_clock: MockClock
) -> None:
    context.broker.stop()
    context.quorum.elect(THIS_NODE)
    await trio.sleep(0.05)
    context.quorum.elect(2)
    await trio.sleep(5)
    assert not context.fenced()


async def test_a_new_controller_does_not_try_who_heartbeats(
    context: Context, autojump_clock: MockClock
) -> None:
    context.broker.stop()
    context.quorum.elect(THIS_NODE)
    await trio.sleep(0.05)
    context.sessions.heartbeat_seen(BROKER, 70, context.client())
    await trio.sleep(5)
    assert not context.network.tried
