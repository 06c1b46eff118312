"""What ends by an interrupt, and what by itself."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from kraftrio.clients.cli.interrupts import until_interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_body(number: signal.Signals) -> None:
    reached: list[str] = []
    with trio.fail_after(10):
        async with until_interrupted():
            os.kill(os.getpid(), number)
            await trio.sleep_forever()
        reached.append("behind it")
    assert reached


async def test_a_body_that_ends_by_itself() -> None:
    async with until_interrupted():
        await trio.lowlevel.checkpoint()


async def test_failures_come_out_as_they_are() -> None:
    with pytest.raises(ValueError, match="no"):
        async with until_interrupted():
            raise ValueError("no")


async def test_a_cancellation_from_outside_goes_on() -> None:
    with trio.CancelScope() as scope:
        async with until_interrupted():
            scope.cancel()
            await trio.lowlevel.checkpoint()
        raise AssertionError("not reached")
    assert scope.cancelled_caught
