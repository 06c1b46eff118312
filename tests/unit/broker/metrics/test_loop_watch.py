"""The event loop's delay is what a timer sees of it."""

from __future__ import annotations

import time

import trio
import trio.testing

from kraftrio.base.histogram import Spread
from kraftrio.broker.metrics.loop_watch import LoopWatch


async def test_a_turn_that_takes_long_is_a_delay() -> None:
    watch = LoopWatch(time.perf_counter_ns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.testing.wait_all_tasks_blocked()
        time.sleep(0.15)  # noqa: ASYNC251  # it is to hold the loop
        await trio.sleep(0.01)  # in a turn after that of the watch
        nursery.cancel_scope.cancel()
    assert delays(watch).total >= 40_000_000


def delays(watch: LoopWatch) -> Spread:
    found = watch.labelled_statistics()["delay_nanoseconds"][()]
    assert isinstance(found, Spread)
    return found
