"""The `.timeindex` of a segment: largest timestamp so far -> the batch that has it.

An entry is 12 bytes: int64 timestamp, uint32 (last offset of the batch with that largest timestamp
- base offset): until that batch no record is later than the timestamp. Timestamps rise strictly, so
a batch that brings no later one adds no entry. Kafka adds one with each offset index entry and one
when the segment is rolled or closed. Used by `segment` only.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from itertools import chain
from operator import le, lt
from typing import NamedTuple

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.segment.index_file import CorruptIndexError, IndexFile

NO_TIMESTAMP = -1

_ENTRY = struct.Struct(">qI")


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """Entries as two parallel arrays: 12 bytes of memory for each."""

    ENTRY_SIZE_BYTES = 12

    __slots__ = ("_offsets", "_timestamps")

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, max_size_bytes: int, *, new: bool
    ) -> None:
        super().__init__(fs, path, base_offset, max_size_bytes, new=new)
        self._timestamps = array("q")
        self._offsets = array("I")  # relative

    def _count(self) -> int:
        # Offsets are appended last, so an entry counted here is whole (flush in a thread).
        return len(self._offsets)

    def _parse(self, data: bytes) -> None:
        timestamps, offsets = array("q"), array("I")
        for timestamp, relative in _ENTRY.iter_unpack(data):
            timestamps.append(timestamp)
            offsets.append(relative)
        rises = all(map(lt, timestamps, timestamps[1:])) and all(map(le, offsets, offsets[1:]))
        if not rises:
            raise CorruptIndexError(f"{self.path}: entries do not rise")
        self._timestamps, self._offsets = timestamps, offsets

    def _pack(self, start: int, end: int) -> bytes:
        pairs = zip(self._timestamps[start:end], self._offsets[start:end], strict=True)
        return struct.pack(">" + "qI" * (end - start), *chain.from_iterable(pairs))

    def _keep_first(self, count: int) -> None:
        del self._timestamps[count:]
        del self._offsets[count:]

    @property
    def is_full(self) -> bool:
        """Whether only the entry reserved for the roll is left."""
        return len(self._offsets) >= self._max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) when there is none."""
        self.load()
        if not self._offsets:
            return TimestampOffset(NO_TIMESTAMP, self._base_offset)
        return TimestampOffset(self._timestamps[-1], self._base_offset + self._offsets[-1])

    def peek_last_entry(self) -> TimestampOffset | None:
        """The last entry of a file that is not loaded; None: load it to know."""
        data = self.peek_last()
        if data is None:
            return None
        timestamp, relative = _ENTRY.unpack(data)
        return TimestampOffset(timestamp, self._base_offset + relative)

    def maybe_append(self, timestamp: int, offset: int, *, at_roll: bool = False) -> bool:
        """Add an entry if it rises; at a roll the reserved place may be used."""
        if not self._loaded:
            self.load()
        if self._offsets:
            if timestamp <= self._timestamps[-1]:
                return False
            if not at_roll and self.is_full:
                return False
        elif timestamp <= NO_TIMESTAMP:
            return False
        self._timestamps.append(timestamp)
        self._offsets.append(offset - self._base_offset)
        return True

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry with a timestamp <= `timestamp`; (-1, base offset) when there is none."""
        if not self._loaded:
            self.load()
        index = bisect_right(self._timestamps, timestamp) - 1
        if index < 0:
            return TimestampOffset(NO_TIMESTAMP, self._base_offset)
        return TimestampOffset(self._timestamps[index], self._base_offset + self._offsets[index])

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self.load()
        self._truncate_entries(bisect_left(self._offsets, max(0, offset - self._base_offset)))
