"""What the offset index and the time index of a segment share: a file of fixed-size entries.

Rules:
1. Loaded on first use, so an idle partition keeps no entries in memory and no file open.
2. New entries stay in memory until `flush` (a flush of the log, a roll, a close); recovery rebuilds
   the indexes of unflushed segments anyway, so a crash loses nothing.
3. A file ends at its entries; zero entries at the end (Kafka preallocates) are padding.
4. Entries rise. A file that breaks this, or has a torn entry, is `CorruptIndexError`: the segment
   rebuilds it from the log.
5. `flush` may run in a worker thread while the owner appends: entries are only added after those
   being written, and whatever removes entries takes the same lock.
"""

from __future__ import annotations

import threading

from kraftrio.broker.log.files import FileSystem


class CorruptIndexError(Exception):
    """The index file cannot be what was written; rebuild it."""


class IndexFile:
    """Entries of `ENTRY_SIZE_BYTES`, parsed and packed by the subclass."""

    ENTRY_SIZE_BYTES: int

    __slots__ = (
        "_base_offset",
        "_discarded",
        "_file_size_bytes",
        "_flushed_count",
        "_fs",
        "_loaded",
        "_lock",
        "_max_entries",
        "_unsynced",
        "path",
    )

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, max_size_bytes: int, *, new: bool
    ) -> None:
        self._fs = fs
        self.path = path
        self._base_offset = base_offset
        self._max_entries = max(1, max_size_bytes // self.ENTRY_SIZE_BYTES)
        self._lock = threading.Lock()
        self._flushed_count = 0
        self._file_size_bytes = 0
        self._unsynced = new
        self._loaded = new
        self._discarded = False

    # What a subclass implements.

    def _count(self) -> int:
        raise AssertionError("the subclass implements it")

    def _parse(self, data: bytes) -> None:
        """Take the entries; raise CorruptIndexError when they do not rise."""
        raise AssertionError("the subclass implements it")

    def _pack(self, start: int, end: int) -> bytes:
        raise AssertionError("the subclass implements it")

    def _keep_first(self, count: int) -> None:
        """Keep the first `count` entries in memory."""
        raise AssertionError("the subclass implements it")

    # Shared behaviour.

    @property
    def loaded(self) -> bool:
        return self._loaded

    def set_max_size_bytes(self, max_size_bytes: int) -> None:
        self._max_entries = max(1, max_size_bytes // self.ENTRY_SIZE_BYTES)

    @property
    def entry_count(self) -> int:
        self.load()
        return self._count()

    def load(self) -> None:
        """Read the file if that was not done yet. Raises CorruptIndexError."""
        if self._loaded:
            return
        try:
            data = self._fs.read_file(self.path)
        except FileNotFoundError:
            raise CorruptIndexError(f"{self.path} is missing") from None
        size = self.ENTRY_SIZE_BYTES
        if len(data) % size:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, not a multiple of {size}")
        used = len(data.rstrip(b"\0"))
        self._file_size_bytes = len(data)
        self._parse(data[: -(-used // size) * size])
        self._flushed_count = self._count()
        self._loaded = True

    def peek_last(self) -> bytes | None:
        """The last entry's bytes without loading; None: load it to know."""
        size = self.ENTRY_SIZE_BYTES
        try:
            file = self._fs.open(self.path)
        except FileNotFoundError:
            return None
        try:
            file_size = file.size_bytes()
            if file_size < size or file_size % size:
                return None
            data = file.read_at(file_size - size, size)
        finally:
            file.close()
        return data if any(data) else None

    def reset(self) -> None:
        """Forget all entries; the file follows at the next flush."""
        with self._lock:
            self._keep_first(0)
            self._flushed_count = 0
            # The size of the old file is unknown if it was never read: make flush truncate it.
            self._file_size_bytes = -1
            self._loaded = True
            self._unsynced = True

    def _truncate_entries(self, count: int) -> None:
        with self._lock:
            self._keep_first(count)
            if self._flushed_count > count:
                self._flushed_count = count
                self._file_size_bytes = -1
            self._unsynced = True

    def flush(self, *, sync: bool) -> None:
        """Write the entries the file does not have yet, and make them durable if asked."""
        with self._lock:
            if not self._loaded or self._discarded:
                return
            count = self._count()
            size = self.ENTRY_SIZE_BYTES
            stale = self._file_size_bytes != self._flushed_count * size
            if count == self._flushed_count and not stale and not (sync and self._unsynced):
                return
            file = self._fs.open(self.path, create=True)
            try:
                if stale:
                    file.truncate(self._flushed_count * size)
                    self._file_size_bytes = self._flushed_count * size
                if count > self._flushed_count:
                    data = self._pack(self._flushed_count, count)
                    self._file_size_bytes = -1  # not known if only a part gets there
                    file.write_at(data, self._flushed_count * size)
                    self._flushed_count = count
                    self._file_size_bytes = count * size
                    self._unsynced = True
                if sync and self._unsynced:
                    file.sync()
                    self._unsynced = False
            finally:
                file.close()

    def unload(self) -> None:
        """Drop the entries from memory once the file has them; the next use reads it again."""
        with self._lock:
            count = self._count()
            # A file that is longer still has entries that were removed.
            is_exact = self._file_size_bytes == count * self.ENTRY_SIZE_BYTES
            if self._loaded and self._flushed_count == count and is_exact:
                self._keep_first(0)
                self._loaded = False

    def discard(self) -> None:
        """The file is going to be removed: a flush that comes late must not make it again."""
        with self._lock:
            self._discarded = True

    def renamed(self, path: str) -> None:
        """Use the new path: the file was renamed."""
        with self._lock:
            self.path = path
