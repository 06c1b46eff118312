"""Callbacks run at their time, in order, on a virtual clock."""

from __future__ import annotations

from functools import partial

import trio
import trio.testing

from kraftrio.base.timers import TURN_S, Timers


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

    def schedule_another() -> None:
        timers.schedule(0, done.set)

    timers.schedule(0, schedule_another)
    with trio.fail_after(1):
        await done.wait()


async def test_others_have_a_turn_while_many_callbacks_are_due(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """They run in their order, some in each turn of the loop."""
    timers = Timers()
    ran: list[int] = []

    def take_long(number: int) -> None:
        autojump_clock.jump(TURN_S / 2)
        ran.append(number)

    for number in range(20):
        timers.schedule(1, partial(take_long, number))
    in_a_turn: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        await trio.sleep(0.001)
        while len(ran) < 20:
            before = len(ran)
            await trio.lowlevel.checkpoint()
            in_a_turn.append(len(ran) - before)
        nursery.cancel_scope.cancel()
    assert ran == list(range(20))
    assert max(in_a_turn) <= 2 * 2  # this task may be first in one turn, and last in the next
