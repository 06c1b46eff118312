"""The metadata log on disk: segments, snapshots and the quorum-state file of
`__cluster_metadata-0`.

Owns that directory. Keeps kraft_meta's ports `ReplicatedLog` (MetadataLog) and `ElectionStateStore`
(QuorumStateFile). The files are Kafka's: `<20 digits>.log` with record batches, whose record values
are our msgpack metadata records; `<offset>-<epoch>.checkpoint` snapshots with a header and a footer
record (KIP-630); `quorum-state` as Kafka's JSON; `partition.metadata`. Rules:
1. The log starts at the end of its newest snapshot, or at 0; older bytes are leftovers.
2. Only the newest segment can have a torn tail: a segment is synced before the next one is made.
   Opening cuts the tail at the first batch that is not whole; damage elsewhere, or of bytes that
   were all written (see `_is_torn`), is `MetadataLogError`, since committed metadata would be lost
   silently. A batch that cannot be read back as it was written is `OSError`.
3. A snapshot is written aside, synced, and only then gets its name; what it makes needless is
   deleted after that, oldest first, so a crash leaves a log without holes.
4. `OSError` propagates: the node ends and recovers at its next start.
5. What opening finds is synced before it counts: a killed process may have left it unsynced.

Called by: kraft_meta's quorum service, in one thread at a time, but for `flush` and
`write_snapshot`, which may run in a worker thread while the loop reads and appends.
"""

from __future__ import annotations

import errno
import json
import posixpath
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kraftrio.broker.log.checkpoints import PARTITION_METADATA, format_partition_metadata
from kraftrio.broker.log.files import File, FileSystem, write_atomically
from kraftrio.kraft_meta.quorum.log_batches import (
    decode_batch,
    encode_batch,
    encoded,
    parse_snapshot,
    snapshot_batches,
)
from kraftrio.kraft_meta.raft.values import NO_NODE, ElectionState, LogBatch, SnapshotId
from kraftrio.wire.errors import CorruptRecordError, KafkaError
from kraftrio.wire.primitives import ZERO_UUID, uuid_from_text, uuid_to_text
from kraftrio.wire.records.batch import (
    LOG_OVERHEAD,
    MAGIC,
    iter_headers,
    iter_records,
    parse_header,
    verify_crc,
)

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
QUORUM_STATE: Final = "quorum-state"

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log\Z")
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
_LEFTOVER_SUFFIXES: Final = (".part", ".tmp")
_TAIL_BYTES: Final = 8 * 1024 * 1024
_FOREIGN_CHECK_BYTES: Final = 1 << 20
_SECTOR_BYTES: Final = 512  # what a disk writes as a whole
_FEW_BYTES: Final = 8  # a batch may well end with zeros
_MAGIC_POSITION: Final = 16
_NO_DIRECTORY: Final = uuid_to_text(ZERO_UUID)


class MetadataLogError(Exception):
    """The directory holds what no crash leaves behind: damaged or missing files."""


@dataclass(frozen=True, slots=True)
class _BatchEntry:
    """Where a batch lies in its segment."""

    base_offset: int
    end_offset: int
    epoch: int
    position: int
    size_bytes: int


@dataclass(slots=True)
class _Segment:
    """One file of the log, with all of its batches known."""

    base_offset: int
    path: str
    file: File
    size_bytes: int = 0
    entries: list[_BatchEntry] = field(default_factory=list)
    is_torn: bool = False  # behind `size_bytes` lies what is left of a write that failed

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else self.base_offset

    def write(self, data: bytes) -> None:
        """Write at the end; the caller books it."""
        self.cut_torn_tail()
        try:
            self.file.write_at(data, self.size_bytes)
        except OSError:
            self.is_torn = True
            raise

    def cut_torn_tail(self) -> None:
        """Let the file end with its last batch, whatever a write that failed left."""
        if self.is_torn:
            self.file.truncate(self.size_bytes)
            self.is_torn = False


