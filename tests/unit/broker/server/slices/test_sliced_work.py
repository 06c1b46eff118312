"""Work in slices: everybody gets turns, the requests of one client their order and their errors."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.slices.sliced_work import SLICE_MS, SlicedWork


class Bench:
    """Sliced work on a clock that goes on by each step, and a log of the steps."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.steps: list[str] = []
        self.work = SlicedWork(lambda: self.now_ms)

    def steps_of(
        self, name: str, count: int, step_ms: float = 1.0, *, fails: bool = False
    ) -> Generator[None, None, str]:
        """Work of some steps."""
        for _ in range(count):
            self.now_ms += step_ms
            self.steps.append(name)
            yield
        if fails:
            raise ValueError(name)
        return f"{name} done"

    def start(self, client: ClientInfo, name: str, count: int, **how: Any) -> Any:
        return self.work.start(client, self.steps_of(name, count, **how))


def client() -> ClientInfo:
    return ClientInfo(host="h", port=1, listener_name="L")


def test_little_work_is_done_at_once() -> None:
    bench = Bench()
    done = bench.start(client(), "a", 3, step_ms=0.1)
    assert done.value == "a done"


async def test_long_work_is_done_in_turns_of_a_slice() -> None:
    """No turn of the event loop takes longer than a slice and the last look at the clock."""
    bench = Bench()
    turns: list[float] = []

    async def take_turns() -> None:
        while True:
            began_ms = bench.now_ms
            await trio.lowlevel.checkpoint()
            turns.append(bench.now_ms - began_ms)

    async with trio.open_nursery() as nursery:
        done = bench.start(client(), "a", 1000, step_ms=0.25)
        nursery.start_soon(bench.work.run)
        nursery.start_soon(take_turns)
        while not done.done:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert done.value == "a done"
    # This task may come first in one turn, and last in the next.
    assert max(turns) <= 2 * (SLICE_MS + 8 * 0.25)
    assert sum(turns) > 200


async def test_clients_take_turns_and_each_keeps_its_order() -> None:
    """Little work of one is done before much work of another, though it came later."""
    bench = Bench()
    first, second = client(), client()
    long = bench.start(first, "long", 400)
    behind = bench.start(first, "behind", 1)
    short = bench.start(second, "short", 20)
    finished: list[str] = []
    for done in (long, behind, short):
        done.then(finished.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.work.run)
        while len(finished) < 3:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert finished == ["short done", "long done", "behind done"]


def test_what_is_done_at_once_is_bounded_over_all_clients() -> None:
    """Many requests that are short each cannot hold up the turn in which they came."""
    bench = Bench()
    for _ in range(50):
        bench.start(client(), "a", 4, step_ms=0.25)
    assert bench.now_ms <= SLICE_MS + 8 * 0.25


async def test_work_that_waits_lets_others_go_on() -> None:
    bench = Bench()
    answer: Deferred[int] = Deferred()

    def waits() -> Generator[Deferred[Any] | None, None, int]:
        yield answer
        return answer.value

    waiter, other = client(), client()
    waiting = bench.work.start(waiter, waits())
    behind = bench.start(waiter, "behind", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.work.run)
        assert bench.start(other, "b", 1).value == "b done"
        await trio.testing.wait_all_tasks_blocked()
        assert not behind.done
        answer.complete(7)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert waiting.value == 7
    assert behind.value == "behind done"


async def test_an_error_is_raised_where_the_value_is_asked_for() -> None:
    """The task goes on with what others want."""
    bench = Bench()
    one = client()
    failing = bench.start(one, "a", 30, fails=True)
    behind = bench.start(one, "b", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.work.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(ValueError, match="a"):
        _ = failing.value
    assert behind.value == "b done"


async def test_work_of_a_client_that_is_gone_is_dropped() -> None:
    bench = Bench()
    gone, other = client(), client()
    bench.start(gone, "gone", 1000)
    waiting = bench.start(other, "b", 20)
    gone.closed()
    steps_before = bench.steps.count("gone")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.work.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert waiting.value == "b done"
    assert bench.steps.count("gone") == steps_before


async def test_a_clock_that_stands_still_ends_slices_all_the_same() -> None:
    bench = Bench()
    done = bench.start(client(), "a", 20_000, step_ms=0.0)
    assert not done.done
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.work.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert done.value == "a done"
