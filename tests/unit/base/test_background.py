"""Tasks beside a body: what it raises comes out as itself, and interrupts are the program's."""

from __future__ import annotations

import traceback

import outcome
import pytest
import trio

from kraftrio.base.background import open_background, run_aside


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_the_body_raises_comes_out_as_itself(kind: type[BaseException]) -> None:
    """The very object, and the tasks are over."""
    ended = trio.Event()

    async def task() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    raised = kind("the body's own")
    with pytest.raises(kind) as caught:
        async with open_background() as nursery:
            nursery.start_soon(run_aside, task)
            await trio.testing.wait_all_tasks_blocked()
            raise raised
    assert caught.value is raised
    assert ended.is_set()


async def test_a_cancellation_is_one() -> None:
    """Of the caller's own scope: it is not taken for the end of the tasks."""
    with trio.CancelScope() as scope:
        async with open_background():
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_what_a_task_raises_comes_out_in_a_group() -> None:
    """It is a fault of ours, and ends the body."""

    async def task() -> None:
        raise ValueError("a fault")

    with pytest.raises(ExceptionGroup) as caught:
        async with open_background() as nursery:
            nursery.start_soon(run_aside, task)
            await trio.sleep_forever()
    assert isinstance(caught.value.exceptions[0], ValueError)


async def test_an_interrupt_of_a_task_is_the_program_s() -> None:
    """Trio's own tasks, such as those that connect, are not protected."""
    with pytest.raises(KeyboardInterrupt):
        async with open_background() as nursery:
            nursery.start_soon(_interrupted_inside)
            await trio.sleep_forever()


async def _interrupted_inside() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_raise_interrupt)
        await trio.sleep_forever()


async def _raise_interrupt() -> None:
    raise KeyboardInterrupt


async def test_interrupts_reach_no_task() -> None:
    """Whatever it awaits is protected, and the body is not."""
    found = []

    async def inner() -> None:
        found.append(trio.lowlevel.currently_ki_protected())

    async def task() -> None:
        await inner()

    async with open_background() as nursery:
        nursery.start_soon(run_aside, task)
        await trio.testing.wait_all_tasks_blocked()
        assert not trio.lowlevel.currently_ki_protected()
    assert found == [True]


async def test_the_traceback_of_an_interrupt_ends_at_the_program() -> None:
    """Not in what it waited in; that of an error is whole."""
    for kind, is_cut in ((KeyboardInterrupt, True), (ValueError, False)):
        with pytest.raises(kind) as caught:
            async with open_background():
                await _wait(kind)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert (names[-1] == "_wait") is is_cut, names


async def _wait(kind: type[BaseException]) -> None:
    """Wait in Trio, which then raises there."""
    trio.lowlevel.reschedule(trio.lowlevel.current_task(), outcome.Error(kind()))
    await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
