"""Pauses that double up to a limit, with jitter from a generator that is handed in."""

from __future__ import annotations

import random

import pytest

from kraftrio.base.backoff import NO_BACKOFF, ExponentialBackoff


def test_pauses_double_up_to_the_limit() -> None:
    backoff = ExponentialBackoff(20, 100)
    assert [backoff.after(failures) for failures in range(5)] == [20, 40, 80, 100, 100]
    assert backoff.after(100_000) == 100, "no overflow, however long it lasts"
    assert NO_BACKOFF.after(7) == 0


def test_a_limit_below_the_first_pause_counts() -> None:
    assert ExponentialBackoff(100, 30).after(0) == 30


def test_jitter_is_a_fifth_either_way_and_may_pass_the_limit() -> None:
    backoff, rng = ExponentialBackoff(10, 100), random.Random(3)
    pauses = [backoff.jittered(9, rng) for _ in range(500)]
    assert min(pauses) == pytest.approx(80, abs=1)
    assert max(pauses) == pytest.approx(120, abs=1)
    assert min(pauses) >= 80
    assert max(pauses) <= 120
