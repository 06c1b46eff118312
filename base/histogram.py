"""How values are spread: a histogram by powers of two, cheap enough to count every request.

A value is an integer that is not negative (nanoseconds, bytes). Bucket `i` counts the values below
2**i that no earlier bucket has, so that a value's bucket is its bit length, and counting costs an
addition. Each bound is twice the one before: a quantile is right within a factor of two at worst,
which is what operators compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BUCKETS = 64


class Histogram:
    """See the module.

    Attributes:
        counts: by bit length of the values; who counts much adds to it and to `total` directly.
        total: the sum of the values.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total = 0

    def add(self, value: int) -> None:
        """Count a value."""
        self.counts[value.bit_length()] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def snapshot(self, bounds: Sequence[int]) -> Spread:
        """Give the counts below 2**bound, for bounds that rise."""
        below, place, cumulative = [], 0, 0
        for bound in bounds:
            cumulative += sum(self.counts[place : bound + 1])
            place = bound + 1
            below.append(cumulative)
        return Spread(tuple(bounds), tuple(below), self.count, self.total)


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram at one moment.

    Attributes:
        bounds: powers of two.
        below: how many values were below each bound.
    """

    bounds: tuple[int, ...]
    below: tuple[int, ...]
    count: int
    total: int
