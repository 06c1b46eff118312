"""The snapshots of the metadata log: `<offset>-<epoch>.checkpoint`, header and footer (KIP-630).

A snapshot is written aside, synced, and only then gets its name. `metadata_log` owns them; `write`
may run in a worker thread while the loop reads.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.metadata.names import (
    PART_SUFFIX,
    MetadataLogError,
    parse_snapshot_file_name,
    snapshot_file_name,
)
from kraftrio.kraft_meta.quorum.log_batches import parse_snapshot, snapshot_batches
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.wire.errors import KafkaError


class SnapshotFiles:
    """Which snapshots a directory has; writes, reads and removes them."""

    def __init__(self, fs: FileSystem, directory: str, names: Iterable[str]) -> None:
        self._fs = fs
        self._directory = directory
        found = (parse_snapshot_file_name(name) for name in names)
        self._ids = sorted(snapshot_id for snapshot_id in found if snapshot_id is not None)

    def __contains__(self, snapshot_id: SnapshotId) -> bool:
        return snapshot_id in self._ids

    @property
    def latest(self) -> SnapshotId | None:
        """The newest one."""
        return self._ids[-1] if self._ids else None

    def _path(self, snapshot_id: SnapshotId) -> str:
        return posixpath.join(self._directory, snapshot_file_name(snapshot_id))

    def read(self, snapshot_id: SnapshotId) -> list[bytes]:
        """Return the record values of a snapshot. Raises MetadataLogError when it is not whole."""
        path = self._path(snapshot_id)
        try:
            return parse_snapshot(self._fs.read_file(path)).values
        except KafkaError:
            pass
        try:
            return parse_snapshot(self._fs.read_file(path)).values  # once more
        except KafkaError as error:
            raise MetadataLogError(f"{path} is damaged: {error}") from error

    def read_chunk(
        self, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int] | None:
        """Return a part of a snapshot's file, and the file's size; None: no such snapshot."""
        if snapshot_id not in self._ids:
            return None
        file = self._fs.open(self._path(snapshot_id))
        try:
            return file.read_at(position, max_bytes), file.size_bytes()
        finally:
            file.close()

    def write(
        self, snapshot_id: SnapshotId, values: Iterable[bytes], last_timestamp_ms: int
    ) -> None:
        """Write a snapshot durably; it counts from the moment it has its name."""
        path = self._path(snapshot_id)
        part = path + PART_SUFFIX
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
        if snapshot_id not in self._ids:
            self._ids.append(snapshot_id)
            self._ids.sort()

    def remove_before(self, snapshot_id: SnapshotId) -> None:
        """Remove all older ones, the oldest first."""
        while self._ids[0] < snapshot_id:
            self._fs.remove(self._path(self._ids.pop(0)))
        self._fs.sync_directory(self._directory)
