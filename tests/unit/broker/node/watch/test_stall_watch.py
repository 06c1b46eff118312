"""What holds the event loop is in the log, with its stack."""

from __future__ import annotations

import time

import pytest
import trio
import trio.testing

from kraftrio.broker.metrics.loop_watch import LoopWatch
from kraftrio.broker.node.watch.stall_watch import StallWatch


def hold_the_loop(seconds: float) -> None:
    """What the log is to name."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        time.sleep(0.01)


async def test_a_stall_names_what_held_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    loop = LoopWatch(time.perf_counter_ns)
    watch = StallWatch(loop, 100, time.perf_counter_ns)
    watch.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.run)
        await trio.testing.wait_all_tasks_blocked()
        hold_the_loop(0.4)
        with trio.fail_after(5):
            while not caplog.records:  # noqa: ASYNC110  # a thread writes it
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    watch.stop()
    (record,) = caplog.records
    assert record.getMessage() == "event loop stalled"
    assert 150 <= record.__dict__["kraftrio_fields"]["ms"] < 2000
    assert "hold_the_loop" in record.__dict__["kraftrio_stack"]
    assert loop.stall_count == 1


def test_a_watch_thread_that_overslept_blames_no_call(caplog: pytest.LogCaptureFixture) -> None:
    now = [0]
    loop = LoopWatch(lambda: now[0])
    watch = StallWatch(loop, 100, lambda: now[0])
    watch._on_stall(5_000_000_000, overslept=True)
    watch._on_turn(5_100_000_000)
    (record,) = caplog.records
    assert record.__dict__["kraftrio_fields"] == {"ms": 5000}
    assert record.__dict__["kraftrio_stack"].startswith("(the process was not running, or a call")
