"""The offset checkpoints of one log directory: recovery points, log starts, high watermarks and how
far logs are compacted, each in a file of its own that names all partitions of the directory.

Owns: `OffsetCheckpoints`, which knows what the files hold. Rules:
1. A file is written when its content changes, atomically; of two writes that overlap (one of them
   in a worker thread) the one of the newer content counts.
2. The files name partitions without their topic's id. So a new log begins by `forget`: an entry of
   an earlier topic of that name would let the next start truncate the new log, or start it too
   late.

Called by: log_manager.py, which says what the logs have.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Mapping
from typing import TypeAlias

from kraftrio.broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CheckpointError,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets
from kraftrio.wire.primitives import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, int]

# Starts first: a recovery point without its start would bring deleted records back.
CHECKPOINTS = (
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CLEANER_CHECKPOINT,
)


class OffsetCheckpoints:
    """See the module."""

    __slots__ = ("_directory", "_fs", "_held", "_lock", "_newest", "_written")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._held: dict[str, Offsets] = {name: {} for name in CHECKPOINTS}
        self._lock = threading.Lock()
        self._newest = 0  # counts what was to be written
        self._written = dict.fromkeys(CHECKPOINTS, 0)

    def path(self, name: str) -> str:
        return posixpath.join(self._directory, name)

    def read(self) -> list[tuple[str, CheckpointError]]:
        """Read the files; those that are damaged count as empty, and are returned."""
        damaged = []
        for name in CHECKPOINTS:
            try:
                self._held[name] = read_offset_checkpoint(self._fs, self.path(name))
            except CheckpointError as error:
                damaged.append((name, error))
        return damaged

    def offset(self, name: str, topic_partition: TopicPartition) -> int:
        """What a file holds for a partition, 0 if nothing."""
        return self._held[name].get(topic_partition, 0)

    def of(self, topic_partition: TopicPartition) -> CheckpointedOffsets:
        """What the files say of a partition's log."""
        return CheckpointedOffsets(
            log_start_offset=self.offset(LOG_START_CHECKPOINT, topic_partition),
            recovery_point=self._held[RECOVERY_POINT_CHECKPOINT].get(topic_partition),
            high_watermark=self.offset(REPLICATION_CHECKPOINT, topic_partition),
            first_dirty_offset=self.offset(CLEANER_CHECKPOINT, topic_partition),
        )

    def lower(self, name: str, topic_partition: TopicPartition, offset: int) -> None:
        """Take a partition's entry in a file down to `offset`. Raises OSError."""
        if self.offset(name, topic_partition) > offset:
            self.write(name, {**self._held[name], topic_partition: offset}, self.next_number())

    def is_stale(self, name: str, offsets: Offsets) -> bool:
        """Whether a file does not hold just these."""
        return self._held[name] != offsets

    def next_number(self) -> int:
        """The number of what is now to be written, for `write`."""
        self._newest += 1
        return self._newest

    def write(self, name: str, offsets: Offsets, number: int) -> None:
        """Save one file, unless newer content was since. Raises OSError. Any thread."""
        with self._lock:
            if number <= self._written[name]:
                return
            write_offset_checkpoint(self._fs, self.path(name), offsets)
            self._held[name] = offsets
            self._written[name] = number

    def forget(self, topic_partition: TopicPartition) -> None:
        """Take a partition out of all files that name it. Raises OSError."""
        for name in CHECKPOINTS:
            if topic_partition in self._held[name]:
                rest = {key: at for key, at in self._held[name].items() if key != topic_partition}
                self.write(name, rest, self.next_number())
