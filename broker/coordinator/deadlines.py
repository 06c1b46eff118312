"""Keeps the deadlines of one coordinator shard: a heap with at most one live entry per key.

Members heartbeat far more often than they expire, so moving a deadline later only notes the new
time; the heap entry moves when its old time comes up. Keys are tuples, chosen by the caller.
Called by shards; time comes in as an argument.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

DeadlineKey: TypeAlias = tuple[str, ...]


class DeadlineQueue:
    """Deadlines by key, in time order.

    Invariant: every scheduled key has a heap entry at or before its deadline.
    """

    __slots__ = ("_deadlines", "_entries", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[DeadlineKey, float] = {}
        self._entries: dict[DeadlineKey, float] = {}
        self._heap: list[tuple[float, DeadlineKey]] = []

    def __contains__(self, key: DeadlineKey) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: DeadlineKey, deadline_ms: float) -> None:
        """Set the deadline of a key, replacing any former one."""
        self._deadlines[key] = deadline_ms
        entry_ms = self._entries.get(key)
        if entry_ms is None or deadline_ms < entry_ms:
            self._entries[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: DeadlineKey) -> None:
        """Forget a key; nothing happens if it has no deadline."""
        self._deadlines.pop(key, None)

    def next_deadline_ms(self) -> float | None:
        """A time at or before the earliest deadline; None when there is none."""
        while self._heap:
            entry_ms, key = self._heap[0]
            if self._entries.get(key) == entry_ms and key in self._deadlines:
                return entry_ms
            self._drop_top()
        return None

    def pop_due(self, now_ms: float) -> DeadlineKey | None:
        """Remove and return the earliest key whose deadline has come; None if there is none."""
        while self._heap and self._heap[0][0] <= now_ms:
            key = self._drop_top()
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None or key in self._entries:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[key]
                return key
            self._entries[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))
        return None

    def _drop_top(self) -> DeadlineKey:
        entry_ms, key = heapq.heappop(self._heap)
        if self._entries.get(key) == entry_ms:
            del self._entries[key]
        return key