class _Tail:
    """The newest batches as they were appended, so that followers that keep up cost no reading."""

    def __init__(self) -> None:
        self._batches: deque[tuple[LogBatch, int]] = deque()
        self._size_bytes = 0

    def append(self, batch: LogBatch, size_bytes: int) -> None:
        self._batches.append((batch, size_bytes))
        self._size_bytes += size_bytes
        while self._size_bytes > _TAIL_BYTES:
            self._size_bytes -= self._batches.popleft()[1]

    def truncate_to(self, offset: int) -> None:
        while self._batches and self._batches[-1][0].end_offset > offset:
            self._size_bytes -= self._batches.pop()[1]

    def read(self, start_offset: int, max_offset: int, max_bytes: int) -> list[LogBatch] | None:
        """Return batches as MetadataLog.read does, None when they begin before this tail."""
        if not self._batches or start_offset < self._batches[0][0].base_offset:
            return None
        found: list[LogBatch] = []
        size = 0
        for batch, _size_bytes in reversed(self._batches):
            if batch.end_offset <= start_offset:
                break
            if batch.base_offset < max_offset:
                found.append(batch)
        found.reverse()
        for index, batch in enumerate(found):
            size += len(encode_batch(batch))
            if index and size > max_bytes:
                return found[:index]
        return found


