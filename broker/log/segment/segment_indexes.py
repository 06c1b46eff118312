"""The indexes of one segment, and what they know of its batches: offsets, timestamps, transactions.

Rules:
1. Offset and time index are loaded on first use, and rebuilt from the log when they are missing or
   cannot belong to it. The transaction index raises CorruptIndexError instead: to rebuild it takes
   the producers' state (see `producers/replay`).
2. A batch gets an entry (its last offset, its start) when more than `index.interval.bytes` were
   appended since the last one; a time index entry comes with it, and one at the roll and the close.
3. The largest timestamp is that of the last time index entry, or of a batch after it.
4. `flush` may run in a worker thread while the owner appends.

`segment` owns one and calls it before or after it changes the log file.
"""

from __future__ import annotations

import logging

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.log_config import INT_MAX, LogConfig
from kraftrio.broker.log.segment.index_file import CorruptIndexError, IndexFile
from kraftrio.broker.log.segment.log_file import LogFile
from kraftrio.broker.log.segment.names import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentNames,
)
from kraftrio.broker.log.segment.offset_index import OffsetIndex
from kraftrio.broker.log.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from kraftrio.broker.log.segment.txn_index_file import TxnIndexFile
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.records.batch import (
    BASE_OFFSET_BYTES,
    BATCH_OVERHEAD,
    BatchHeader,
    parse_header,
    stored_base_offset,
)

_logger = logging.getLogger(__name__)


