"""Searches by the headers of batches: the batch of an offset, and the end of what may be read.

Nothing vouches for a header until the batch's checksum is computed, and a disk may give back other
bits than were written. A wrong length or offset must not make a reader skip records silently, hence
these rules:
1. If the offset is the first of a batch, the header is trusted: the reader of that batch checks it.
2. If it is within a batch or between two of them, the checksum of the batch in question is checked.
3. An impossible header is a `CorruptBatchError`, never the end of the segment.

Pure but for reading the file; only `batch_locator` calls it.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.broker.log.files import File
from kraftrio.broker.log.segment.batch_scan import stored_header
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    HEADER_WALK,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    verify_crc,
)

_WALK_BYTES = HEADER_WALK.size
_CHUNK_BYTES = 16 << 10
_WINDOW_BYTES = 8 << 10  # about two entries of an index
_SMALLEST_LENGTH = BATCH_OVERHEAD - LOG_OVERHEAD


class FoundBatch(NamedTuple):
    """Where a batch lies."""

    position: int
    base_offset: int
    size_bytes: int


class FoundRange(NamedTuple):
    """Where whole batches lie, and the offset to go on with."""

    position: int
    size_bytes: int
    next_offset: int


class WholeBatches(NamedTuple):
    """How many bytes are whole batches, and the offset to go on with (None: nothing is whole)."""

    size_bytes: int
    next_offset: int | None


def find_batch(
    file: File, offset: int, position: int, end: int, *, is_start: bool = False
) -> FoundBatch | None:
    """Find the first batch from `position` on that ends at or after `offset`; None: none does.

    Args:
        is_start: the batch at `position` is the one that begins with `offset`, if all is well.

    Raises:
        CorruptBatchError: what lies there cannot lead to the offset.
    """
    before: FoundBatch | None = None
    chunk, start = b"", position
    chunk_bytes = _WALK_BYTES if is_start else _CHUNK_BYTES
    while position < end:
        at = position - start
        if at + _WALK_BYTES > len(chunk):
            start, at = position, 0
            chunk = file.read_at(position, min(chunk_bytes, end - position))
            chunk_bytes = _CHUNK_BYTES
            if len(chunk) < _WALK_BYTES:
                raise CorruptBatchError(f"the batch at position {position} is incomplete")
        base_offset, length, last_offset_delta = HEADER_WALK.unpack_from(chunk, at)
        if is_start and base_offset != offset:
            raise CorruptBatchError(f"offset {base_offset} at position {position}, not {offset}")
        size_bytes = LOG_OVERHEAD + length
        if length < _SMALLEST_LENGTH or size_bytes > end - position or last_offset_delta < 0:
            raise CorruptBatchError(f"impossible batch header at position {position}")
        found = FoundBatch(position, base_offset, size_bytes)
        if base_offset + last_offset_delta >= offset:
            if base_offset < offset:
                _check(file, found)
            elif base_offset > offset and before is not None:
                _check(file, before)
            return found
        before = found
        position += size_bytes
    if before is not None:
        _check(file, before)
    return None


def _check(file: File, found: FoundBatch) -> None:
    data = file.read_at(found.position, found.size_bytes)
    verify_crc(data, stored_header(data, 0))


def end_of_batches(
    file: File, first: int, known: int, limit: int, end: int, max_offset: int
) -> WholeBatches:
    """Find where the last whole batch ends that fits before `limit` and is below `max_offset`.

    Args:
        first: where the first such batch begins.
        known: where a batch begins according to an index, with only such batches before it; it is
            ignored if that is not after `first`.
        end: of the segment, in bytes.
    """
    window = _HeaderWindow(file, end)
    position = first
    if known > first and window.has(known):
        base_offset, length, _ = window.header(known)
        is_batch = window.magic(known) == MAGIC and length >= _SMALLEST_LENGTH
        if is_batch and 0 <= base_offset <= max_offset:  # else the index is wrong
            position = known
    next_offset: int | None = None
    while position <= limit and window.has(position):
        base_offset, length, last_offset_delta = window.header(position)
        if length < _SMALLEST_LENGTH:
            break  # damage: the next read from here reports it
        next_offset = base_offset
        last_offset = base_offset + last_offset_delta
        if position + LOG_OVERHEAD + length > limit or last_offset >= max_offset:
            break
        position += LOG_OVERHEAD + length
        next_offset = last_offset + 1
    return WholeBatches(position - first, next_offset)


class _HeaderWindow:
    """The headers of a file's batches, read some at a time."""

    def __init__(self, file: File, end: int) -> None:
        self._file = file
        self._end = end
        self._start = 0
        self._data = b""

    def has(self, position: int) -> bool:
        """Whether a whole header is there; then it is in memory, too."""
        at = position - self._start
        if not 0 <= at <= len(self._data) - _WALK_BYTES:
            size = min(_WINDOW_BYTES, self._end - position)
            if size < _WALK_BYTES:
                return False
            self._start, self._data = position, self._file.read_at(position, size)
        return len(self._data) >= _WALK_BYTES

    def header(self, position: int) -> tuple[int, int, int]:
        """Base offset, length, and last offset delta of the batch there."""
        found: tuple[int, int, int] = HEADER_WALK.unpack_from(self._data, position - self._start)
        return found

    def magic(self, position: int) -> int:
        return self._data[position - self._start + MAGIC_POSITION]
