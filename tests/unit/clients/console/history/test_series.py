"""Figures over time: bounded, with what was added a second."""

from __future__ import annotations

from itertools import pairwise

from kraftrio.clients.console.history.series import CAPACITY, Series


def series(*samples: tuple[int, int]) -> Series:
    made = Series()
    for at_ms, value in samples:
        made.add(at_ms, value)
    return made


def test_only_the_newest_samples_are_kept() -> None:
    made = series(*((number, number) for number in range(5 * CAPACITY)))
    points = made.points()
    assert len(points) == CAPACITY
    assert points[-1] == (5 * CAPACITY - 1, 5 * CAPACITY - 1)
    assert points[0] == (4 * CAPACITY, 4 * CAPACITY)


def test_evenly_fewer_samples_with_the_newest() -> None:
    made = series(*((number, number) for number in range(2 * CAPACITY)))
    points = made.points(100)
    assert len(points) == 100
    assert points[-1].at_ms == 2 * CAPACITY - 1
    assert {later.at_ms - earlier.at_ms for earlier, later in pairwise(points)} == {9}
    assert len(series((0, 0), (1, 1), (2, 2)).points(2)) == 2
    assert series((0, 5)).points(2) == [(0, 5)]


def test_rates() -> None:
    made = series((0, 100), (2_000, 300), (4_000, 300), (5_000, 50))
    assert made.rates() == [(2_000, 100.0), (4_000, 0.0), (5_000, 0.0)]
    assert series((0, 1)).rate() is None
    assert series().rate() is None
    assert series((0, 0), (60_000, 30), (62_000, 50)).rate() == 10.0
    assert series((0, 0), (60_000, 60)).rate() == 1.0
    assert made.rate() == 0
