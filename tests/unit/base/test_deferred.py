"""Deferred: one result, callbacks in order in a turn of their own, and waiting for it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import TURN_S, Deferred, gather, run_waiting


async def test_callbacks_run_in_order_in_the_next_turn() -> None:
    """Completing runs none of them: oldest first, each with the value, they run soon after."""
    seen: list[tuple[str, int]] = []
    deferred: Deferred[int] = Deferred()
    deferred.then(lambda value: seen.append(("a", value)))
    deferred.then(lambda value: seen.append(("b", value)))
    assert not deferred.done
    deferred.complete(7)
    assert deferred.done and deferred.value == 7
    assert not seen
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [("a", 7), ("b", 7)]


async def test_callbacks_of_several_run_in_the_order_of_completion() -> None:
    """A callback that is added behind others that wait runs behind them."""
    seen: list[str] = []
    first: Deferred[str] = Deferred()
    second: Deferred[str] = Deferred()
    second.then(seen.append)
    first.then(seen.append)
    first.complete("first")
    second.complete("second")
    first.then(lambda _: seen.append("added late"))
    assert not seen
    run_waiting()
    assert seen == ["first", "added late", "second"]


async def test_a_chain_is_run_in_one_turn() -> None:
    """What a callback completes needs no turn of its own."""
    begin: Deferred[int] = Deferred()
    end = begin.map(lambda value: value + 1).map(lambda value: value * 2)
    begin.complete(1)
    turns = 0
    while not end.done:
        await trio.lowlevel.checkpoint()
        turns += 1
    assert end.value == 4
    assert turns <= 2  # this task may come before the queue's in the first one


async def test_much_is_run_in_several_turns(autojump_clock: trio.testing.MockClock) -> None:
    """Others have a turn in between."""
    ran: list[int] = []
    for number in range(20):
        deferred: Deferred[int] = Deferred()

        def take_long(value: int) -> None:
            autojump_clock.jump(TURN_S / 2)
            ran.append(value)

        deferred.then(take_long)
        deferred.complete(number)
    in_a_turn: list[int] = []
    while len(ran) < 20:
        before = len(ran)
        await trio.lowlevel.checkpoint()
        in_a_turn.append(len(ran) - before)
    assert ran == list(range(20))
    assert max(in_a_turn) <= 2 * 2  # this task may be first in one turn, and last in the next
    assert len(in_a_turn) >= 5


def test_outside_of_a_run_callbacks_run_at_once_in_order() -> None:
    seen: list[str] = []
    first: Deferred[str] = Deferred()
    second: Deferred[str] = Deferred()
    second.then(seen.append)
    first.then(lambda _: second.complete("second"))
    first.then(seen.append)
    first.complete("first")
    assert seen == ["first", "second"]


def test_a_late_callback_runs_at_once() -> None:
    """After completion `then` calls back before it returns; None is a value like others."""
    seen: list[None] = []
    Deferred[None].completed(None).then(seen.append)
    assert seen == [None]


def test_misuse_is_our_bug() -> None:
    """Reading too early and completing twice are assertions."""
    deferred: Deferred[int] = Deferred()
    with pytest.raises(AssertionError):
        _ = deferred.value
    deferred.complete(1)
    with pytest.raises(AssertionError):
        deferred.complete(2)


async def test_an_error_is_raised_where_the_value_is_asked_for() -> None:
    """Neither where it is completed, nor in the queue; what depends on the value fails, too."""

    def divide(value: int) -> int:
        return 1 // value

    deferred: Deferred[int] = Deferred()
    seen: list[int] = []
    deferred.then(seen.append)
    mapped = deferred.map(divide)
    after = mapped.map(lambda value: value + 1)
    deferred.then(seen.append)
    deferred.complete(0)
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [0, 0]
    for failed in (mapped, after):
        assert isinstance(failed.error, ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            await failed.wait()


def test_an_error_in_a_callback_ends_the_run() -> None:
    """Bookkeeping must not fail; an error in it is not lost."""

    async def main() -> None:
        deferred: Deferred[int] = Deferred()
        deferred.then(lambda value: 1 // value)
        deferred.complete(0)
        await trio.sleep_forever()

    with pytest.raises(trio.TrioInternalError) as caught:
        trio.run(main)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert caught.value.__cause__.subgroup(ZeroDivisionError)


def test_wait_returns_the_value_to_every_waiter() -> None:
    """Several tasks may wait; all get the value, also those that come late."""
    results: list[int] = []

    async def main() -> None:
        deferred: Deferred[int] = Deferred()

        async def waiter() -> None:
            results.append(await deferred.wait())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiter)
            nursery.start_soon(waiter)
            await trio.testing.wait_all_tasks_blocked()
            deferred.complete(3)
        results.append(await deferred.wait())

    trio.run(main)
    assert results == [3, 3, 3]


def test_one_ends_as_another_does() -> None:
    value: Deferred[int] = Deferred()
    error: Deferred[int] = Deferred()
    value.follow(Deferred.completed(7))
    failed: Deferred[int] = Deferred()
    error.follow(failed)
    assert value.value == 7 and not error.done
    failed.fail(ZeroDivisionError())
    assert isinstance(error.error, ZeroDivisionError)


def test_gathering_waits_for_all_and_keeps_their_order() -> None:
    first, second = Deferred[int](), Deferred[int]()
    both = gather([first, second, Deferred.completed(3)])
    second.complete(2)
    assert not both.done
    first.complete(1)
    assert both.value == [1, 2, 3]
    assert gather([]).value == []


def test_gathering_fails_once_all_are_done() -> None:
    first, second = Deferred[int](), Deferred[int]()
    both = gather([first, second])
    first.fail(ZeroDivisionError())
    assert not both.done
    second.complete(2)
    assert isinstance(both.error, ZeroDivisionError)
