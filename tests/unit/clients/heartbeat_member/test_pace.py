"""When heartbeats are due."""

from __future__ import annotations

import random

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.heartbeat_member.pace import Pace


def pace() -> Pace:
    return Pace(1_000, ExponentialBackoff(100, 400), random.Random(1))


def test_the_interval_counts_from_what_was_sent() -> None:
    """Also the first time, when only the answer says how long it is, and when that changes."""
    times = pace()
    assert times.due_ms == 0
    times.sent(50)
    times.answered(3_000)
    assert times.due_ms == 3_050
    times.answered(1_000)
    assert times.due_ms == 1_050
    times.make_due()
    assert times.due_ms == 0


def test_haste_does_not_shorten_the_pause_after_a_failure() -> None:
    times = pace()
    times.sent(0)
    times.failed(10)
    times.make_due()
    assert 90 <= times.due_ms <= 130
    times.sent(times.due_ms)
    times.answered(500)
    times.make_due()
    assert times.due_ms == 0


def test_polls() -> None:
    """Before the first one the application has stayed away for ever."""
    times = pace()
    assert times.poll_is_overdue(0)
    times.polled(5)
    assert times.poll_deadline_ms == 1_005
    assert not times.poll_is_overdue(1_005) and times.poll_is_overdue(1_006)
