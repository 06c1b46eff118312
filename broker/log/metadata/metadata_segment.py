"""One file of the metadata log, with all of its batches known.

Rules:
1. What opening finds is read whole: checksums, and that offsets follow each other without a gap.
2. Only the newest segment is truncated, where a power cut may have left a torn tail.
3. A batch that cannot be read back as it was written is OSError.

`metadata_log` strings them together.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftrio.broker.log.files import File, FileSystem
from kraftrio.broker.log.metadata.names import MetadataLogError, segment_file_name
from kraftrio.kraft_meta.quorum.log_batches import decode_batch, encode_batch
from kraftrio.kraft_meta.raft.values import LogBatch
from kraftrio.wire.errors import CorruptBatchError, KafkaError
from kraftrio.wire.records.batch import (
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    parse_header,
    verify_crc,
)

_SECTOR_BYTES: Final = 512  # what a disk writes as a whole
_FEW_BYTES: Final = 8  # a batch may well end with zeros


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """Where a batch lies in its segment."""

    base_offset: int
    end_offset: int
    epoch: int
    position: int
    size_bytes: int


@dataclass(slots=True)
class MetadataSegment:
    """One file of the log, with all of its batches known."""

    base_offset: int
    path: str
    file: File
    size_bytes: int = 0
    entries: list[BatchEntry] = field(default_factory=list)
    is_torn: bool = False  # beyond `size_bytes` lies what is left of a write that failed

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else self.base_offset

    def append(self, batch: LogBatch) -> int:
        """Write a batch at the end; return its bytes. OSError: the segment is as before."""
        self.truncate_torn_tail()
        data, position = encode_batch(batch), self.size_bytes
        try:
            self.file.write_at(data, position)
        except OSError:
            self.is_torn = True
            raise
        entry = BatchEntry(batch.base_offset, batch.end_offset, batch.epoch, position, len(data))
        self.entries.append(entry)
        self.size_bytes += len(data)
        return len(data)

    def truncate_torn_tail(self) -> None:
        """Let the file end with its last batch, whatever a write that failed left."""
        if self.is_torn:
            self.file.truncate(self.size_bytes)
            self.is_torn = False

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that ends beyond `offset`, durably; a batch begins there."""
        while self.entries and self.entries[-1].end_offset > offset:
            self.size_bytes = self.entries.pop().position
        assert self.end_offset == offset, "a log is truncated between batches"
        self.file.truncate(self.size_bytes)
        self.file.sync()

    def read(self, entries: Sequence[BatchEntry]) -> list[LogBatch]:
        """Read neighbouring batches back; OSError: they are not what was written, read twice."""
        if not entries:
            return []
        try:
            return self._decode(entries)
        except KafkaError:
            pass
        try:
            return self._decode(entries)
        except KafkaError as error:
            raise OSError(errno.EIO, f"damaged: {error}", self.path) from error

    def _decode(self, entries: Sequence[BatchEntry]) -> list[LogBatch]:
        start, last = entries[0].position, entries[-1]
        data = self.file.read_at(start, last.position + last.size_bytes - start)
        batches = []
        for entry in entries:
            batch = decode_batch(data, parse_header(data, entry.position - start))
            found = (batch.base_offset, batch.end_offset, batch.epoch)
            if found != (entry.base_offset, entry.end_offset, entry.epoch):
                raise CorruptBatchError(f"{found} at position {entry.position}")
            batches.append(batch)
        return batches


@dataclass(frozen=True, slots=True)
class OpenedSegment:
    """A segment that was found, and how many bytes of a torn tail were truncated."""

    segment: MetadataSegment
    truncated_bytes: int


def open_segment(
    fs: FileSystem, directory: str, base_offset: int, *, is_newest: bool
) -> OpenedSegment:
    """Read all of a segment; truncate the torn tail of the newest one.

    Raises:
        MetadataLogError: there is damage that no crash leaves.
    """
    path = posixpath.join(directory, segment_file_name(base_offset))
    file = fs.open(path)
    segment = MetadataSegment(base_offset, path, file)
    size = file.size_bytes()
    entries = list(_scan(file.read_at(0, size), base_offset))
    if not entries or entries[-1].position + entries[-1].size_bytes < size:
        data = file.read_at(0, size)  # again, before anything is truncated for it
        entries = list(_scan(data, base_offset))
    segment.entries = entries
    if entries:
        segment.size_bytes = entries[-1].position + entries[-1].size_bytes
    if segment.size_bytes == size:
        return OpenedSegment(segment, 0)
    if not is_newest or not is_torn(data, segment.size_bytes):
        raise MetadataLogError(f"{path} is damaged at position {segment.size_bytes}")
    file.truncate(segment.size_bytes)
    file.sync()
    return OpenedSegment(segment, size - segment.size_bytes)


def _scan(data: bytes, base_offset: int) -> Iterator[BatchEntry]:
    """Yield the batches of a segment up to the first that is not whole or does not follow."""
    position, offset, epoch = 0, base_offset, -1
    view = memoryview(data)
    while position + LOG_OVERHEAD <= len(data):
        try:
            header = parse_header(view, position)
            if position + header.size_bytes > len(data):
                return
            verify_crc(view, header)
        except KafkaError:
            return
        if header.base_offset != offset or header.partition_leader_epoch < epoch:
            return
        offset, epoch = header.next_offset, header.partition_leader_epoch
        yield BatchEntry(header.base_offset, offset, epoch, position, header.size_bytes)
        position += header.size_bytes


def is_torn(data: bytes, position: int) -> bool:
    """Whether what is not whole from `position` on is what a power cut leaves of appends.

    That is a batch without its end, or with sectors that were never written: they are zeros. A
    batch that is all there was right once, and so was one that whole batches follow.
    """
    end = len(data)
    try:
        header = parse_header(data, position)
    except KafkaError:
        header = None
    is_followed = _whole_batch_follows(data, position)
    if header is not None and position + header.size_bytes <= end:
        end = position + header.size_bytes
    elif not is_followed:
        return True
    start = position
    if header is not None:
        start += MAGIC_POSITION  # offset and epoch before it begin with zeros
    while start < end:
        stop = min(start - start % _SECTOR_BYTES + _SECTOR_BYTES, end)
        if not any(data[start:stop]) and (stop - start >= _FEW_BYTES or not is_followed):
            return True
        start = stop
    return False


def _whole_batch_follows(data: bytes, position: int) -> bool:
    """Look for a batch whose checksum is right anywhere beyond `position`."""
    view = memoryview(data)
    at = data.find(MAGIC, position + 1 + MAGIC_POSITION)
    while at >= 0:
        try:
            verify_crc(view, parse_header(view, at - MAGIC_POSITION))
        except KafkaError:
            at = data.find(MAGIC, at + 1)
        else:
            return True
    return False
