"""How much of a file is loaded before its readers come to it: `ReadAhead`.

A reader that finds nothing in memory waits for the disk. One that then goes on where that ended
reads the log from front to back, and is not to wait again: while it is sent what is in memory, a
stretch of the file behind that is loaded, first `FIRST_BYTES` and then twice as much each time, up
to `MOST_BYTES`. The next stretch is asked for when the reader has no more than one in front of it,
so that up to two are. For any other reader nothing is loaded but what it asks for.

The last `MOST_READERS` places that are read from are known, as several groups may lag behind.

Pure; owned by an open file (`files`), whose `load` runs in threads: two of them at once may spoil
a guess only.
"""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 4 << 20
MOST_BYTES: Final = 8 << 20
MOST_READERS: Final = 4


class ReadAhead:
    """See the module."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: list[_Reader] = []  # who missed last comes first

    def missed(self, position: int, end: int) -> None:
        """Note that a reader did not find what is there, which is being loaded for it."""
        reader = self._reader_at(position)
        if reader is None:
            self._readers = [_Reader(position, end), *self._readers[: MOST_READERS - 1]]
        else:
            reader.position = position
            reader.loaded_to = max(reader.loaded_to, end)

    def wanted(self, position: int) -> tuple[int, int] | None:
        """Return from where to where to load for a reader that has come to a position."""
        reader = self._reader_at(position)
        return None if reader is None else reader.go_on(position)

    def _reader_at(self, position: int) -> _Reader | None:
        return next((one for one in self._readers if one.may_go_on_at(position)), None)


class _Reader:
    """One place that is read from.

    Attributes:
        position: where the reader was last.
        loaded_to: how far it is loaded for, or will be.
    """

    __slots__ = ("_stretch_bytes", "loaded_to", "position")

    def __init__(self, position: int, loaded_to: int) -> None:
        self.position = position
        self.loaded_to = loaded_to
        self._stretch_bytes = 0  # loaded ahead last; 0: it was not seen to go on yet

    def may_go_on_at(self, position: int) -> bool:
        first = self.position if self._stretch_bytes else self.loaded_to
        return first <= position <= self.loaded_to

    def go_on(self, position: int) -> tuple[int, int] | None:
        """Return the next stretch to load, if it is time."""
        self.position = position
        start = self.loaded_to
        if start - position > self._stretch_bytes:
            return None
        self._stretch_bytes = min(2 * self._stretch_bytes, MOST_BYTES) or FIRST_BYTES
        self.loaded_to = start + self._stretch_bytes
        return start, self.loaded_to