class SegmentIndexes:
    """See the module."""

    __slots__ = (
        "_bytes_since_entry",
        "_first_batch_timestamp",
        "_fs",
        "_is_new",
        "_log_file",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_names",
        "_offset_index",
        "_time_index",
        "_txn_index",
        "config",
    )

    def __init__(
        self,
        fs: FileSystem,
        names: SegmentNames,
        log_file: LogFile,
        config: LogConfig,
        *,
        is_new: bool,
    ) -> None:
        self._fs = fs
        self._names = names
        self._log_file = log_file
        self.config = config
        self._is_new = is_new
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndexFile | None = None
        self._bytes_since_entry = 0
        # None until asked for: it is in the last entry of the time index.
        self._max_timestamp: int | None = NO_TIMESTAMP if is_new else None
        self._max_timestamp_offset = names.base_offset
        self._first_batch_timestamp: int | None = None

    def make_files(self) -> None:
        """Make empty files; ones that exist are emptied or removed."""
        for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            file = self._fs.open(self._names.path(kind), create=True)
            try:
                if file.size_bytes():
                    file.truncate(0)
            finally:
                file.close()
        self._fs.remove(self._names.path(TXN_INDEX_SUFFIX))

    def set_config(self, config: LogConfig) -> None:
        """Take a new configuration: how many entries there may be, and how far apart."""
        self.config = config
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.set_max_size_bytes(config.segment_index_bytes)

    # -- the single indexes ---------------------------------------------------------------------

    @property
    def offsets(self) -> OffsetIndex:
        """The offset index, loaded."""
        index = self._offset_index
        if index is None or not index.loaded:
            self.load()
            index = self._offset_index
            assert index is not None
        return index

    @property
    def times(self) -> TimeIndex:
        """The time index, loaded."""
        index = self._time_index
        if index is None or not index.loaded:
            self.load()
            index = self._time_index
            assert index is not None
        return index

    @property
    def transactions(self) -> TxnIndexFile:
        """The aborted transactions; using it may raise CorruptIndexError."""
        index = self._txn_index
        if index is None:
            index = self._txn_index = TxnIndexFile(
                self._fs,
                self._names.path(TXN_INDEX_SUFFIX),
                self._names.base_offset,
                new=self._is_new and self._log_file.size_bytes == 0,
            )
        return index

    @property
    def are_loaded(self) -> bool:
        """Whether the entries of the offset index are in memory now."""
        return self._offset_index is not None and self._offset_index.loaded

    @property
    def are_full(self) -> bool:
        """Whether offset or time index has no room left."""
        index = self._offset_index
        times = self._time_index
        return (index is not None and index.is_full) or (times is not None and times.is_full)

    def _pair(self) -> tuple[OffsetIndex, TimeIndex]:
        if self._offset_index is None or self._time_index is None:
            fs, names = self._fs, self._names
            new = self._is_new and self._log_file.size_bytes == 0
            size = self.config.segment_index_bytes
            self._offset_index = OffsetIndex(
                fs, names.path(INDEX_SUFFIX), names.base_offset, size, new=new
            )
            self._time_index = TimeIndex(
                fs, names.path(TIME_INDEX_SUFFIX), names.base_offset, size, new=new
            )
        return self._offset_index, self._time_index

    def _in_memory(self) -> list[IndexFile]:
        indexes = (self._offset_index, self._time_index, self._txn_index)
        return [index for index in indexes if index is not None]

    # -- loading and rebuilding -----------------------------------------------------------------

    def load(self) -> None:
        """Load offset and time index; those that prove wrong are rebuilt."""
        offset_index, time_index = self._pair()
        try:
            offset_index.load()
            time_index.load()
            self._check(offset_index, time_index)
        except CorruptIndexError as error:
            _logger.warning("rebuild indexes of %s: %s", self._log_file.path, error)
            self.rebuild()

    def _check(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        log_file = self._log_file
        last = offset_index.last_entry
        if last.position >= max(log_file.size_bytes, 1):
            raise CorruptIndexError(f"{offset_index.path} points beyond the end of the log")
        base_offset, end_offset = log_file.base_offset, log_file.end_offset
        if end_offset < 0:  # not known yet
            end_offset = base_offset + INT_MAX + 1
        if max(last.offset, time_index.last_entry.offset) >= max(end_offset, base_offset + 1):
            raise CorruptIndexError(f"{offset_index.path} has offsets beyond the end of the log")

    def reset(self) -> None:
        """Empty the indexes: the caller scans the log and calls `note_batch`."""
        for index in self._pair():
            index.reset()
        self._bytes_since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self._names.base_offset
        self._first_batch_timestamp = None

    def rebuild(self) -> None:
        """Rebuild offset and time index from the log, without checking its batches' checksums."""
        self.reset()
        for batch in self._log_file.scan(check_crc=False):
            self.note_batch(batch.header, batch.position)
        self.finish()

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Take in a batch that lies at `position`: its timestamps, and index entries when due."""
        max_timestamp = header.max_timestamp
        if position == 0:
            self._first_batch_timestamp = max_timestamp
        largest = self._max_timestamp
        if largest is None:
            largest = self.max_timestamp
        if max_timestamp > largest and header.record_count:  # compaction may have emptied it
            self._max_timestamp = largest = max_timestamp
            self._max_timestamp_offset = header.base_offset + header.last_offset_delta
        if self._bytes_since_entry > self.config.index_interval_bytes:
            self.offsets.append(header.base_offset + header.last_offset_delta, position)
            self.times.maybe_append(largest, self._max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes

    def finish(self) -> None:
        """Give the time index its last entry: the segment is rolled or closed."""
        self.times.maybe_append(self.max_timestamp, self._max_timestamp_offset, at_roll=True)

    # -- look-ups -------------------------------------------------------------------------------

    def position_before(self, offset: int) -> int:
        """The position from which to look for `offset`; an index that points to none is rebuilt."""
        last_offset, position = self.offsets.lookup(offset)
        if position:
            start = self._log_file.read_at(position, BASE_OFFSET_BYTES)
            is_batch = len(start) == BASE_OFFSET_BYTES and (
                self._log_file.base_offset <= stored_base_offset(start) <= last_offset
            )
            if not is_batch:
                _logger.warning("rebuild indexes of %s: no such batch", self._log_file.path)
                self.rebuild()
                position = self.offsets.lookup(offset).position
        return position

    def last_known_position(self) -> int:
        """Where the last batch with an entry begins, without loading the index if possible."""
        index = self._pair()[0]
        last = None if index.loaded else index.peek_last_entry()
        if last is None or last.position >= self._log_file.size_bytes:
            last = self.offsets.last_entry
        return last.position

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a batch, -1 when there is none."""
        if self._max_timestamp is None:
            log_file = self._log_file
            last = None
            index = self._pair()[1]
            if not index.loaded:
                last = index.peek_last_entry()
            if last is None or not (
                log_file.base_offset <= last.offset < max(log_file.end_offset, 0)
            ):
                last = self.times.last_entry
            self._max_timestamp, self._max_timestamp_offset = last
        return self._max_timestamp

    @property
    def max_timestamp_entry(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the batch that has it."""
        return TimestampOffset(self.max_timestamp, self._max_timestamp_offset)

    @property
    def first_batch_timestamp(self) -> int:
        """The max timestamp of the first batch: rolling by time counts from it. -1: no batch."""
        if self._first_batch_timestamp is None:
            if not self._log_file.size_bytes:
                return NO_TIMESTAMP
            header = parse_header(self._log_file.read_at(0, BATCH_OVERHEAD))
            self._first_batch_timestamp = header.max_timestamp
        return self._first_batch_timestamp

    # -- truncation -----------------------------------------------------------------------------

    def truncate_to(self, end_offset: int) -> None:
        """Drop the entries at or above `end_offset`; the log is truncated next."""
        offset_index, time_index = self.offsets, self.times
        offset_index.truncate_to(end_offset)
        time_index.truncate_to(end_offset)
        self.transactions.truncate_to(end_offset)

    def on_truncated(self) -> None:
        """The log was truncated after the indexes: find the largest timestamp that is left."""
        log_file = self._log_file
        self._bytes_since_entry = 0
        if not log_file.size_bytes:
            self._first_batch_timestamp = None
        # Batches between the last time index entry and the end may have later timestamps.
        last = self.times.last_entry
        self._max_timestamp, self._max_timestamp_offset = last
        start = min(self.offsets.lookup(last.offset).position, log_file.size_bytes)
        try:
            for batch in log_file.scan(start):
                header = batch.header
                if header.max_timestamp > self._max_timestamp and header.record_count:
                    self._max_timestamp = header.max_timestamp
                    self._max_timestamp_offset = header.last_offset
        except CorruptBatchError as error:
            # The truncation itself is done; only the largest timestamp may be too small.
            _logger.warning("damage in %s: %s", log_file.path, error)

    # -- the files ------------------------------------------------------------------------------

    def flush(self, *, sync: bool) -> None:
        """Write the entries that the files lack, and make them durable if asked. Any thread."""
        for index in self._in_memory():
            index.flush(sync=sync)

    def unload(self) -> None:
        """Free the memory of the entries that the files have."""
        for index in self._in_memory():
            index.unload()

    def follow_names(self) -> None:
        """Use the new paths: the files were renamed."""
        for index, kind in (
            (self._offset_index, INDEX_SUFFIX),
            (self._time_index, TIME_INDEX_SUFFIX),
            (self._txn_index, TXN_INDEX_SUFFIX),
        ):
            if index is not None:
                index.renamed(self._names.path(kind))

    def remove_files(self) -> None:
        """Remove the files; a flush that comes late does not make them again."""
        for index in self._in_memory():
            index.discard()
        for kind in INDEX_SUFFIXES:
            self._fs.remove(self._names.path(kind))
