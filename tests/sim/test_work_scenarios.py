"""Requests with very many entries: they stop no node's loop, whatever one client asks.

Played as it is and without the slices in which such requests are worked off.
"""

from __future__ import annotations

import pytest
import trio

from kraftrio.broker.server.slices import sliced_work
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.sim.client import Unavailable
from tests.sim.stage import Stage, expect, play

_ENTRIES = 20_000
_LONGEST_TURN_S = 0.05


async def many_entries(stage: Stage) -> None:
    """Others are answered while a broker works on requests that name very much."""
    hostile, other = stage.client("hostile"), stage.client("other")
    hostile.timeout_s = 60.0
    work = stage.world.work
    work.longest_turn_s = _LONGEST_TURN_S
    address = ("n1", 9092)
    keys = [f"g{number}" for number in range(_ENTRIES)]
    requests = [
        FindCoordinatorRequest(key_type=0, coordinator_keys=keys),
        MetadataRequest(
            topics=[MetadataRequestTopic(name=key) for key in keys],
            allow_auto_topic_creation=False,
        ),
    ]
    waits: list[float] = []
    done = trio.Event()

    async def ask() -> None:
        while not done.is_set():
            begin_s = stage.world.now_s
            await other.call(address, MetadataRequest(topics=[]), 12)
            waits.append(stage.world.now_s - begin_s)
            await trio.sleep(0.01)

    stage.start(ask)
    with work.counted():
        for request in requests:
            try:
                await hostile.call(address, request)
            except Unavailable as error:
                stage.world.note("hostile", "client", str(error))
    done.set()
    stage.world.note("n1", "client", f"longest turn {work.longest_s:g} s, waits {max(waits):g}")
    expect(len(waits) > 5, f"{len(waits)} requests of others were answered")
    expect(max(waits) < 5 * _LONGEST_TURN_S, f"others waited {max(waits):g} s")


def test_requests_with_many_entries_are_worked_off_in_slices() -> None:
    """No turn of the loop takes long, whatever one client asks."""
    play(many_entries)


def test_without_slices_the_loop_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario notices what keeps everybody waiting."""
    monkeypatch.setattr(sliced_work, "SLICE_MS", 1e9)
    with pytest.raises(SimulationFailure, match="stood for"):
        play(many_entries)
