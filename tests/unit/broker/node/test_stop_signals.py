"""Signals that stop a process, and those that end it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import trio

from kraftrio.broker.node.stop_signals import is_impatient, stop_signals_received

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@pytest.fixture
def hangup_as_ever() -> Iterator[None]:
    """SIGHUP as it was before."""
    before = signal.signal(HUP, signal.SIG_DFL)
    yield
    signal.signal(HUP, before)


@pytest.mark.parametrize(
    ("earlier", "number", "is_to_end"),
    [
        ([], TERM, False),
        ([TERM], INT, True),
        ([INT], INT, True),
        ([HUP], HUP, False),
        ([TERM], HUP, False),
        ([HUP], TERM, False),
        ([HUP, TERM], TERM, True),
    ],
)
def test_a_second_signal_ends_at_once(earlier: list[int], number: int, is_to_end: bool) -> None:
    """But SIGHUP comes by itself: from a terminal twice, from a service manager after SIGTERM."""
    assert is_impatient(earlier, number) is is_to_end


async def test_a_late_hangup_does_no_harm(hangup_as_ever: None) -> None:
    """Neither while the process stops nor while it ends."""
    with trio.fail_after(5), stop_signals_received() as received:
        os.kill(os.getpid(), HUP)
        async for number in received:
            assert number == HUP
            break
    os.kill(os.getpid(), HUP)


async def test_a_hangup_that_is_ignored_stays_so(hangup_as_ever: None) -> None:
    """As nohup wishes."""
    signal.signal(HUP, signal.SIG_IGN)
    with trio.fail_after(5), stop_signals_received() as received:
        os.kill(os.getpid(), HUP)
        os.kill(os.getpid(), TERM)
        async for number in received:
            assert number == TERM
            break
