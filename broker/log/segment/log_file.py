"""The `.log` file of a segment: whole batches in offset order.

Rules:
1. A write that fails leaves size and end offset as they were, and the file is truncated to its last
   good size (before the next write, if the disk refuses even that).
2. What lies beyond `size_bytes` is garbage.
3. It is opened on first use and stays open until `close`, which is for good: a caller that still
   holds it gets EBADF, not a file opened again under a name that may be another segment's.
4. A slice that was handed out gives the bytes it was made for, or raises (see `file_slice`).
5. Reads use `pread`: they may run in a worker thread as long as nobody truncates meanwhile. `sync`
   may run in one at any time.

`segment` owns one; its indexes read it.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator

from kraftrio.broker.log.files import File, FileSystem
from kraftrio.broker.log.segment.batch_scan import ScannedBatch, scan_batches
from kraftrio.broker.log.segment.file_slice import FileSlice, Truncations
from kraftrio.broker.log.segment.names import LOG_SUFFIX, SegmentNames
from kraftrio.wire.primitives import Buffer

_logger = logging.getLogger(__name__)

# Two threads must not both open a closed segment's file.
_open_lock = threading.Lock()


class LogFile:
    """The batches from `base_offset` to before `end_offset`, in `size_bytes`.

    Attributes:
        end_offset: after the last batch, -1 while that is not known; of a closed segment the next
            one's base offset.
    """

    __slots__ = (
        "_file",
        "_fs",
        "_is_closed",
        "_is_torn",
        "_is_unsynced",
        "_names",
        "_truncations",
        "base_offset",
        "end_offset",
        "size_bytes",
    )

    def __init__(
        self, fs: FileSystem, names: SegmentNames, *, size_bytes: int, end_offset: int
    ) -> None:
        self._fs = fs
        self._names = names
        self.base_offset = names.base_offset
        self.size_bytes = size_bytes
        self.end_offset = end_offset
        self._file: File | None = None
        self._is_closed = False
        self._is_torn = False
        # A file that was found may have bytes that only the page cache has (kill -9).
        self._is_unsynced = True
        self._truncations: Truncations = []

    @property
    def path(self) -> str:
        return self._names.path(LOG_SUFFIX)

    def open(self, *, create: bool = False) -> File:
        """The open file. Raises OSError: EBADF once it was closed."""
        if self._file is not None:
            return self._file
        with _open_lock:
            if self._is_closed:
                raise OSError(errno.EBADF, "the log is closed", self.path)
            if self._file is None:
                self._file = self._fs.open(self.path, create=create)
            return self._file

    def make(self) -> None:
        """Make an empty file; one that exists is emptied."""
        file = self.open(create=True)
        if file.size_bytes():
            file.truncate(0)

    def modified_ms(self) -> int:
        """When the file was written last."""
        return self._fs.modified_ms(self.path)

    # -- writing --------------------------------------------------------------------------------

    def prepare_append(self) -> None:
        """Do what may fail before a write: open the file, truncate what a failed write left."""
        self.open()
        self.truncate_torn_tail()

    def append(self, data: Buffer, end_offset: int) -> None:
        """Write whole batches at the end. Raises OSError, and then nothing has changed."""
        file = self._file
        assert file is not None, "see prepare_append"
        size_bytes = self.size_bytes
        try:
            file.write_at(data, size_bytes)
        except OSError:
            self._is_torn = True
            try:
                self.truncate_torn_tail()
            except OSError as error:
                _logger.warning("cannot truncate %s yet: %s", self.path, error)
            raise
        self._is_unsynced = True
        self.size_bytes = size_bytes + len(data)
        self.end_offset = end_offset

    def truncate_torn_tail(self) -> None:
        """Cut off what a failed write left after the last batch."""
        if self._is_torn:
            self.open().truncate(self.size_bytes)
            self._is_torn = False

    def truncate(self, position: int, end_offset: int) -> None:
        """Truncate the file where a batch begins; slices that reach beyond it become invalid."""
        self._truncations.append(position)
        self.open().truncate(position)
        self.size_bytes = position
        self.end_offset = end_offset
        self._is_torn = False
        self._is_unsynced = True

    # -- reading --------------------------------------------------------------------------------

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read bytes that are there."""
        return self.open().read_at(position, size_bytes) if size_bytes else b""

    def slice_at(self, position: int, size_bytes: int, *, is_settled: bool) -> FileSlice:
        """Name bytes that are there; `is_settled`: no truncation will reach them."""
        return FileSlice(
            self.open(), self._truncations, position, size_bytes, is_settled=is_settled
        )

    def scan(self, position: int = 0, *, check_crc: bool = False) -> Iterator[ScannedBatch]:
        """Every batch from `position` on; CorruptRecordError at one that is not whole and good."""
        return scan_batches(
            self.open(), self.base_offset, position, self.size_bytes, check_crc=check_crc
        )

    # -- durability and the end -----------------------------------------------------------------

    def sync(self) -> bool:
        """Make the bytes durable; False: the file was closed meanwhile. Any thread."""
        if self._is_unsynced:
            self._is_unsynced = False
            try:
                self.open().sync()
            except OSError:
                if self._is_closed:
                    return False
                self._is_unsynced = True
                raise
        return True

    def mark_durable(self) -> None:
        """The bytes were flushed by a clean stop."""
        self._is_unsynced = False

    def close(self) -> None:
        """Close for good; all slices become invalid."""
        self._is_closed = True
        self._truncations.append(0)
        with _open_lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()
