"""The metadata log on disk: `__cluster_metadata-0`, segments and snapshots.

Owns that directory and keeps kraft_meta's port `ReplicatedLog`. The files are Kafka's:
`<20 digits>.log` with record batches, whose record values are our msgpack metadata records;
snapshots; `partition.metadata`. Rules:
1. The log starts at the end of its newest snapshot, or at 0; older bytes are leftovers.
2. Only the newest segment can have a torn tail: a segment is synced before the next one is made.
   Damage elsewhere, or of bytes that were all written (see `metadata_segment`), is
   `MetadataLogError`, since committed metadata would be lost silently.
3. What a snapshot makes needless is deleted once it has its name, oldest first, so a crash leaves a
   log without holes.
4. `OSError` propagates: the node ends and recovers at its next start.
5. What opening finds is synced before it counts: a killed process may have left it unsynced.

Called by: kraft_meta's quorum service, in one thread at a time, but for `flush` and
`write_snapshot`, which may run in a worker thread while the loop reads and appends.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from kraftrio.broker.log.checkpoints import PARTITION_METADATA, format_partition_metadata
from kraftrio.broker.log.files import FileSystem, write_atomically
from kraftrio.broker.log.metadata.metadata_segment import (
    BatchEntry,
    MetadataSegment,
    open_segment,
)
from kraftrio.broker.log.metadata.names import (
    LEFTOVER_SUFFIXES,
    MetadataLogError,
    parse_segment_file_name,
    segment_file_name,
)
from kraftrio.broker.log.metadata.recent_batches import RecentBatches
from kraftrio.broker.log.metadata.snapshot_files import SnapshotFiles
from kraftrio.kraft_meta.quorum.log_batches import encoded
from kraftrio.kraft_meta.raft.values import LogBatch, SnapshotId

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"


class MetadataLog:
    """The log and the snapshots of the metadata quorum."""

    def __init__(self, fs: FileSystem, directory: str, *, segment_bytes: int = 1 << 30) -> None:
        """Open (or make) the log in `directory`; truncate a torn tail. Raises MetadataLogError."""
        self._fs = fs
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments: list[MetadataSegment] = []
        self._recent = RecentBatches()
        self.truncated_bytes = 0
        metadata_path = posixpath.join(directory, PARTITION_METADATA)
        is_new = not fs.exists(metadata_path)
        if is_new:
            fs.make_directory(directory)
            fs.sync_directory(posixpath.dirname(directory))
        self._open_files()
        newest = self.latest_snapshot_id()
        self.log_start_offset = 0 if newest is None else newest.end_offset
        if not self._continues_from(newest):
            self._remove_segments(self._segments[::-1])
            self._segments = []
        if not self._segments:
            self._add_segment(self.log_start_offset)
        else:
            self.flush()
            fs.sync_directory(directory)
        if is_new:
            write_atomically(fs, metadata_path, format_partition_metadata(METADATA_TOPIC_ID))

    # ---- opening

    def _open_files(self) -> None:
        names = self._fs.list_directory(self._directory)
        for name in names:
            if name.endswith(LEFTOVER_SUFFIXES):
                self._fs.remove(posixpath.join(self._directory, name))
        self._snapshots = SnapshotFiles(self._fs, self._directory, names)
        found = (parse_segment_file_name(name) for name in names)
        bases = sorted(base_offset for base_offset in found if base_offset is not None)
        for base_offset in bases:
            if self._segments and self._segments[-1].end_offset != base_offset:
                raise MetadataLogError(
                    f"{self._segments[-1].path} ends at {self._segments[-1].end_offset}, "
                    f"but the next segment starts at {base_offset}"
                )
            opened = open_segment(
                self._fs, self._directory, base_offset, is_newest=base_offset == bases[-1]
            )
            self._segments.append(opened.segment)
            self.truncated_bytes = opened.truncated_bytes

    def _continues_from(self, snapshot_id: SnapshotId | None) -> bool:
        """Whether the segments go on where the newest snapshot ends (rule 1)."""
        if not self._segments:
            return False
        first, end_offset = self._segments[0].base_offset, self.log_end_offset
        if snapshot_id is None:
            if first != 0:
                raise MetadataLogError(
                    f"{self._directory}: the log starts at {first} without a snapshot"
                )
            return True
        if first > snapshot_id.end_offset:
            raise MetadataLogError(
                f"{self._directory}: no log from {snapshot_id.end_offset} to {first}"
            )
        # A crash while a snapshot from the leader replaced this log left the old one: it is short,
        # or other records lead up to the same offset.
        if end_offset < snapshot_id.end_offset:
            return False
        if first == snapshot_id.end_offset:
            return True
        return self._entry_at(snapshot_id.end_offset - 1).epoch == snapshot_id.epoch

    def _add_segment(self, base_offset: int) -> None:
        path = posixpath.join(self._directory, segment_file_name(base_offset))
        file = self._fs.open(path, create=True)
        self._fs.sync_directory(self._directory)
        self._segments.append(MetadataSegment(base_offset, path, file))

    def _remove_segments(self, segments: Sequence[MetadataSegment]) -> None:
        for segment in segments:
            segment.file.close()
            self._fs.remove(segment.path)
            self._fs.sync_directory(self._directory)

    # ---- the log

    @property
    def log_end_offset(self) -> int:
        return self._segments[-1].end_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def epoch_starts(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) of every epoch from log_start_offset on."""
        starts: list[tuple[int, int]] = []
        for segment in self._segments:
            for entry in segment.entries:
                if entry.end_offset > self.log_start_offset and (
                    not starts or entry.epoch > starts[-1][0]
                ):
                    starts.append((entry.epoch, max(entry.base_offset, self.log_start_offset)))
        return starts

    def append(self, batches: Sequence[LogBatch]) -> int:
        """Write batches at the end; they are durable after the next flush. Return their bytes."""
        written = 0
        for batch in batches:
            assert batch.base_offset == self.log_end_offset, "the log has no holes"
            if self._segments[-1].size_bytes >= self._segment_bytes:
                self.roll()
            batch = encoded(batch)
            size_bytes = self._segments[-1].append(batch)
            self._recent.append(batch, size_bytes)
            written += size_bytes
        return written

    def flush(self) -> None:
        """Make everything appended so far durable."""
        self._segments[-1].file.sync()

    def roll(self) -> None:
        """Start a new segment, unless the newest one is empty."""
        if self._segments[-1].entries:
            self._segments[-1].truncate_torn_tail()
            self.flush()
            self._add_segment(self.log_end_offset)

    def read(self, start_offset: int, max_offset: int, max_bytes: int) -> list[LogBatch]:
        """Return whole batches from the one with start_offset on, below max_offset."""
        assert start_offset >= self.log_start_offset
        recent = self._recent.read(start_offset, max_offset, max_bytes)
        if recent is not None:
            return recent
        batches: list[LogBatch] = []
        size = 0
        bases = [segment.base_offset for segment in self._segments]
        for segment in self._segments[max(bisect_right(bases, start_offset) - 1, 0) :]:
            chosen: list[BatchEntry] = []
            for entry in segment.entries:
                if entry.end_offset <= start_offset:
                    continue
                if entry.base_offset >= max_offset:
                    break
                if (batches or chosen) and size + entry.size_bytes > max_bytes:
                    return batches + segment.read(chosen)
                chosen.append(entry)
                size += entry.size_bytes
            batches += segment.read(chosen)
        return batches

    def truncate_to(self, offset: int) -> None:
        """Drop everything from offset on, durably; offset is where a batch begins."""
        assert self.log_start_offset <= offset
        self._recent.truncate_to(offset)
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            self._remove_segments([self._segments.pop()])
        self._segments[-1].truncate_to(offset)

    def _entry_at(self, offset: int) -> BatchEntry:
        for segment in self._segments:
            for entry in segment.entries:
                if entry.base_offset <= offset < entry.end_offset:
                    return entry
        raise MetadataLogError(f"{self._directory}: no record at offset {offset}")

    # ---- snapshots

    def latest_snapshot_id(self) -> SnapshotId | None:
        """The newest complete snapshot."""
        return self._snapshots.latest

    def read_snapshot(self, snapshot_id: SnapshotId) -> list[bytes]:
        """Return the record values of a snapshot. Raises MetadataLogError when it is not whole."""
        return self._snapshots.read(snapshot_id)

    def read_snapshot_chunk(
        self, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int] | None:
        """Return a part of a snapshot's file, and the file's size; None: no such snapshot."""
        return self._snapshots.read_chunk(snapshot_id, position, max_bytes)

    def write_snapshot(
        self, snapshot_id: SnapshotId, values: Iterable[bytes], last_timestamp_ms: int
    ) -> None:
        """Write a snapshot durably; it counts from the moment it has its name. Any thread."""
        self._snapshots.write(snapshot_id, values, last_timestamp_ms)

    def clean_before(self, snapshot_id: SnapshotId) -> None:
        """Let the log start at a snapshot; delete older snapshots and whole segments below it.

        The newest segment is closed, so that the next snapshot can delete it.
        """
        assert snapshot_id in self._snapshots
        self.log_start_offset = max(self.log_start_offset, snapshot_id.end_offset)
        self._snapshots.remove_before(snapshot_id)
        self.roll()
        while len(self._segments) > 1 and self._segments[0].end_offset <= self.log_start_offset:
            self._remove_segments([self._segments.pop(0)])

    def reset_to(self, snapshot_id: SnapshotId) -> None:
        """Drop the log, which goes on from a snapshot that is written already."""
        assert snapshot_id in self._snapshots
        self._snapshots.remove_before(snapshot_id)
        # Newest first: what a crash leaves is a beginning of the old log, which opening drops.
        self._remove_segments(self._segments[::-1])
        self._segments = []
        self._recent = RecentBatches()
        self.log_start_offset = snapshot_id.end_offset
        self._add_segment(snapshot_id.end_offset)

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()
