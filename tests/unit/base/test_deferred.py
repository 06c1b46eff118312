"""Deferred: one value, callbacks in order, and waiting for it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import Deferred


def test_callbacks_run_in_order_when_completed() -> None:
    """Callbacks run in the completer, oldest first, each with the value."""
    seen: list[tuple[str, int]] = []
    deferred: Deferred[int] = Deferred()
    deferred.then(lambda value: seen.append(("a", value)))
    deferred.then(lambda value: seen.append(("b", value)))
    assert not deferred.done
    deferred.complete(7)
    assert seen == [("a", 7), ("b", 7)]
    assert deferred.done
    assert deferred.value == 7


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
