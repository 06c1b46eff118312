"""Links over scripted networks: when they dial, how long they rest, and what they report."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.backoff import NO_BACKOFF, ExponentialBackoff
from kraftrio.net.connection import Connection, ConnectionLost
from kraftrio.net.link import Link, LinkSettings, Loss

CLOSED_BY_PEER = "the peer closed the connection"


class Wire:
    """A connected socket that only ends."""

    def __init__(self) -> None:
        self.is_ended = False
        self.readable = trio.Event()

    def end(self) -> None:
        """Let the peer close."""
        self.is_ended = True
        self.readable.set()

    def recvmsg_into(self, buffers: list[Any]) -> tuple[int, Any, int, Any]:
        if not self.is_ended:
            raise BlockingIOError
        return 0, [], 0, None

    def close(self) -> None:
        self.readable.set()


class ScriptedNetwork:
    """Refuses, hangs or connects, as the script says for each attempt in turn."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.dialled: list[tuple[float, str, int]] = []  # Trio's time, host, port
        self.wires: list[Wire] = []

    @property
    def times(self) -> list[float]:
        """When each attempt began, in seconds since the first."""
        first = self.dialled[0][0]
        return [round(at - first, 6) for at, _, _ in self.dialled]

    async def connect(self, host: str, port: int) -> Wire:
        self.dialled.append((trio.current_time(), host, port))
        await trio.lowlevel.checkpoint()
        step = self.script.pop(0) if self.script else "connect"
        if step == "refuse":
            raise ConnectionRefusedError("nobody listens")
        if step == "hang":
            await trio.sleep_forever()
        self.wires.append(Wire())
        return self.wires[-1]

    async def wait_readable(self, sock: Wire) -> None:
        await sock.readable.wait()
        if not sock.is_ended:
            raise trio.ClosedResourceError

    async def wait_writable(self, sock: Wire) -> None:
        await trio.sleep_forever()

    def notify_closing(self, sock: Wire) -> None:
        sock.readable.set()


def link_over(
    network: ScriptedNetwork,
    backoff: ExponentialBackoff = NO_BACKOFF,
    address: Callable[[], tuple[str, int] | None] = lambda: ("node", 9092),
    **options: Any,
) -> Link:
    any_network: Any = network
    settings = LinkSettings(
        "tester", connect_timeout=ExponentialBackoff(1000, 4000), backoff=backoff
    )
    return Link(any_network, address, settings, **options)


async def until_closed(connection: Connection) -> None:
    await connection.wait_closed()


async def keep_for(link: Link, attempts: int) -> list[Loss]:
    """Keep a link for some attempts that fail, or whose connection ends."""
    losses: list[Loss] = []
    await link.keep(until_closed, losses.append, wanted=lambda: len(losses) < attempts)
    return losses


# -- dialling and resting ---------------------------------------------------------------------


async def test_each_failure_in_a_row_doubles_the_rest_up_to_its_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = ScriptedNetwork(*["refuse"] * 6)
    link = link_over(network, ExponentialBackoff(20, 100))
    losses = await keep_for(link, 6)
    assert network.times == [0, 0.02, 0.06, 0.14, 0.24, 0.34]
    assert link.failures == 6
    reason = "cannot connect to node:9092: nobody listens"
    assert losses == [Loss(reason, refused=True)] * 6


async def test_success_is_for_the_owner_to_say_and_lets_the_rest_start_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = ScriptedNetwork("refuse", "refuse", "connect", "refuse", "connect", "refuse")
    link = link_over(network, ExponentialBackoff(100, 10_000))
    said = []

    async def use(connection: Connection) -> None:
        if len(network.dialled) == 3:
            said.append((link.succeeded(), link.succeeded()))
        network.wires[-1].end()
        await connection.wait_closed()

    losses: list[Loss] = []
    await link.keep(use, losses.append, wanted=lambda: len(losses) < 6)
    assert said == [(True, False)]
    assert [loss.was_ready for loss in losses] == [False, False, True, False, True, False]
    # The third attempt succeeded: its loss is the first failure again. The fifth connected only.
    assert network.times == [0, 0.1, 0.3, 0.4, 0.6, 1.0]


