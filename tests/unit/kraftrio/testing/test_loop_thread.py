"""A Trio loop in a thread: results, errors, cancellation, and its end."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest
import trio

from kraftrio.testing.loop_thread import LoopThread, shared_loop


async def _answer() -> int:
    await trio.lowlevel.checkpoint()
    return 42


async def _fail() -> None:
    raise LookupError("not here")


def test_results_and_errors_come_back() -> None:
    with shared_loop() as loop:
        assert loop.call(_answer).result() == 42
        with pytest.raises(LookupError, match="not here"):
            loop.call(_fail).result()


def test_a_call_that_is_cancelled_ends() -> None:
    with shared_loop() as loop:
        call = loop.call(trio.sleep_forever)
        call.cancel()
        with pytest.raises(CancelledError):
            call.result()


def test_the_loop_is_shared() -> None:
    with shared_loop() as loop, shared_loop() as same:
        assert same is loop


def test_its_thread_ends() -> None:
    """Also with calls under way, which are cancelled."""
    before = threading.active_count()
    loop = LoopThread()
    left = loop.call(trio.sleep_forever)
    assert loop.call(_answer).result() == 42
    loop.end()
    assert threading.active_count() == before
    with pytest.raises(CancelledError):
        left.result()
