"""Walking the batches of a log file in big reads, for recovery, replay and searches by time.

A scan trusts nothing: sizes, magic, order of offsets and, if asked, checksums. Used by `segment`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kraftrio.broker.log.files import File
from kraftrio.broker.log.log_config import INT_MAX
from kraftrio.wire.errors import CorruptRecordError
from kraftrio.wire.record_batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    BatchHeader,
    parse_header,
    verify_crc,
)

SCAN_CHUNK_BYTES = 1 << 20
_LENGTH = Struct(">i")
_LENGTH_POSITION = 8


class ScannedBatch(NamedTuple):
    """A batch met by a scan: its header (positions are those in `buffer`) and where it lies."""

    header: BatchHeader
    buffer: bytes
    position: int


def scan_batches(
    file: File, base_offset: int, position: int, end: int, *, check_crc: bool
) -> Iterator[ScannedBatch]:
    """Yield every batch in the file from `position` to `end`.

    Raises:
        CorruptRecordError: a batch that is cut, out of order or (checked) damaged; every batch
            before it was yielded.
    """
    next_offset = base_offset
    chunk, start = b"", position
    while position < end:
        at = position - start
        size = _batch_bytes(chunk, at)
        if size == 0 or at + size > len(chunk):
            if max(size, BATCH_OVERHEAD) > end - position:
                raise CorruptRecordError(f"the batch at position {position} is cut")
            start, at = position, 0
            chunk = file.read_at(position, min(max(size, SCAN_CHUNK_BYTES), end - position))
            size = _batch_bytes(chunk, 0)
            if size > end - position or not size:
                raise CorruptRecordError(f"the batch at position {position} is cut")
            if size > len(chunk):
                chunk = file.read_at(position, size)
                if len(chunk) < size:
                    raise CorruptRecordError(f"the file ends in the batch at position {position}")
        header = parse_header(chunk, at)
        if check_crc:
            verify_crc(chunk, header)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptRecordError(
                f"offset {header.base_offset} at position {position} follows {next_offset - 1}"
            )
        next_offset = header.next_offset
        if next_offset - 1 - base_offset > INT_MAX:
            raise CorruptRecordError(f"offset {next_offset - 1} does not fit the segment")
        yield ScannedBatch(header, chunk, position)
        position += header.size_bytes


def _batch_bytes(chunk: bytes, at: int) -> int:
    """The size of the batch at `at` by its length field; 0 when its header is not in the chunk."""
    if len(chunk) - at < BATCH_OVERHEAD:
        return 0
    length: int = _LENGTH.unpack_from(chunk, at + _LENGTH_POSITION)[0]
    return LOG_OVERHEAD + length if length > 0 else BATCH_OVERHEAD
