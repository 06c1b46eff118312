"""Walking the batches of a log file in big reads, for recovery, replay and searches by time.

A scan trusts nothing: it checks sizes, magic, the order of offsets and, if asked, checksums. What
looks damaged is read once more before it is reported. Used by `log_file`, and by the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftrio.broker.log.files import File
from kraftrio.broker.log.log_config import INT_MAX
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    LegacyFormatError,
    parse_header,
    stored_size,
    verify_crc,
)

SCAN_CHUNK_BYTES = 1 << 20


class ScannedBatch(NamedTuple):
    """A batch met by a scan: its header (positions are those in `buffer`) and where it lies."""

    header: BatchHeader
    buffer: bytes
    position: int


def stored_header(chunk: bytes, at: int) -> BatchHeader:
    """The header of a batch in a log, where a magic that we never write is damage.

    Raises:
        CorruptBatchError: it cannot be one.
    """
    try:
        return parse_header(chunk, at)
    except LegacyFormatError as error:
        raise CorruptBatchError(str(error)) from error


class _BatchWindow:
    """The part of the file that was read last."""

    def __init__(self, file: File, end: int, *, check_crc: bool) -> None:
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self.chunk = b""
        self._start = 0

    def batch_at(self, position: int, next_offset: int) -> BatchHeader:
        """The batch at `position`, whole in `chunk`, which may not begin before `next_offset`."""
        at = position - self._start
        size = stored_size(self.chunk, at)
        if size == 0 or at + size > len(self.chunk):
            self._read(position, size)
            at = 0
        header = stored_header(self.chunk, at)
        if self._check_crc:
            verify_crc(self.chunk, header)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatchError(
                f"offset {header.base_offset} at position {position} follows {next_offset - 1}"
            )
        return header

    def _read(self, position: int, size: int) -> None:
        file, room = self._file, self._end - position
        if max(size, BATCH_OVERHEAD) > room:
            raise CorruptBatchError(f"the batch at position {position} is incomplete")
        self._start = position
        self.chunk = file.read_at(position, min(max(size, SCAN_CHUNK_BYTES), room))
        size = stored_size(self.chunk, 0)
        if size > room or not size:
            raise CorruptBatchError(f"the batch at position {position} is incomplete")
        if size > len(self.chunk):
            self.chunk = file.read_at(position, size)
            if len(self.chunk) < size:
                raise CorruptBatchError(f"the file ends in the batch at position {position}")

    def forget(self) -> None:
        self.chunk = b""


def scan_batches(
    file: File, base_offset: int, position: int, end: int, *, check_crc: bool
) -> Iterator[ScannedBatch]:
    """Yield every batch in the file from `position` to `end`.

    Raises:
        CorruptBatchError: a batch is incomplete, out of order or (if checked) damaged, also when
            it is read a second time, since recovery truncates the log there. Every batch before it
            was yielded.
    """
    next_offset = base_offset
    window = _BatchWindow(file, end, check_crc=check_crc)
    while position < end:
        try:
            header = window.batch_at(position, next_offset)
        except CorruptBatchError:
            window.forget()
            header = window.batch_at(position, next_offset)
        next_offset = header.next_offset
        if next_offset - 1 - base_offset > INT_MAX:
            raise CorruptBatchError(f"offset {next_offset - 1} does not fit the segment")
        yield ScannedBatch(header, window.chunk, position)
        position += header.size_bytes
