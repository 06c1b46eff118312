"""One segment of a log: the `.log` file with its offset and time index.

Owns the bytes of the batches from `base_offset` to the next segment's, and what is known about
them: size, largest timestamp, where batches start. `partition_log` strings segments together.

Rules:
1. Bytes first, bookkeeping after: an append that fails leaves size and indexes as they were, and
   the file is cut back to its last good size (at the next append, if the disk refuses even that).
2. The file holds whole batches in offset order; what is behind `size_bytes` is garbage.
3. Indexes are loaded on first use and rebuilt from the log when missing or implausible.
4. An entry for a batch (its last offset, its start) when more than `index.interval.bytes` were
   appended since the last one; a time index entry with it, and one at the roll and the close.
5. Reads use `pread`: they may run in a worker thread as long as nobody truncates meanwhile.
6. A slice that was handed out gives what it names, or nothing (see `file_slice`).
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator, Sequence

from kraftrio.broker.log.files import File, FileSystem
from kraftrio.broker.log.log_config import INT_MAX, LogConfig
from kraftrio.broker.log.segment.batch_scan import ScannedBatch, scan_batches
from kraftrio.broker.log.segment.batch_search import (
    FoundBatch,
    FoundRange,
    end_of_batches,
    find_batch,
)
from kraftrio.broker.log.segment.file_slice import FileCuts, FileSlice
from kraftrio.broker.log.segment.index_file import CorruptIndexError, IndexFile
from kraftrio.broker.log.segment.offset_index import OffsetIndex
from kraftrio.broker.log.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from kraftrio.broker.log.segment.txn_index_file import TxnIndexFile
from kraftrio.wire.errors import CorruptRecordError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header

_logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_SUFFIXES = (LOG_SUFFIX, *_INDEX_SUFFIXES)

_MAX_CURSORS = 8
_BASE_OFFSET_BYTES = 8

# Two threads must not both open a closed segment's file.
_open_lock = threading.Lock()


def segment_name(base_offset: int) -> str:
    """The file name stem of a segment: its base offset in 20 digits."""
    return f"{base_offset:020d}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """The base offset in the name of a segment's file with this suffix; None for other names."""
    stem = name.removesuffix(suffix)
    if len(stem) != 20 or len(name) != 20 + len(suffix) or not stem.isdigit():
        return None
    return int(stem)


