"""Transactions whose markers are in the log, but not committed: they hold the stable offset back.

A log that is replayed may hold a hundred thousand of them, since nothing counts as committed then,
and in any order of their first offsets: so each step takes next to no time, however many there are.

Pure. `producer_state` owns one for each log.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush


class UnreplicatedTransactions:
    """See the module; false while there is none."""

    __slots__ = ("_by_marker", "_first_offsets", "_waiting")

    def __init__(self) -> None:
        self._by_marker: deque[tuple[int, int]] = deque()  # (marker's offset, first offset)
        self._waiting: set[int] = set()  # first offsets
        self._first_offsets: list[int] = []  # a heap of those, and of some that wait no longer

    def __bool__(self) -> bool:
        return bool(self._by_marker)

    def add(self, first_offset: int, marker_offset: int) -> None:
        """A marker was appended, after all others."""
        self._by_marker.append((marker_offset, first_offset))
        self._waiting.add(first_offset)
        heappush(self._first_offsets, first_offset)

    def on_committed(self, high_watermark: int) -> None:
        """Everything below this offset is committed."""
        by_marker = self._by_marker
        while by_marker and by_marker[0][0] < high_watermark:
            self._waiting.discard(by_marker.popleft()[1])
        first_offsets = self._first_offsets
        while first_offsets and first_offsets[0] not in self._waiting:
            heappop(first_offsets)

    @property
    def first_offset(self) -> int | None:
        """Where the oldest of them begins."""
        return self._first_offsets[0] if self._first_offsets else None

    def clear(self) -> None:
        """Forget all of them."""
        self._by_marker.clear()
        self._waiting.clear()
        self._first_offsets.clear()
