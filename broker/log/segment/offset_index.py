"""The `.index` of a segment: relative offset -> position in the log file, one entry per interval.

An entry is 8 bytes: uint32 (last offset of a batch - base offset), uint32 (position where that
batch starts). A look-up finds the last entry at or below the wanted offset; the reader walks batch
headers from there. Used by `segment` only.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from typing import NamedTuple

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.segment.index_file import CorruptIndexError, IndexFile

_ENTRY = struct.Struct(">II")
_LITTLE = sys.byteorder == "little"


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(IndexFile):
    """Entries as two parallel arrays: 8 bytes of memory for each."""

    ENTRY_SIZE_BYTES = 8

    __slots__ = ("_offsets", "_positions")

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, max_size_bytes: int, *, new: bool
    ) -> None:
        super().__init__(fs, path, base_offset, max_size_bytes, new=new)
        self._offsets = array("I")  # relative
        self._positions = array("I")

    def _count(self) -> int:
        # Positions are appended last, so an entry counted here is whole (flush in a thread).
        return len(self._positions)

    def _parse(self, data: bytes) -> None:
        values = array("I", data)
        if _LITTLE:
            values.byteswap()
        offsets, positions = values[0::2], values[1::2]
        for column in (offsets, positions):
            if not all(map(lt, column, column[1:])):
                raise CorruptIndexError(f"{self.path}: entries do not rise")
        self._offsets, self._positions = offsets, positions

    def _pack(self, start: int, end: int) -> bytes:
        values = array("I", bytes(8 * (end - start)))
        values[0::2] = self._offsets[start:end]
        values[1::2] = self._positions[start:end]
        if _LITTLE:
            values.byteswap()
        return values.tobytes()

    def _keep_first(self, count: int) -> None:
        del self._offsets[count:]
        del self._positions[count:]

    @property
    def is_full(self) -> bool:
        return len(self._positions) >= self._max_entries

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry; (base offset, 0) when there is none."""
        self.load()
        if not self._positions:
            return OffsetPosition(self._base_offset, 0)
        return OffsetPosition(self._base_offset + self._offsets[-1], self._positions[-1])

    def peek_last_entry(self) -> OffsetPosition | None:
        """The last entry of a file that is not loaded; None: load it to know."""
        data = self.peek_last()
        if data is None:
            return None
        relative, position = _ENTRY.unpack(data)
        return OffsetPosition(self._base_offset + relative, position)

    def append(self, offset: int, position: int) -> None:
        """Add an entry; the segment calls this in rising order."""
        relative = offset - self._base_offset
        assert not self._offsets or relative > self._offsets[-1], (offset, self.path)
        self._offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry with an offset <= `offset`; (base offset, 0) when there is none."""
        if not self._loaded:
            self.load()
        index = bisect_right(self._offsets, offset - self._base_offset) - 1
        if index < 0:
            return OffsetPosition(self._base_offset, 0)
        return OffsetPosition(self._base_offset + self._offsets[index], self._positions[index])

    def batch_start_before(self, position: int) -> int:
        """The last indexed batch start <= `position`; 0 when there is none."""
        if not self._loaded:
            self.load()
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self.load()
        self._truncate_entries(bisect_left(self._offsets, max(0, offset - self._base_offset)))
