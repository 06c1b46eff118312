"""The batches of one segment's file, one after the other, also after a place that is damaged.

Owns `walk_batches`. Rules:
1. A batch is damaged if its header makes no sense, its checksum is wrong, or it ends beyond the
   file. What is wrong within a batch whose checksum is right is for others to find.
2. After a damaged batch the walk goes on at the next bytes that are a batch with a right checksum:
   where the damaged one says that it ends, or else wherever one is found.
3. Files are read a window at a time, whatever their size is.

Called by: the checks of this room and the command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftrio.broker.log.files import File, FileSystem
from kraftrio.broker.log.inspection.findings import reason
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    MAGIC,
    BatchHeader,
    LegacyFormatError,
    parse_header,
    verify_crc,
)

_WINDOW_BYTES = 8 << 20
_MAGIC_POSITION = 16
_MAX_BATCH_BYTES = 1 << 30


class StoredBatch(NamedTuple):
    """A batch with a right checksum; `header.position` is where it begins in `data`."""

    position: int
    header: BatchHeader
    data: memoryview


class Damage(NamedTuple):
    """Bytes that are no batch.

    Attributes:
        size_bytes: how many, up to the next batch or to the end of the file.
        base_offset: of the batch they seem to be; None: they do not look like one.
        is_last: no batch follows.
    """

    position: int
    size_bytes: int
    reason: str
    base_offset: int | None
    is_last: bool


def walk_batches(fs: FileSystem, path: str) -> Iterator[StoredBatch | Damage]:
    """Yield the batches of a segment's file, and what is damaged between them.

    Raises:
        OSError: it cannot be read.
    """
    file = fs.open(path)
    try:
        yield from _walk(_FileWindow(file))
    finally:
        file.close()


class _FileWindow:
    """A part of a file, moved as the walk goes on."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = 0
        self._data = b""
        self.size_bytes = file.size_bytes()

    def at(self, position: int, size_bytes: int) -> tuple[memoryview, int]:
        """Return bytes and where in them `position` is; fewer than wanted at the end only."""
        end = position + size_bytes
        if position < self._start or end > self._start + len(self._data):
            self._start = position
            self._data = self._file.read_at(position, max(size_bytes, _WINDOW_BYTES))
        return memoryview(self._data), position - self._start


def _walk(window: _FileWindow) -> Iterator[StoredBatch | Damage]:
    position = 0
    while position < window.size_bytes:
        found = _batch_at(window, position)
        if isinstance(found, StoredBatch):
            yield found
            position += found.header.size_bytes
            continue
        reason, claimed_size = found
        following = _next_batch(window, position, claimed_size)
        end = window.size_bytes if following is None else following
        yield Damage(
            position,
            end - position,
            reason,
            _claimed_offset(window, position),
            is_last=following is None,
        )
        position = end


def _batch_at(window: _FileWindow, position: int) -> StoredBatch | tuple[str, int]:
    """Return the batch at a position; or why there is none, and how large it says it is."""
    data, at = window.at(position, BATCH_OVERHEAD)
    left = window.size_bytes - position
    if left < BATCH_OVERHEAD:
        return f"{left} bytes are left, too few for a batch", 0
    try:
        header = parse_header(data, at)
    except LegacyFormatError as error:
        return f"{reason(error)}, which is not read here", 0
    except CorruptBatchError as error:
        return reason(error), 0
    if header.size_bytes > left:
        return f"the batch has {header.size_bytes} bytes, but {left} are left in the file", 0
    data, at = window.at(position, header.size_bytes)
    header.position = at
    try:
        verify_crc(data, header)
    except CorruptBatchError as error:
        return reason(error), header.size_bytes
    return StoredBatch(position, header, data)


def _next_batch(window: _FileWindow, position: int, claimed_size: int) -> int | None:
    """Return where the next batch begins after a damaged one."""
    if claimed_size:
        after = position + claimed_size
        if after == window.size_bytes:
            return None
        if isinstance(_batch_at(window, after), StoredBatch):
            return after
    candidate = position + 1
    while candidate + BATCH_OVERHEAD <= window.size_bytes:
        data, at = window.at(candidate, BATCH_OVERHEAD)
        part = bytes(data[at:])
        start = 0
        while (magic_at := part.find(MAGIC, start + _MAGIC_POSITION)) >= 0:
            start = magic_at - _MAGIC_POSITION
            if _looks_whole(part, start) and isinstance(
                _batch_at(window, candidate + start), StoredBatch
            ):
                return candidate + start
            start += 1
        candidate += max(len(part) - BATCH_OVERHEAD, 1)
    return None


def _looks_whole(data: bytes, start: int) -> bool:
    """Whether a header there has a possible size: most places are sorted out by that."""
    size = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
    return BATCH_OVERHEAD - 12 <= size <= _MAX_BATCH_BYTES


def _claimed_offset(window: _FileWindow, position: int) -> int | None:
    data, at = window.at(position, BATCH_OVERHEAD)
    if len(data) - at < _MAGIC_POSITION + 1 or data[at + _MAGIC_POSITION] != MAGIC:
        return None
    offset = int.from_bytes(data[at : at + 8], "big", signed=True)
    return offset if offset >= 0 else None
