"""In which order the offsets of a topic are read: parts of partitions, round by round.

Owns `Window` and `plan_rounds`. A round has a part of each partition that has something left, so
that none waits for another; the parts grow, so that few records are read where few are wanted, and
few requests are made where much has to be.

Pure. Called by: `reading`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kraftrio.wire.primitives import TopicPartition

MAX_WINDOW: Final = 50_000
_GROWTH: Final = 4


class Window(NamedTuple):
    """Offsets of a partition, from `begin` on to before `end`."""

    item: TopicPartition
    begin: int
    end: int


def plan_rounds(
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    first_size: int,
    *,
    newest_first: bool,
) -> Iterator[list[Window]]:
    """Yield the parts of each round, until all offsets were in one.

    Args:
        first_size: of the parts of the first round.
        newest_first: backwards from the ends of the partitions, instead of forwards from their
            beginnings.
    """
    left = {item: (begins[item], ends[item]) for item in sorted(begins)}
    size = first_size
    while left := {item: span for item, span in left.items() if span[0] < span[1]}:
        windows = []
        for item, (begin, end) in left.items():
            if newest_first:
                middle = max(begin, end - size)
                windows.append(Window(item, middle, end))
                left[item] = (begin, middle)
            else:
                middle = min(end, begin + size)
                windows.append(Window(item, begin, middle))
                left[item] = (middle, end)
        yield windows
        size = min(size * _GROWTH, MAX_WINDOW)