class MetadataLog:
    """The log and the snapshots of the metadata quorum."""

    def __init__(self, fs: FileSystem, directory: str, *, segment_bytes: int = 1 << 30) -> None:
        """Open (or make) the log in `directory`; cut a torn tail. Raises MetadataLogError."""
        self._fs = fs
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._snapshots: list[SnapshotId] = []
        self._tail = _Tail()
        self.truncated_bytes = 0
        metadata_path = posixpath.join(directory, PARTITION_METADATA)
        is_new = not fs.exists(metadata_path)
        if is_new:
            fs.make_directory(directory)
            fs.sync_directory(posixpath.dirname(directory))
        self._load_names()
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

    def _load_names(self) -> None:
        bases: list[int] = []
        for name in self._fs.list_directory(self._directory):
            if name.endswith(_LEFTOVER_SUFFIXES):
                self._fs.remove(posixpath.join(self._directory, name))
            elif (segment := _SEGMENT_NAME.match(name)) is not None:
                bases.append(int(segment[1]))
            elif (snapshot := _SNAPSHOT_NAME.match(name)) is not None:
                self._snapshots.append(SnapshotId(int(snapshot[1]), int(snapshot[2])))
        self._snapshots.sort()
        bases.sort()
        for index, base_offset in enumerate(bases):
            if self._segments and self._segments[-1].end_offset != base_offset:
                raise MetadataLogError(
                    f"{self._segments[-1].path} ends at {self._segments[-1].end_offset}, "
                    f"but the next segment starts at {base_offset}"
                )
            self._segments.append(self._open_segment(base_offset, index == len(bases) - 1))

    def _open_segment(self, base_offset: int, is_last: bool) -> _Segment:
        path = posixpath.join(self._directory, f"{base_offset:020d}.log")
        file = self._fs.open(path)
        segment = _Segment(base_offset, path, file)
        size = file.size_bytes()
        entries = list(_scan(file.read_at(0, size), base_offset))
        if not entries or entries[-1].position + entries[-1].size_bytes < size:
            data = file.read_at(0, size)  # again, before anything is cut for it
            entries = list(_scan(data, base_offset))
        segment.entries = entries
        if entries:
            segment.size_bytes = entries[-1].position + entries[-1].size_bytes
        if segment.size_bytes < size:
            if not is_last or not _is_torn(data, segment.size_bytes):
                raise MetadataLogError(f"{path} is damaged at position {segment.size_bytes}")
            self.truncated_bytes = size - segment.size_bytes
            file.truncate(segment.size_bytes)
            file.sync()
        return segment

    def _continues_from(self, snapshot_id: SnapshotId | None) -> bool:
        """Tell whether the segments go on where the newest snapshot ends (rule 1)."""
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
        path = posixpath.join(self._directory, f"{base_offset:020d}.log")
        file = self._fs.open(path, create=True)
        self._fs.sync_directory(self._directory)
        self._segments.append(_Segment(base_offset, path, file))

    def _remove_segments(self, segments: Sequence[_Segment]) -> None:
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
            segment = self._segments[-1]
            batch = encoded(batch)
            data = encode_batch(batch)
            segment.write(data)
            segment.entries.append(
                _BatchEntry(
                    batch.base_offset, batch.end_offset, batch.epoch, segment.size_bytes, len(data)
                )
            )
            segment.size_bytes += len(data)
            self._tail.append(batch, len(data))
            written += len(data)
        return written

    def flush(self) -> None:
        """Make everything appended so far durable."""
        self._segments[-1].file.sync()

    def roll(self) -> None:
        """Start a new segment, unless the newest one is empty."""
        if self._segments[-1].entries:
            self._segments[-1].cut_torn_tail()
            self.flush()
            self._add_segment(self.log_end_offset)

    def read(self, start_offset: int, max_offset: int, max_bytes: int) -> list[LogBatch]:
        """Return whole batches from the one with start_offset on, below max_offset."""
        assert start_offset >= self.log_start_offset
        recent = self._tail.read(start_offset, max_offset, max_bytes)
        if recent is not None:
            return recent
        batches: list[LogBatch] = []
        size = 0
        bases = [segment.base_offset for segment in self._segments]
        for segment in self._segments[max(bisect_right(bases, start_offset) - 1, 0) :]:
            chosen: list[_BatchEntry] = []
            for entry in segment.entries:
                if entry.end_offset <= start_offset:
                    continue
                if entry.base_offset >= max_offset:
                    break
                if (batches or chosen) and size + entry.size_bytes > max_bytes:
                    return batches + _read_batches(segment, chosen)
                chosen.append(entry)
                size += entry.size_bytes
            batches += _read_batches(segment, chosen)
        return batches

    def truncate_to(self, offset: int) -> None:
        """Drop everything from offset on, durably; offset is where a batch begins."""
        assert self.log_start_offset <= offset
        self._tail.truncate_to(offset)
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            self._remove_segments([self._segments.pop()])
        segment = self._segments[-1]
        while segment.entries and segment.entries[-1].end_offset > offset:
            segment.size_bytes = segment.entries.pop().position
        assert segment.end_offset == offset, "a log is cut between batches"
        segment.file.truncate(segment.size_bytes)
        segment.file.sync()

    def _entry_at(self, offset: int) -> _BatchEntry:
        for segment in self._segments:
            for entry in segment.entries:
                if entry.base_offset <= offset < entry.end_offset:
                    return entry
        raise MetadataLogError(f"{self._directory}: no record at offset {offset}")

    # ---- snapshots

    def latest_snapshot_id(self) -> SnapshotId | None:
        return self._snapshots[-1] if self._snapshots else None

    def _snapshot_path(self, snapshot_id: SnapshotId) -> str:
        name = f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}.checkpoint"
        return posixpath.join(self._directory, name)

    def read_snapshot(self, snapshot_id: SnapshotId) -> list[bytes]:
        """Return the record values of a snapshot. Raises MetadataLogError when it is not whole."""
        path = self._snapshot_path(snapshot_id)
        try:
            return parse_snapshot(self._fs.read_file(path)).values
        except KafkaError:
            pass
        try:
            return parse_snapshot(self._fs.read_file(path)).values  # once more
        except KafkaError as error:
            raise MetadataLogError(f"{path} is damaged: {error}") from error

    def read_snapshot_chunk(
        self, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int] | None:
        """Return bytes of a snapshot's file from a position on, and its size; None: none such."""
        if snapshot_id not in self._snapshots:
            return None
        file = self._fs.open(self._snapshot_path(snapshot_id))
        try:
            return file.read_at(position, max_bytes), file.size_bytes()
        finally:
            file.close()

    def write_snapshot(
        self, snapshot_id: SnapshotId, values: Iterable[bytes], last_timestamp_ms: int
    ) -> None:
        """Write a snapshot durably; it counts from the moment it has its name (rule 3)."""
        path = self._snapshot_path(snapshot_id)
        part = path + ".part"
        file = self._fs.open(part, create=True)
        try:
            file.truncate(0)
            position = 0
            for data in snapshot_batches(snapshot_id, values, last_timestamp_ms):
                file.write_at(data, position)
                position += len(data)
            file.sync()
        except OSError:
            self._fs.remove(part)  # it may be what fills the disk
            raise
        finally:
            file.close()
        self._fs.rename(part, path)
        self._fs.sync_directory(self._directory)
        if snapshot_id not in self._snapshots:
            self._snapshots.append(snapshot_id)
            self._snapshots.sort()

    def clean_before(self, snapshot_id: SnapshotId) -> None:
        """Let the log start at a snapshot; delete older snapshots and whole segments below it.

        The newest segment is closed, so that the next snapshot can delete it.
        """
        assert snapshot_id in self._snapshots
        self.log_start_offset = max(self.log_start_offset, snapshot_id.end_offset)
        self._forget_snapshots_before(snapshot_id)
        self.roll()
        while len(self._segments) > 1 and self._segments[0].end_offset <= self.log_start_offset:
            self._remove_segments([self._segments.pop(0)])

    def reset_to(self, snapshot_id: SnapshotId) -> None:
        """Drop the log, which goes on from a snapshot that is written already."""
        assert snapshot_id in self._snapshots
        self._forget_snapshots_before(snapshot_id)
        # Newest first: what a crash leaves is a beginning of the old log, which opening drops.
        self._remove_segments(self._segments[::-1])
        self._segments = []
        self._tail = _Tail()
        self.log_start_offset = snapshot_id.end_offset
        self._add_segment(snapshot_id.end_offset)

    def _forget_snapshots_before(self, snapshot_id: SnapshotId) -> None:
        while self._snapshots[0] < snapshot_id:
            self._fs.remove(self._snapshot_path(self._snapshots.pop(0)))
        self._fs.sync_directory(self._directory)

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()


