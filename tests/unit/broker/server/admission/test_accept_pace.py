"""How fast connections may come."""

from __future__ import annotations

import math

from kraftrio.broker.server.admission.accept_pace import AcceptPace


def accepted_at(pace: AcceptPace, count: int, begin_s: float = 0.0) -> list[float]:
    """When so many connections that are all there are accepted."""
    now_s, times = begin_s, []
    for _ in range(count):
        now_s += pace.wait_s(now_s)
        pace.accepted(now_s)
        times.append(round(now_s, 3))
    return times


def test_a_seconds_worth_comes_at_once_the_rest_at_the_rate() -> None:
    """And a quiet time is saved up for one second only."""
    pace = AcceptPace(4)
    assert accepted_at(pace, 8) == [0, 0, 0, 0, 0.25, 0.5, 0.75, 1.0]
    assert accepted_at(pace, 6, 1000) == [1000, 1000, 1000, 1000, 1000.25, 1000.5]


def test_without_a_limit() -> None:
    """Nobody waits, however many come."""
    assert set(accepted_at(AcceptPace(), 10_000)) == {0}
    assert AcceptPace(2**31 - 1).wait_s(0) == 0


def test_none_at_all() -> None:
    """A rate of zero accepts nobody; another one later does."""
    pace = AcceptPace(0)
    assert pace.wait_s(5) == math.inf
    pace.rate = 1
    assert pace.wait_s(5) == 0
