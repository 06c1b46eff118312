"""How much of a file is loaded before a reader comes to it: `ReadAhead`.

A reader that finds nothing in memory waits for the disk. One that then goes on where that ended
reads the log from front to back, and is not to wait again: while it is sent what is in memory, a
stretch of the file behind that is loaded, first `FIRST_BYTES` and then twice as much each time, up
to `MOST_BYTES`. The next stretch is asked for when the reader has no more than one in front of it,
so that up to two are. For any other reader nothing is loaded but what it asks for.

Pure; owned by an open file (`files`), whose `load` runs in threads: two readers at once may spoil
each other's guess only.
"""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 4 << 20
MOST_BYTES: Final = 8 << 20


class ReadAhead:
    """See the module."""

    __slots__ = ("_loaded_to", "_position", "_stretch_bytes")

    def __init__(self) -> None:
        self._position = 0  # of the reader
        self._loaded_to = 0  # for it, or on the way
        self._stretch_bytes = 0  # loaded ahead last; 0: it was not seen to go on yet

    def missed(self, position: int, end: int) -> None:
        """Note that a reader did not find what is there, which is being loaded for it."""
        if self._goes_on(position):
            self._loaded_to = max(self._loaded_to, end)
        else:
            self._stretch_bytes = 0
            self._loaded_to = end
        self._position = position

    def wanted(self, position: int) -> tuple[int, int] | None:
        """Return from where to where to load for a reader that has come to a position."""
        if not self._goes_on(position):
            return None
        self._position = position
        start = self._loaded_to
        if start - position > self._stretch_bytes:
            return None
        self._stretch_bytes = min(2 * self._stretch_bytes, MOST_BYTES) or FIRST_BYTES
        self._loaded_to = start + self._stretch_bytes
        return start, self._loaded_to

    def _goes_on(self, position: int) -> bool:
        first = self._position if self._stretch_bytes else self._loaded_to
        return first <= position <= self._loaded_to
