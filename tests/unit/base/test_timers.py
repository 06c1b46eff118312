"""Callbacks run at their time, in order, on a virtual clock."""

from __future__ import annotations

import trio
import trio.testing

from kraftrio.base.timers import Timers


async def test_callbacks_run_in_order_of_their_deadlines(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    timers = Timers()
    seen: list[tuple[str, float]] = []
    start = trio.current_time()

    def note(name: str) -> None:
        seen.append((name, round(trio.current_time() - start, 3)))

    nursery.start_soon(timers.run)
    timers.schedule(3000, lambda: note("late"))
    timers.schedule(1000, lambda: note("early"))
    await trio.sleep(0.5)
    timers.schedule(100, lambda: note("sooner than the one waited for"))
    await trio.sleep(5)
    assert seen == [("sooner than the one waited for", 0.6), ("early", 1.0), ("late", 3.0)]


async def test_a_cancelled_callback_never_runs(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    timers = Timers()
    seen: list[str] = []
    nursery.start_soon(timers.run)
    timer = timers.schedule(100, lambda: seen.append("cancelled"))
    other = timers.schedule(100, lambda: seen.append("kept"))
    assert timer.pending
    timer.cancel()
    timer.cancel()
    await trio.sleep(1)
    assert seen == ["kept"]
    assert not timer.pending
    assert not other.pending


async def test_a_callback_may_schedule_another(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    timers = Timers()
    done = trio.Event()
    nursery.start_soon(timers.run)
    timers.schedule(0, lambda: timers.schedule(0, done.set))
    with trio.fail_after(1):
        await done.wait()
