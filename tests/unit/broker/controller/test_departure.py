"""How long a broker waits to be let go, on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kraftrio.broker.controller.departure import Departure
from kraftrio.net.transport import SystemNetwork
from tests.unit.broker.controller.controller_fakes import FakeQuorum, voters_at

THIS_NODE = 9
OTHERS = {1: ("n1", 9093), 2: ("n2", 9093)}


class Voters(SystemNetwork):
    """Other voters, of which some have ended, and some are paused: they refuse nothing."""

    def __init__(self, *gone: str) -> None:
        self.gone = set(gone)

    async def connect(self, host: str, port: int) -> Any:
        await trio.lowlevel.checkpoint()
        if host in self.gone:
            raise ConnectionRefusedError(111, "Connection refused")
        await trio.sleep_forever()


async def leaving_s(
    network: Voters,
    granted_after_s: float,
    *,
    others: Mapping[int, tuple[str, int]] = OTHERS,
    is_voter: bool = True,
    leader_id: int = 1,
) -> float:
    """How long it takes, with a controller that grants the shutdown after some time."""
    own = {THIS_NODE: ("me", 9093)} if is_voter else {}
    quorum = FakeQuorum(THIS_NODE, voters=voters_at({**others, **own}))
    quorum.elect(leader_id)
    begin = trio.current_time()
    departure = Departure(network, quorum, THIS_NODE, partial(trio.sleep, granted_after_s))
    await departure.leave(30)
    return round(trio.current_time() - begin, 2)


async def test_granted(autojump_clock: MockClock) -> None:
    """When the controller says so."""
    assert await leaving_s(Voters(), 5) == 5


async def test_the_last_node_goes_at_once(autojump_clock: MockClock) -> None:
    """Though it may still take itself for the controller."""
    assert await leaving_s(Voters("n1", "n2"), math.inf) <= 0.2


async def test_one_of_three_voters_gone(autojump_clock: MockClock) -> None:
    """The others are a majority: it waits, up to the time it has."""
    assert await leaving_s(Voters("n1"), 3) == 3
    assert await leaving_s(Voters("n1"), math.inf) == 30


async def test_voters_that_are_silent_are_not_gone(autojump_clock: MockClock) -> None:
    """They may be paused, or cut off from here."""
    assert await leaving_s(Voters(), 7) == 7


async def test_a_broker_of_separate_controllers(autojump_clock: MockClock) -> None:
    """It counts for no majority itself."""
    others = {**OTHERS, 3: ("n3", 9093)}
    for gone, wanted_s in ((["n1"], 4.0), (["n1", "n2"], 0.55), (["n1", "n2", "n3"], 0.15)):
        found_s = await leaving_s(Voters(*gone), 4, others=others, is_voter=False)
        assert found_s == pytest.approx(wanted_s, abs=0.06)


async def test_a_node_alone(autojump_clock: MockClock) -> None:
    """Nobody else can be gone."""
    assert await leaving_s(Voters(), 2, others={}) == 2


async def test_a_voter_that_comes_back(autojump_clock: MockClock) -> None:
    """A restart of the others is no end: only what lasts counts."""
    network = Voters("n1", "n2")
    async with trio.open_nursery() as nursery:

        async def come_back() -> None:
            await trio.sleep(0.12)
            network.gone.clear()

        nursery.start_soon(come_back)
        assert await leaving_s(network, 3) == 3


async def test_without_any_controller(autojump_clock: MockClock) -> None:
    """Known to lead for a second."""
    assert await leaving_s(Voters(), math.inf, leader_id=-1) == pytest.approx(1)