async def test_rests_of_many_links_spread_by_a_fifth(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rests = []
    rng = random.Random(1)
    for _ in range(50):
        network = ScriptedNetwork("refuse", "refuse")
        await keep_for(link_over(network, ExponentialBackoff(100, 100), rng=rng), 2)
        rests.append(network.times[1])
    assert 0.08 <= min(rests) < 0.085
    assert 0.115 < max(rests) <= 0.12


async def test_the_time_to_connect_grows_likewise(autojump_clock: trio.testing.MockClock) -> None:
    network = ScriptedNetwork(*["hang"] * 5)
    losses = await keep_for(link_over(network), 5)
    assert network.times == [0, 1, 3, 7, 11]
    assert [loss.reason[-10:] for loss in losses] == [
        "within 1 s", "within 2 s", "within 4 s", "within 4 s", "within 4 s",
    ]  # fmt: skip


async def test_a_rest_can_be_cut_short(autojump_clock: trio.testing.MockClock) -> None:
    network = ScriptedNetwork("refuse", "refuse")
    link = link_over(network, ExponentialBackoff(1000, 1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_for, link, 2)
        await trio.sleep(0.25)
        assert link.retry_at == pytest.approx(trio.current_time() + 0.75)
        link.retry_now()
        link.retry_now()
        assert link.retry_at == trio.current_time()
    assert network.times == [0, 0.25]


async def test_nothing_is_dialled_while_no_address_is_known(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = ScriptedNetwork("refuse")
    addresses: list[tuple[str, int] | None] = [None, None, ("late", 7)]
    link = link_over(network, ExponentialBackoff(20, 100), address=lambda: addresses.pop(0))
    start = trio.current_time()
    losses = await keep_for(link, 3)
    assert [loss.reason for loss in losses[:2]] == ["no address is known"] * 2
    assert network.dialled == [(pytest.approx(start + 0.06), "late", 7)]


# -- losses -----------------------------------------------------------------------------------


async def test_the_end_of_a_connection_is_one_loss_with_its_reason(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = ScriptedNetwork()
    link = link_over(network)
    losses: list[Loss] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(link.keep, until_closed, losses.append, wanted=lambda: not losses)
        )
        await trio.testing.wait_all_tasks_blocked()
        connection = link.connection
        assert connection is not None
        assert link.loss is None
        assert losses == []
        network.wires[0].end()
    assert losses == [Loss(CLOSED_BY_PEER, was_ready=True)]
    assert link.connection is None
    assert link.failures == 1


async def test_a_connection_that_has_ended_is_not_shown() -> None:
    network = ScriptedNetwork()
    link = link_over(network)
    seen = []

    async def use(connection: Connection) -> None:
        seen.append(link.connection is connection)
        connection.close()
        seen.append(link.connection is None)
        assert link.loss == "the connection was closed on this side"

    loss = await link.attempt(use)
    assert seen == [True, True]
    assert loss == Loss("the connection was closed on this side", was_ready=True)
    assert link.loss is None


async def test_what_its_owner_ends_is_no_failure() -> None:
    network = ScriptedNetwork()
    link = link_over(network, ExponentialBackoff(100, 100))

    async def use(connection: Connection) -> None:
        await trio.lowlevel.checkpoint()

    before = trio.current_time()
    assert await link.attempt(use) is None
    assert link.failures == 0
    assert link.connection is None
    assert link.retry_at >= before + 0.1, "the next attempt waits all the same"


async def test_an_unwanted_link_backs_off_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start = trio.current_time()
    losses = await keep_for(link_over(ScriptedNetwork("refuse"), ExponentialBackoff(1000, 1000)), 1)
    assert len(losses) == 1
    assert trio.current_time() == start


# -- preparing --------------------------------------------------------------------------------


async def test_a_connection_is_not_shown_before_it_is_prepared() -> None:
    network = ScriptedNetwork()
    seen: list[object] = []

    async def prepare(connection: Connection) -> None:
        seen.append(link.connection)

    async def use(connection: Connection) -> None:
        seen.append(link.connection)

    link = link_over(network, prepare=prepare)
    await link.attempt(use)
    assert seen[0] is None
    assert isinstance(seen[1], Connection)


async def test_a_connection_lost_in_preparation_never_was_ready() -> None:
    async def prepare(connection: Connection) -> None:
        raise ConnectionLost("it said no")

    link = link_over(ScriptedNetwork(), prepare=prepare)
    assert await link.attempt(until_closed) == Loss("it said no")
    assert link.failures == 1


async def test_other_errors_of_preparation_come_out_and_count_as_failures() -> None:
    async def prepare(connection: Connection) -> None:
        raise ValueError("too old")

    link = link_over(ScriptedNetwork(), ExponentialBackoff(100, 100), prepare=prepare)
    before = trio.current_time()
    with pytest.raises(ValueError, match="too old"):
        await link.attempt(until_closed)
    assert link.failures == 1
    assert link.retry_at >= before + 0.1


# -- another address --------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["connect", "hang", "refuse"])
async def test_a_node_that_has_moved_is_dialled_at_once(
    first: str, autojump_clock: trio.testing.MockClock
) -> None:
    """While connected, while connecting, and between two attempts."""
    network = ScriptedNetwork(first, "connect")
    hosts = ["here"]
    link = link_over(network, ExponentialBackoff(1000, 1000), address=lambda: (hosts[-1], 1))
    losses: list[Loss] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.keep, until_closed, losses.append)
        await trio.sleep(0.5)
        hosts.append("there")
        link.redial("it has moved")
        await trio.testing.wait_all_tasks_blocked()
        assert [(host, at) for at, host, _ in network.dialled] == [
            ("here", trio.current_time() - 0.5),
            ("there", trio.current_time()),
        ]
        assert link.connection is not None
        nursery.cancel_scope.cancel()
    if first == "refuse":
        assert [loss.refused for loss in losses] == [True]
    else:
        assert losses == [Loss("it has moved")]


async def test_a_cancelled_link_closes_its_connection() -> None:
    network = ScriptedNetwork()
    link = link_over(network)
    ended: list[str] = []

    async def use(connection: Connection) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("used")
            assert link.connection is connection

    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.attempt, use)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert ended == ["used"]
    assert link.connection is None
    assert network.wires[0].readable.is_set()
