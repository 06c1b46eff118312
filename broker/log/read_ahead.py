"""How much of a file is asked of the disk before a reader comes to it: `ReadAhead`.

A reader that finds nothing in memory waits for the disk. One that then goes on where the last one
was is reading the log from front to back, and is to wait seldom: each time twice as much is asked
for as before, from `FIRST_BYTES` to `MOST_BYTES`. Any other reader begins again with the first.

Pure; owned by an open file (`files`), whose `load` runs in threads: two readers at once may spoil
each other's guess only.
"""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 4 << 20
MOST_BYTES: Final = 16 << 20


class ReadAhead:
    """See the module."""

    __slots__ = ("_asked_from", "_asked_to", "_window_bytes")

    def __init__(self) -> None:
        self._asked_from = self._asked_to = 0
        self._window_bytes = 0

    def beyond(self, position: int, size_bytes: int) -> tuple[int, int]:
        """Return from where to where to ask, beside what is wanted now; the same: for nothing."""
        end = position + size_bytes
        goes_on = self._window_bytes > 0 and self._asked_from < position <= self._asked_to
        self._asked_from = position
        if not goes_on:
            self._window_bytes = FIRST_BYTES
            start = end
        elif self._asked_to - position > self._window_bytes // 2:
            return end, end  # asked for already: it is on its way
        else:
            self._window_bytes = min(2 * self._window_bytes, MOST_BYTES)
            start = max(end, self._asked_to)
        self._asked_to = max(end, position + self._window_bytes)
        return start, self._asked_to
