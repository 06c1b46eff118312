"""One segment of a log: the `.log` file with its indexes.

Puts the parts of a segment together (`log_file`, `segment_indexes`, `batch_locator`) and keeps them
in step where all of them change: appends, truncation, roll, flush, rename, removal. What concerns
one part is asked of that part. `partition` strings segments together.

Rules:
1. Bytes first, bookkeeping after: an append that fails leaves size and indexes as they were.
2. A truncation begins with the indexes: entries that point beyond the end would be rebuilt, not
   believed.
3. A segment is there once its log is: that file is made last and removed first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.log_config import INT_MAX, LogConfig
from kraftrio.broker.log.segment.batch_locator import BatchLocator
from kraftrio.broker.log.segment.log_file import LogFile
from kraftrio.broker.log.segment.names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SegmentNames,
)
from kraftrio.broker.log.segment.segment_indexes import SegmentIndexes
from kraftrio.broker.log.segment.time_index import NO_TIMESTAMP
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import BatchHeader

_logger = logging.getLogger(__name__)


class Segment:
    """The newest segment is active and appended to; older ones are read, truncated or deleted."""

    __slots__ = (
        "_append_ready",
        "_fs",
        "_names",
        "_names_unsynced",
        "base_offset",
        "batches",
        "created_ms",
        "indexes",
        "is_removed",
        "log_file",
    )

    def __init__(
        self,
        fs: FileSystem,
        names: SegmentNames,
        config: LogConfig,
        *,
        size_bytes: int,
        end_offset: int,
        created_ms: int,
        is_new: bool,
    ) -> None:
        self._fs = fs
        self._names = names
        self.base_offset = names.base_offset
        self.log_file = LogFile(fs, names, size_bytes=size_bytes, end_offset=end_offset)
        self.indexes = SegmentIndexes(fs, names, self.log_file, config, is_new=is_new)
        self.batches = BatchLocator(self.log_file, self.indexes)
        self.created_ms = created_ms
        self.is_removed = False
        self._append_ready = False
        # The name of a segment that was found may be in the page cache only (after kill -9).
        self._names_unsynced = True

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
        """Start an empty segment; files that exist under its names are emptied."""
        names = SegmentNames(directory, base_offset, suffix)
        segment = cls(
            fs, names, config, size_bytes=0, end_offset=base_offset, created_ms=now_ms, is_new=True
        )
        try:
            segment.indexes.make_files()
            segment.log_file.make()
        except OSError:
            segment._remove_what_was_made()
            raise
        return segment

    def _remove_what_was_made(self) -> None:
        try:
            self.remove()
        except OSError as error:  # the next start removes it
            _logger.warning("cannot remove %s yet: %s", self.log_file.path, error)
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
        names = SegmentNames(directory, base_offset, suffix)
        path = names.path(LOG_SUFFIX)
        return cls(
            fs,
            names,
            config,
            size_bytes=fs.size_bytes(path),
            end_offset=-1,
            created_ms=fs.modified_ms(path),
            is_new=False,
        )

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.end_offset}, {self.size_bytes} bytes)"

    def path(self, kind: str) -> str:
        """The path of one of the segment's files."""
        return self._names.path(kind)

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches there are."""
        return self.log_file.size_bytes

    @property
    def end_offset(self) -> int:
        """The offset after the last batch; for a closed segment the next one's base offset."""
        return self.log_file.end_offset

    @end_offset.setter
    def end_offset(self, offset: int) -> None:
        self.log_file.end_offset = offset

    def fits_offset(self, offset: int) -> bool:
        """Whether the offset can be written relative to the base offset (KAFKA-6264)."""
        return 0 <= offset - self.base_offset <= INT_MAX

    def largest_timestamp(self) -> int:
        """What retention goes by: the largest timestamp, else when the file was written."""
        timestamp = self.indexes.max_timestamp
        if timestamp >= 0 or not self.size_bytes:
            return timestamp
        return self.log_file.modified_ms()

    # -- append ---------------------------------------------------------------------------------

    def append(self, data: Buffer, batches: Sequence[BatchHeader]) -> None:
        """Write whole batches at the end. Raises OSError, and then nothing has changed."""
        if not self._append_ready:
            self._prepare_append()
        log_file = self.log_file
        position = log_file.size_bytes
        last = batches[-1]
        try:
            log_file.append(data, last.base_offset + last.last_offset_delta + 1)
        except OSError:
            self._append_ready = False
            raise
        note_batch = self.indexes.note_batch
        for header in batches:
            note_batch(header, position)
            position += header.size_bytes

    def _prepare_append(self) -> None:
        """Do what could fail between the write and its bookkeeping: open, load, truncate."""
        self.log_file.prepare_append()
        indexes = self.indexes
        assert indexes.offsets.loaded and indexes.times.loaded
        assert indexes.max_timestamp >= NO_TIMESTAMP
        self._append_ready = True

    # -- the end of the segment -----------------------------------------------------------------

    def load_end_offset(self) -> int:
        """Find the offset after the last batch, by the last index entry and a short walk.

        Raises CorruptBatchError when the tail is not whole batches.
        """
        log_file = self.log_file
        position = self.indexes.last_known_position()
        end_offset = self.base_offset
        try:
            for batch in log_file.scan(position):
                end_offset = batch.header.next_offset
        except CorruptBatchError:
            if not position:
                raise
            # The index may point into the middle of a batch: walk from the start before giving up.
            for batch in log_file.scan():
                end_offset = batch.header.next_offset
            self.indexes.rebuild()
        log_file.end_offset = end_offset
        return end_offset

    def truncate_to(self, offset: int) -> int:
        """Remove every batch that holds `offset` or a later one; return how many bytes."""
        found = self.batches.find(offset)
        if found is None:
            self.end_offset = min(self.end_offset, offset)  # compaction left no batch before it
            return 0
        position, base_offset, _ = found
        return self.truncate_to_position(position, min(offset, base_offset))

    def truncate_to_position(self, position: int, end_offset: int) -> int:
        """Truncate the file at the start of a batch; `end_offset` is where the log ends then.

        Returns:
            how many bytes were removed.
        """
        removed_bytes = self.size_bytes - position
        self.indexes.truncate_to(end_offset)
        self.log_file.truncate(position, end_offset)
        self.batches.forget()
        self.indexes.on_truncated()
        return removed_bytes

    def on_become_inactive(self) -> None:
        """The segment is rolled or closed: its file ends with its last batch, the time index gets
        its last entry. It may be appended to again, should the roll fail.
        """
        self.log_file.truncate_torn_tail()
        if self.size_bytes:
            self.indexes.finish()

    def restart_empty(self, now_ms: int) -> None:
        """Start an empty segment again, with empty indexes and a new time of creation."""
        assert not self.size_bytes, self
        self.indexes.reset()
        self.created_ms = now_ms

    # -- durability, names and removal ----------------------------------------------------------

    def flush(self) -> None:
        """Make log, indexes and their names durable. Any thread; nothing once it is closed."""
        if not self.log_file.sync():
            return
        self.indexes.flush(sync=True)
        if self._names_unsynced:
            self._fs.sync_directory(self._names.directory)
            self._names_unsynced = False

    def mark_durable(self) -> None:
        """The files were flushed by a clean stop."""
        self.log_file.mark_durable()
        self._names_unsynced = False

    def unload_indexes(self) -> None:
        """Free the memory of the index entries."""
        self._append_ready = False
        self.indexes.unload()

    def close_file(self) -> None:
        """Close for good: a reader that still holds the segment gets EBADF."""
        self._append_ready = False
        self.log_file.close()
        self.batches.forget()

    def moved(self, directory: str) -> None:
        """Use the new path: the directory was renamed."""
        self._names.directory = directory
        self.indexes.follow_names()

    def retire(self) -> None:
        """Rename the files (those that exist) to `.deleted`: they can be read until `remove`.

        OSError: it is retired all the same unless the log itself kept its name (`is_retired`).
        """
        self.rename_files(DELETED_SUFFIX)

    @property
    def is_retired(self) -> bool:
        """Whether the log file is named `.deleted`."""
        return self._names.suffix == DELETED_SUFFIX

    def rename_files(self, suffix: str, *, log_last: bool = False) -> None:
        """Give the files (those that exist) another suffix; the log goes first or last.

        The segment has the suffix that its log has, also after an OSError.
        """
        names = self._names
        old_paths = {kind: names.path(kind) for kind in SEGMENT_SUFFIXES}
        old_suffix = names.suffix
        for kind in SEGMENT_SUFFIXES[::-1] if log_last else SEGMENT_SUFFIXES:
            path = old_paths[kind]
            if self._fs.exists(path):
                self._fs.rename(path, path.removesuffix(old_suffix) + suffix)
            if kind == LOG_SUFFIX:
                names.suffix = suffix
                self.indexes.follow_names()

    def remove(self) -> None:
        """Remove the files under their present names, the log first, and close.

        OSError: it is gone all the same unless its log could not be removed (`is_removed`); an
        index that stays behind is emptied by the next segment of that name, or removed by a start.
        """
        self._fs.remove(self.log_file.path)
        self.is_removed = True
        self.close_file()
        self.indexes.remove_files()