def _scan(data: bytes, base_offset: int) -> Iterator[_BatchEntry]:
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
        yield _BatchEntry(header.base_offset, offset, epoch, position, header.size_bytes)
        position += header.size_bytes


def _is_torn(data: bytes, position: int) -> bool:
    """Tell whether what is not whole from `position` on is what a power cut leaves of appends.

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
        start += _MAGIC_POSITION  # offset and epoch before it begin with zeros
    while start < end:
        stop = min(start - start % _SECTOR_BYTES + _SECTOR_BYTES, end)
        if not any(data[start:stop]) and (stop - start >= _FEW_BYTES or not is_followed):
            return True
        start = stop
    return False


def _whole_batch_follows(data: bytes, position: int) -> bool:
    """Look for a batch whose checksum is right anywhere behind `position`."""
    view = memoryview(data)
    at = data.find(MAGIC, position + 1 + _MAGIC_POSITION)
    while at >= 0:
        try:
            verify_crc(view, parse_header(view, at - _MAGIC_POSITION))
        except KafkaError:
            at = data.find(MAGIC, at + 1)
        else:
            return True
    return False


def _read_batches(segment: _Segment, entries: Sequence[_BatchEntry]) -> list[LogBatch]:
    """Read batches back; OSError: they are not what was written, read twice."""
    if not entries:
        return []
    try:
        return _decode_batches(segment, entries)
    except KafkaError:
        pass
    try:
        return _decode_batches(segment, entries)
    except KafkaError as error:
        raise OSError(errno.EIO, f"damaged: {error}", segment.path) from error


def _decode_batches(segment: _Segment, entries: Sequence[_BatchEntry]) -> list[LogBatch]:
    start, last = entries[0].position, entries[-1]
    data = segment.file.read_at(start, last.position + last.size_bytes - start)
    batches = []
    for entry in entries:
        batch = decode_batch(data, parse_header(data, entry.position - start))
        found = (batch.base_offset, batch.end_offset, batch.epoch)
        if found != (entry.base_offset, entry.end_offset, entry.epoch):
            raise CorruptRecordError(f"{found} at position {entry.position}")
        batches.append(batch)
    return batches


def holds_foreign_records(fs: FileSystem, directory: str) -> bool:
    """Whether a metadata log or snapshot is there whose records are not ours (read only)."""
    if not fs.is_directory(directory):
        return False
    for name in fs.list_directory(directory):
        if _SEGMENT_NAME.match(name) or _SNAPSHOT_NAME.match(name):
            file = fs.open(posixpath.join(directory, name))
            try:
                data = file.read_at(0, _FOREIGN_CHECK_BYTES)
            finally:
                file.close()
            if _first_record_is_foreign(data):
                return True
    return False


def _first_record_is_foreign(data: bytes) -> bool:
    try:
        for header in iter_headers(data, allow_partial=True):
            if header.is_control:
                continue
            verify_crc(data, header)
            for record in iter_records(data, header):
                # Kafka's values begin with their frame version, ours are msgpack arrays.
                return (record.value or b"").startswith(b"\x01")
    except KafkaError:
        return False  # damaged: opening the log tells where
    return False


class QuorumStateFile:
    """The election state as Kafka's quorum-state file, in a directory that MetadataLog has made.

    Ours has two fields more: whether the voter may be believed, and the log directory that this was
    written for. A write is durable when it returns.
    """

    def __init__(self, fs: FileSystem, directory: str, directory_id: bytes = ZERO_UUID) -> None:
        self._fs = fs
        self._path = posixpath.join(directory, QUORUM_STATE)
        self._directory_id = directory_id

    def read(self) -> ElectionState | None:
        """Return what was stored, None for a new node. Raises MetadataLogError.

        What was written for another log directory proves nothing here (voter_memory.py).
        """
        found = self._read()
        if found is None:
            return None
        state, directory_id = found
        if directory_id not in (None, self._directory_id):
            return replace(state, is_proven=False)
        return state

    def directory_id(self) -> bytes | None:
        """Return the log directory that the state was written for, None: not known."""
        found = self._read()
        return None if found is None else found[1]

    def _read(self) -> tuple[ElectionState, bytes | None] | None:
        try:
            data = self._fs.read_file(self._path)
        except FileNotFoundError:
            return None
        try:
            content = json.loads(data)
            is_proven = content.get("isProven")
            state = ElectionState(
                epoch=int(content["leaderEpoch"]),
                leader_id=int(content.get("leaderId", NO_NODE)),
                voted_id=int(content.get("votedId", NO_NODE)),
                is_proven=None if is_proven is None else bool(is_proven),
                committed_offset=int(content.get("appliedOffset", 0)),
            )
            directory_id = uuid_from_text(content.get("directoryId") or _NO_DIRECTORY)
            return state, None if directory_id == ZERO_UUID else directory_id
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MetadataLogError(f"{self._path} is damaged: {error!r}") from error

    def write(self, state: ElectionState, voter_ids: Sequence[int]) -> None:
        """Replace the file atomically and durably."""
        content = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": state.committed_offset,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "isProven": state.is_proven,
            "directoryId": uuid_to_text(self._directory_id),
            "data_version": 0,
        }
        data = json.dumps(content, separators=(",", ":")).encode()
        write_atomically(self._fs, self._path, data)
