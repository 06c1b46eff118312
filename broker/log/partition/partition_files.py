"""The small files of one partition directory: leader-epoch-checkpoint and partition.metadata.

Rules: a file is written when its content changes, without waiting for the disk; `sync` makes files
and names durable, and the log calls it before it moves its recovery point. So a new leader epoch
costs no sync on the event loop, and a power cut loses no epoch of a record that survives. `sync`
may run in a worker thread. Called by `partition_log` only.
"""

from __future__ import annotations

import posixpath
import threading

from kraftrio.broker.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    format_leader_epochs,
    format_partition_metadata,
)
from kraftrio.broker.log.files import FileSystem, write_atomically
from kraftrio.broker.log.leader_epoch_cache import LeaderEpochCache


class PartitionFiles:
    """Writes the files and remembers what is not durable yet."""

    __slots__ = (
        "_epochs",
        "_fs",
        "_is_closed",
        "_saved_epochs_version",
        "_unsynced_directory",
        "_unsynced_files",
        "_write_lock",
        "directory",
    )

    def __init__(self, fs: FileSystem, directory: str, epochs: LeaderEpochCache) -> None:
        self._fs = fs
        self.directory = directory
        self._epochs = epochs
        self._write_lock = threading.Lock()
        self._is_closed = False
        self._saved_epochs_version = 0  # that of a cache that was just loaded
        self._unsynced_files = True
        self._unsynced_directory = True  # the name of the directory itself

    def save_epochs(self) -> None:
        """Write the leader epochs if they changed."""
        if self._epochs.version == self._saved_epochs_version:
            return
        with self._write_lock:
            version = self._epochs.version
            self._write(LEADER_EPOCH_CHECKPOINT, format_leader_epochs(self._epochs.entries))
            self._saved_epochs_version = version

    def record_epoch(self, epoch: int, base_offset: int) -> None:
        """Note the leader epoch of a batch that was just appended."""
        if self._epochs.assign(epoch, base_offset):
            try:
                self.save_epochs()
            except OSError:
                # The append succeeded all the same: recovery finds the epoch in the batch. The
                # next save or flush tries again.
                return

    def save_topic_id(self, topic_id: bytes) -> None:
        with self._write_lock:
            self._write(PARTITION_METADATA, format_partition_metadata(topic_id))

    def close(self) -> None:
        """Write nothing any more: the directory may soon be another log's."""
        with self._write_lock:
            self._is_closed = True

    def _write(self, name: str, data: bytes) -> None:
        if self._is_closed:
            return
        self._unsynced_files = True
        write_atomically(self._fs, f"{self.directory}/{name}", data, sync=False)

    def mark_durable(self) -> None:
        """The files were flushed by a clean stop."""
        self._unsynced_files = False
        self._unsynced_directory = False

    def sync(self) -> None:
        """Make both files, their names and the directory's durable. Any thread."""
        self.save_epochs()
        if not self._unsynced_files:
            return
        self._unsynced_files = False
        try:
            for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
                path = f"{self.directory}/{name}"
                if self._fs.exists(path):
                    file = self._fs.open(path)
                    try:
                        file.sync()
                    finally:
                        file.close()
            self._fs.sync_directory(self.directory)
            if self._unsynced_directory:
                self._fs.sync_directory(posixpath.dirname(self.directory) or ".")
                self._unsynced_directory = False
        except OSError:
            self._unsynced_files = True
            raise