class Segment:
    """The newest segment is active and appended to; older ones only get read, cut or deleted."""

    __slots__ = (
        "_append_ready",
        "_bytes_since_index_entry",
        "_closed",
        "_cursors",
        "_cuts",
        "_file",
        "_first_batch_timestamp",
        "_fs",
        "_is_new",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_names_unsynced",
        "_offset_index",
        "_time_index",
        "_torn",
        "_txn_index",
        "_unsynced",
        "base_offset",
        "config",
        "created_ms",
        "directory",
        "end_offset",
        "is_removed",
        "size_bytes",
        "suffix",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size_bytes: int,
        end_offset: int,
        created_ms: int,
        new: bool,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        self.size_bytes = size_bytes
        # The offset after the last batch; for a closed segment the next segment's base offset.
        self.end_offset = end_offset
        self.created_ms = created_ms
        self.suffix = ""
        self.is_removed = False
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndexFile | None = None
        self._append_ready = False
        self._closed = False
        self._is_new = new
        # An opened segment may have bytes and a name that only the page cache has (kill -9).
        self._names_unsynced = True
        self._unsynced = True
        self._torn = False
        self._bytes_since_index_entry = 0
        # None until asked for: the last entry of the time index tells.
        self._max_timestamp: int | None = NO_TIMESTAMP if new else None
        self._max_timestamp_offset = base_offset
        self._first_batch_timestamp: int | None = None
        # Where the batch after one that was read starts, for readers that go on.
        self._cursors: dict[int, int] = {}
        self._cuts: FileCuts = []

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        suffix: str = "",
    ) -> Segment:
        """Start an empty segment; whatever lies under its names is cut to nothing."""
        segment = cls(
            fs,
            directory,
            base_offset,
            config,
            size_bytes=0,
            end_offset=base_offset,
            created_ms=now_ms,
            new=True,
        )
        segment.suffix = suffix
        try:
            segment._make_files()
        except OSError:
            segment._remove_what_was_made()
            raise
        return segment

    def _make_files(self) -> None:
        """Make the files, the log last: a segment is there once its log is."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            index_file = self._fs.open(self.path(suffix), create=True)
            try:
                if index_file.size_bytes():
                    index_file.truncate(0)
            finally:
                index_file.close()
        self._fs.remove(self.path(TXN_INDEX_SUFFIX))
        file = self._open_file(create=True)
        if file.size_bytes():
            file.truncate(0)

    def _remove_what_was_made(self) -> None:
        try:
            self.remove()
        except OSError as error:  # the next start does
            _logger.warning("cannot remove %s yet: %s", self.path(LOG_SUFFIX), error)
        finally:
            self.close_file()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str = "",
    ) -> Segment:
        """Open an existing segment; `end_offset` is not known before `load_end_offset`."""
        segment = cls(
            fs, directory, base_offset, config, size_bytes=0, end_offset=-1, created_ms=0, new=False
        )
        segment.suffix = suffix
        path = segment.path(LOG_SUFFIX)
        segment.size_bytes = fs.size_bytes(path)
        segment.created_ms = fs.modified_ms(path)
        return segment

    def set_config(self, config: LogConfig) -> None:
        """Take a new configuration: interval and size of the indexes."""
        self.config = config
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.set_max_size_bytes(config.segment_index_bytes)

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.end_offset}, {self.size_bytes} bytes)"

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{segment_name(self.base_offset)}{suffix}{self.suffix}"

    def _open_file(self, *, create: bool = False) -> File:
        if self._file is not None:
            return self._file
        with _open_lock:
            if self._closed:
                raise OSError(errno.EBADF, "the log is closed", self.path(LOG_SUFFIX))
            if self._file is None:
                self._file = self._fs.open(self.path(LOG_SUFFIX), create=create)
            return self._file

    # -- indexes --------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None or not index.loaded:
            self._load_indexes()
            index = self._offset_index
            assert index is not None
        return index

    @property
    def offset_index_loaded(self) -> bool:
        """Whether the entries are in memory now."""
        return self._offset_index is not None and self._offset_index.loaded

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None or not index.loaded:
            self._load_indexes()
            index = self._time_index
            assert index is not None
        return index

    def _index_pair(self) -> tuple[OffsetIndex, TimeIndex]:
        if self._offset_index is None or self._time_index is None:
            new = self._is_new and self.size_bytes == 0
            size = self.config.segment_index_bytes
            self._offset_index = OffsetIndex(
                self._fs, self.path(INDEX_SUFFIX), self.base_offset, size, new=new
            )
            self._time_index = TimeIndex(
                self._fs, self.path(TIME_INDEX_SUFFIX), self.base_offset, size, new=new
            )
        return self._offset_index, self._time_index

    def _load_indexes(self) -> None:
        offset_index, time_index = self._index_pair()
        try:
            offset_index.load()
            time_index.load()
            self._check_indexes(offset_index, time_index)
        except CorruptIndexError as error:
            _logger.warning("rebuild indexes of %s: %s", self.path(LOG_SUFFIX), error)
            self.rebuild_indexes()

    def _check_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        last = offset_index.last_entry
        if last.position >= max(self.size_bytes, 1):
            raise CorruptIndexError(f"{offset_index.path} points behind the end of the log")
        end_offset = self.end_offset if self.end_offset >= 0 else self.base_offset + INT_MAX + 1
        if max(last.offset, time_index.last_entry.offset) >= max(end_offset, self.base_offset + 1):
            raise CorruptIndexError(f"{offset_index.path} has offsets behind the end of the log")

    @property
    def txn_index(self) -> TxnIndexFile:
        """The aborted transactions; using it may raise CorruptIndexError."""
        index = self._txn_index
        if index is None:
            index = self._txn_index = TxnIndexFile(
                self._fs,
                self.path(TXN_INDEX_SUFFIX),
                self.base_offset,
                new=self._is_new and self.size_bytes == 0,
            )
        return index

    def _all_indexes(self) -> list[IndexFile]:
        indexes = (self._offset_index, self._time_index, self._txn_index)
        return [index for index in indexes if index is not None]

    def reset_indexes(self) -> None:
        """Start to index from nothing: the caller scans the log and calls `note_batch`."""
        for index in self._index_pair():
            index.reset()
        self._append_ready = False
        self._bytes_since_index_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._first_batch_timestamp = None
        self._cursors.clear()

    def rebuild_indexes(self) -> None:
        """Index the log anew, without checking its batches' checksums."""
        self.reset_indexes()
        for batch in self.scan(check_crc=False):
            self.note_batch(batch.header, batch.position)
        self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset, at_roll=True)

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Book a batch that lies at `position`: timestamps, and index entries when due."""
        size = header.size_bytes
        max_timestamp = header.max_timestamp
        if position == 0:
            self._first_batch_timestamp = max_timestamp
        largest = self._max_timestamp
        if largest is None:
            largest = self.max_timestamp
        if max_timestamp > largest and header.record_count:  # compaction may have emptied it
            self._max_timestamp = largest = max_timestamp
            self._max_timestamp_offset = header.base_offset + header.last_offset_delta
        if self._bytes_since_index_entry > self.config.index_interval_bytes:
            # Loading cannot count this batch: the size of the segment does not include it yet.
            self.offset_index.append(header.base_offset + header.last_offset_delta, position)
            self.time_index.maybe_append(largest, self._max_timestamp_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a batch here, -1 when there is none."""
        if self._max_timestamp is None:
            last = None
            index = self._index_pair()[1]
            if not index.loaded:
                last = index.peek_last_entry()
            if last is None or not self.base_offset <= last.offset < max(self.end_offset, 0):
                last = self.time_index.last_entry
            self._max_timestamp, self._max_timestamp_offset = last
        return self._max_timestamp

    @property
    def max_timestamp_entry(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the batch that has it."""
        return TimestampOffset(self.max_timestamp, self._max_timestamp_offset)

    def largest_timestamp(self) -> int:
        """What retention goes by: the largest timestamp, else when the file was written."""
        timestamp = self.max_timestamp
        if timestamp >= 0 or not self.size_bytes:
            return timestamp
        return self._fs.modified_ms(self.path(LOG_SUFFIX))

    @property
    def first_batch_timestamp(self) -> int:
        """The max timestamp of the first batch: rolling by time counts from it. -1: no batch."""
        if self._first_batch_timestamp is None:
            if not self.size_bytes:
                return NO_TIMESTAMP
            header = parse_header(self._open_file().read_at(0, BATCH_OVERHEAD))
            self._first_batch_timestamp = header.max_timestamp
        return self._first_batch_timestamp

    @property
    def indexes_are_full(self) -> bool:
        index = self._offset_index
        times = self._time_index
        return (index is not None and index.is_full) or (times is not None and times.is_full)

    def fits_offset(self, offset: int) -> bool:
        """Whether the offset can be written relative to the base offset (KAFKA-6264)."""
        return 0 <= offset - self.base_offset <= INT_MAX

    # -- append ---------------------------------------------------------------------------------

    def append(self, data: Buffer, batches: Sequence[BatchHeader]) -> None:
        """Write whole batches at the end. Raises OSError, and then nothing has changed."""
        if not self._append_ready:
            self._prepare_append()
        file = self._file
        assert file is not None
        position = self.size_bytes
        try:
            file.write_at(data, position)
        except OSError:
            self._cut_torn_tail(file)
            raise
        self._unsynced = True
        for header in batches:
            self.note_batch(header, position)
            position += header.size_bytes
        self.size_bytes = position
        header = batches[-1]
        self.end_offset = header.base_offset + header.last_offset_delta + 1

    def _prepare_append(self) -> None:
        """Do what could fail between the write and its bookkeeping: open, load, cut."""
        file = self._open_file()
        if self._torn:
            self._cut_to_size(file)
        assert self.offset_index.loaded and self.time_index.loaded
        assert self.max_timestamp >= NO_TIMESTAMP
        self._append_ready = True

    def _cut_to_size(self, file: File) -> None:
        file.truncate(self.size_bytes)
        self._torn = False

    def _cut_torn_tail(self, file: File) -> None:
        try:
            self._cut_to_size(file)
        except OSError as error:
            self._torn = True
            self._append_ready = False
            _logger.warning("cannot cut %s yet: %s", self.path(LOG_SUFFIX), error)

    # -- read -----------------------------------------------------------------------------------

    def _find(self, offset: int) -> FoundBatch | None:
        """The first batch that ends at or after `offset`. CorruptRecordError: damage is before."""
        file, end = self._open_file(), self.size_bytes
        cursor = self._cursors.get(offset)
        if cursor is not None:
            try:
                return find_batch(file, offset, cursor, end, is_start=True)
            except CorruptRecordError:
                self._cursors.pop(offset, None)  # the header before was damaged, or a gap follows
        return find_batch(file, offset, self.position_before(offset), end)

    def position_before(self, offset: int) -> int:
        """Where to begin to look for `offset`, by the index; one that lies is made anew."""
        last_offset, position = self.offset_index.lookup(offset)
        if position:
            start = self._open_file().read_at(position, _BASE_OFFSET_BYTES)
            base_offset = int.from_bytes(start, "big", signed=True)
            if not self.base_offset <= base_offset <= last_offset:
                _logger.warning("rebuild indexes of %s: no such batch", self.path(LOG_SUFFIX))
                self.rebuild_indexes()
                position = self.offset_index.lookup(offset).position
        return position

    def locate(
        self, start_offset: int, max_bytes: int, max_offset: int, min_one_batch: bool
    ) -> FoundRange | None:
        """Where whole batches lie from the one with `start_offset` on, all below `max_offset`.

        Headers alone are read. None when the segment ends before `start_offset`.
        """
        found = self._find(start_offset)
        if found is None:
            return None
        position, _, first_size = found
        if max_bytes < first_size:
            if not min_one_batch:
                return FoundRange(position, 0, start_offset)
            max_bytes = first_size
        end = self.size_bytes
        limit = position + max_bytes
        if limit >= end and max_offset >= self.end_offset:
            next_offset = self.end_offset
            self._remember(next_offset, end)
            return FoundRange(position, end - position, next_offset)
        index, limit = self.offset_index, min(limit, end)
        known = min(index.lookup(max_offset).position, index.batch_start_before(limit))
        file = self._open_file()
        size, goes_on_at = end_of_batches(file, position, known, limit, end, max_offset)
        if not size or goes_on_at is None:
            return FoundRange(position, 0, start_offset)
        self._remember(goes_on_at, position + size)
        return FoundRange(position, size, goes_on_at)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read what `locate` found."""
        return self._open_file().read_at(position, size_bytes) if size_bytes else b""

    def slice_at(self, position: int, size_bytes: int, *, is_settled: bool) -> FileSlice:
        """Name what `locate` found; `is_settled`: no truncation will reach it."""
        file = self._open_file()
        return FileSlice(file, self._cuts, position, size_bytes, is_settled=is_settled)

    def _remember(self, offset: int, position: int) -> None:
        cursors = self._cursors
        if len(cursors) >= _MAX_CURSORS:
            del cursors[next(iter(cursors))]
        cursors[offset] = position

    def scan(self, position: int = 0, *, check_crc: bool = False) -> Iterator[ScannedBatch]:
        """Every batch from `position` on; CorruptRecordError at one that is not whole and good."""
        return scan_batches(
            self._open_file(), self.base_offset, position, self.size_bytes, check_crc=check_crc
        )

    # -- open, cut, flush, close, delete --------------------------------------------------------

    def load_end_offset(self) -> int:
        """Find the offset after the last batch, by the last index entry and a short walk.

        Raises CorruptRecordError when the tail is not whole batches.
        """
        index = self._index_pair()[0]
        last = None if index.loaded else index.peek_last_entry()
        if last is None or last.position >= self.size_bytes:
            last = self.offset_index.last_entry
        position = last.position
        end_offset = self.base_offset
        try:
            for batch in self.scan(position):
                end_offset = batch.header.next_offset
        except CorruptRecordError:
            if not position:
                raise
            # The index may point into the middle of a batch: walk from the start before giving up.
            for batch in self.scan():
                end_offset = batch.header.next_offset
            self.rebuild_indexes()
        self.end_offset = end_offset
        return end_offset

    def truncate_to(self, offset: int) -> int:
        """Cut every batch that holds `offset` or a later one; return the bytes cut."""
        found = self._find(offset)
        if found is None:
            self.end_offset = min(self.end_offset, offset)  # compaction left no batch before it
            return 0
        position, base_offset, _ = found
        return self.truncate_to_position(position, min(offset, base_offset))

    def truncate_to_position(self, position: int, end_offset: int) -> int:
        """Cut the file at a batch start; `end_offset` is what the log ends at then."""
        # Indexes first: entries that point behind the end would be rebuilt, not believed.
        offset_index, time_index = self.offset_index, self.time_index
        offset_index.truncate_to(end_offset)
        time_index.truncate_to(end_offset)
        self.txn_index.truncate_to(end_offset)
        self._cuts.append(position)
        self._open_file().truncate(position)
        cut = self.size_bytes - position
        self.size_bytes = position
        self.end_offset = end_offset
        self._torn = False
        self._unsynced = True
        self._cursors.clear()
        self._bytes_since_index_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        if not position:
            self._first_batch_timestamp = None
        # Batches between the last time index entry and the end may have later timestamps.
        last = time_index.last_entry
        self._max_timestamp, self._max_timestamp_offset = last
        start = min(offset_index.lookup(last.offset).position, position)
        try:
            for batch in self.scan(start):
                header = batch.header
                if header.max_timestamp > self._max_timestamp and header.record_count:
                    self._max_timestamp = header.max_timestamp
                    self._max_timestamp_offset = header.last_offset
        except CorruptRecordError as error:
            # The cut is made: only how old the newest record is stays a little wrong.
            _logger.warning("damage in %s: %s", self.path(LOG_SUFFIX), error)
        return cut

    def on_become_inactive(self) -> None:
        """The segment is rolled or closed: its file ends with its last batch, the time index gets
        its last entry. It may be appended to again, should the roll fail.
        """
        if self._torn:
            self._cut_to_size(self._open_file())
        if self.size_bytes:
            timestamp = self.max_timestamp
            self.time_index.maybe_append(timestamp, self._max_timestamp_offset, at_roll=True)

    def start_anew(self, now_ms: int) -> None:
        """Begin an empty segment again, with empty indexes."""
        assert not self.size_bytes, self
        self.reset_indexes()
        self.created_ms = now_ms

    def flush(self) -> None:
        """Make log, indexes and their names durable. Any thread; nothing once it is closed."""
        if self._unsynced:
            self._unsynced = False
            try:
                self._open_file().sync()
            except OSError:
                if self._closed:
                    return  # deleted meanwhile
                self._unsynced = True
                raise
        for index in self._all_indexes():
            index.flush(sync=True)
        if self._names_unsynced:
            self._fs.sync_directory(self.directory)
            self._names_unsynced = False

    def mark_durable(self) -> None:
        """The files were flushed by a clean stop."""
        self._unsynced = False
        self._names_unsynced = False

    def write_indexes(self) -> None:
        """Write the index entries the files lack, without making them durable."""
        for index in self._all_indexes():
            index.flush(sync=False)

    def unload_indexes(self) -> None:
        """Free the memory of the index entries."""
        self._append_ready = False
        for index in self._all_indexes():
            index.unload()

    def close_file(self) -> None:
        """Close for good: whoever still holds the segment gets EBADF, not a file reopened."""
        self._append_ready = False
        self._closed = True
        self._cuts.append(0)
        with _open_lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()
        self._cursors.clear()

    def moved(self, directory: str) -> None:
        """Follow a rename of the directory."""
        self.directory = directory
        self._follow_names()

    def _follow_names(self) -> None:
        if self._offset_index is not None:
            self._offset_index.renamed(self.path(INDEX_SUFFIX))
        if self._time_index is not None:
            self._time_index.renamed(self.path(TIME_INDEX_SUFFIX))
        if self._txn_index is not None:
            self._txn_index.renamed(self.path(TXN_INDEX_SUFFIX))

    def retire(self) -> None:
        """Rename the files to `.deleted`, missing ones aside: readers may go on until `remove`.

        OSError: it is retired all the same unless the log itself kept its name (`is_retired`).
        """
        self.rename_files(DELETED_SUFFIX)

    @property
    def is_retired(self) -> bool:
        return self.suffix == DELETED_SUFFIX

    def rename_files(self, suffix: str, *, log_last: bool = False) -> None:
        """Give the files another suffix, missing ones aside; the log goes first or last.

        The segment has the suffix that its log has, also after an OSError.
        """
        old_paths = {kind: self.path(kind) for kind in _SUFFIXES}
        old_suffix = self.suffix
        for kind in _SUFFIXES[::-1] if log_last else _SUFFIXES:
            path = old_paths[kind]
            if self._fs.exists(path):
                self._fs.rename(path, path.removesuffix(old_suffix) + suffix)
            if kind == LOG_SUFFIX:
                self.suffix = suffix
                self._follow_names()

    def remove(self) -> None:
        """Remove the files under their present names, the log first, and close.

        OSError: it is gone all the same unless its log could not be removed (`is_removed`); an
        index that stays behind is cut by the next segment of that name, or removed by a start.
        """
        self._fs.remove(self.path(LOG_SUFFIX))
        self.is_removed = True
        self.close_file()
        for index in self._all_indexes():
            index.discard()
        for suffix in _INDEX_SUFFIXES:
            self._fs.remove(self.path(suffix))
