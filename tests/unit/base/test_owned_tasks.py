"""Tasks start while their owner runs, and at no other time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kraftrio.base.owned_tasks import OwnedTasks


class Context:
    def __init__(self) -> None:
        self.tasks = OwnedTasks()
        self.started: list[str] = []

    async def note(self, name: str) -> None:
        self.started.append(name)

    def start(self, name: str) -> bool:
        return self.tasks.start(self.note, name)


async def test_tasks_start_from_when_their_owner_runs_until_it_ends() -> None:
    context = Context()
    assert not context.start("too early")
    async with context.tasks.open():
        assert context.start("first")
        assert context.start("second")
    assert sorted(context.started) == ["first", "second"]
    assert not context.start("too late")
    async with context.tasks.open():
        assert context.start("third")
    assert context.started[2:] == ["third"]


async def test_nothing_starts_while_a_cancelled_owner_waits_for_its_tasks() -> None:
    context = Context()
    answers: list[bool] = []

    async def ask_while_it_ends() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()  # the body is left, and waits for this
            answers.append(context.start("while it ends"))

    with trio.CancelScope() as scope:
        async with context.tasks.open():
            assert context.tasks.start(ask_while_it_ends)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert answers == [False]
    assert context.started == []


async def test_a_task_that_fails_ends_its_owner() -> None:
    context = Context()

    async def fail() -> None:
        raise ValueError("a fault")

    with pytest.RaisesGroup(ValueError):
        async with context.tasks.open():
            assert context.tasks.start(fail)
            await trio.sleep_forever()
    assert not context.start("too late")
