"""A program's calls for records: one at a time, woken and stopped by what happens beside them."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kraftrio.clients.calls import Calls
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.errors import ClosedError


def opened() -> Calls:
    calls = Calls()
    calls.is_open = True
    return calls


def test_one_call_at_a_time() -> None:
    calls = opened()
    calls.begin()
    with pytest.raises(trio.BusyResourceError):
        calls.begin()
    calls.end()
    calls.begin()


def test_errors_are_raised_once_each_and_in_order() -> None:
    calls = opened()
    calls.is_interrupted = False
    for error in (ValueError("a"), ValueError("b"), KeyError("c"), ValueError("a")):
        calls.fail(error)
    assert calls.is_interrupted
    for expected in ("a", "b", "'c'"):
        with pytest.raises((ValueError, KeyError)) as caught:
            calls.raise_failure()
        assert str(caught.value) == expected
    calls.raise_failure()
    calls.fail(ValueError("a"))
    with pytest.raises(ValueError, match="a"):
        calls.raise_failure()


async def test_who_waits_is_woken_by_records_and_by_interrupts() -> None:
    for wake in (Calls.arrive, Calls.interrupt, lambda calls: calls.fail(ValueError())):
        calls = opened()
        calls.is_interrupted = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(calls.wait_arrival)
            await trio.testing.wait_all_tasks_blocked()
            assert calls.is_waiting
            wake(calls)
        assert not calls.is_waiting


async def test_nobody_waits_with_something_to_look_after() -> None:
    calls = opened()
    calls.interrupt()
    with trio.fail_after(1):
        await calls.wait_arrival()


async def test_a_rebalance_acts_while_the_program_is_in_a_call() -> None:
    """The call goes on when the rebalance has ended."""
    calls = opened()
    order: list[str] = []

    async def rebalance() -> None:
        async with calls.turnstile.turn():
            order.append("rebalance")
            await trio.testing.wait_all_tasks_blocked()
            order.append("rebalanced")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rebalance)
        await trio.testing.wait_all_tasks_blocked()
        assert order == []
        assert calls.is_interrupted
        await calls.give_way()
        order.append("call")
    assert order == ["rebalance", "rebalanced", "call"]


async def test_a_call_that_cannot_wait_for_a_rebalance_comes_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The rebalance goes on, and the next call looks after it."""
    calls = opened()
    ended = trio.Event()

    async def rebalance() -> None:
        async with calls.turnstile.turn():
            await trio.sleep(10)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rebalance)
        await trio.testing.wait_all_tasks_blocked()
        calls.is_interrupted = False
        await calls.give_way(trio.current_time() + 1)
        assert calls.turnstile.is_wanted
        assert calls.is_interrupted
        await calls.give_way()
        assert not calls.turnstile.is_wanted
        await ended.wait()


async def test_a_consumer_that_is_not_open_takes_no_calls() -> None:
    """Neither before `async with` nor after it."""
    consumer = Consumer("localhost:1", group_id="g")
    assert consumer.subscription == consumer.assignment == frozenset()
    for is_over in (False, True):
        if is_over:
            async with consumer:
                pass
        with pytest.raises(ClosedError):
            await consumer.__anext__()
        with pytest.raises(ClosedError):
            await consumer.batches().__anext__()
        with pytest.raises(ClosedError):
            await consumer.poll(0)
        with pytest.raises(ClosedError):
            await consumer.subscribe("t")
        with pytest.raises(ClosedError):
            consumer.commit_async()
        with pytest.raises(ClosedError):
            await consumer.list_topics()
