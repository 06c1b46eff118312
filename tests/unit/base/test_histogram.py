"""Histograms by powers of two."""

from __future__ import annotations

import random

from kraftrio.base.histogram import Histogram


def test_values_are_counted_below_the_bounds_they_are_below() -> None:
    rng = random.Random(1)
    values = [rng.randrange(1 << rng.randrange(1, 40)) for _ in range(2000)] + [0, 1, 1 << 20]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    bounds = (4, 5, 9, 20, 30)
    spread = histogram.snapshot(bounds)
    assert spread.below == tuple(sum(value < 1 << bound for value in values) for bound in bounds)
    assert (spread.count, spread.total) == (len(values), sum(values))


def test_a_snapshot_changes_no_more() -> None:
    histogram = Histogram()
    histogram.add(5)
    before = histogram.snapshot((3,))
    histogram.add(6)
    assert (before.count, before.below, before.total) == (1, (1,), 5)
