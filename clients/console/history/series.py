"""Figures over time: the last samples of one figure, and what changed between them.

Owns `Series`. Memory is bounded: 16 bytes a sample, and at most `CAPACITY` samples and a half.

Pure. Called by: `snapshots`, and the pages that draw charts.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import Final, NamedTuple

CAPACITY: Final = 900  # half an hour of samples, two seconds apart

_RATE_WINDOW_MS: Final = 10_000


class Point(NamedTuple):
    """A figure at a moment."""

    at_ms: int
    value: float


class Series:
    """See the module."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("q")  # moment, value, moment, value ...

    def add(self, at_ms: int, value: int) -> None:
        """Add a sample that is newer than all others."""
        self._numbers.append(at_ms)
        self._numbers.append(value)
        if len(self._numbers) > 3 * CAPACITY:
            del self._numbers[: -2 * CAPACITY]

    def points(self, count: int = CAPACITY) -> list[Point]:
        """Return samples, the oldest first and the newest last; if there are more, evenly fewer."""
        kept = min(len(self._numbers) // 2, CAPACITY)
        step = max(-(-kept // count), 1)
        numbers = self._numbers[-2 * kept :] if kept else self._numbers
        first = (kept - 1) % step * 2 if kept else 0
        pairs = zip(numbers[first :: 2 * step], numbers[first + 1 :: 2 * step], strict=True)
        return [Point(at_ms, value) for at_ms, value in pairs]

    def rates(self, count: int = CAPACITY) -> list[Point]:
        """Return how much a second was added between samples; what shrank added nothing."""
        return [
            Point(later.at_ms, max(later.value - earlier.value, 0) * 1000 / elapsed_ms)
            for earlier, later in pairwise(self.points(count))
            if (elapsed_ms := later.at_ms - earlier.at_ms) > 0
        ]

    def rate(self) -> float | None:
        """Return how much a second was added during the last ten seconds; None: not known yet."""
        numbers = self._numbers
        if len(numbers) < 4:
            return None
        newest_ms, newest = numbers[-2], numbers[-1]
        index = len(numbers) - 4
        while index >= 2 and newest_ms - numbers[index - 2] <= _RATE_WINDOW_MS:
            index -= 2
        elapsed_ms = newest_ms - numbers[index]
        return max(newest - numbers[index + 1], 0) * 1000 / elapsed_ms if elapsed_ms > 0 else None
