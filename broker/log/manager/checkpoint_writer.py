"""Which offset checkpoints differ from what the logs have, and writing them.

Owned by `log_manager`. The owner's timers ask for what is stale on the event loop and write each
file in a worker thread; an OSError of `write` is the directory's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftrio.broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_dirs import LogDirs
from kraftrio.broker.log.manager.log_registry import LogRegistry
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.primitives import TopicPartition


class StaleCheckpoint(NamedTuple):
    """A checkpoint file that does not hold what the logs have."""

    log_dir: LogDir
    name: str
    offsets: dict[TopicPartition, int]
    number: int  # of a later one is larger


class CheckpointWriter:
    """See the module."""

    def __init__(self, dirs: LogDirs, registry: LogRegistry) -> None:
        self._dirs = dirs
        self._registry = registry

    def stale(self) -> list[StaleCheckpoint]:
        """The files of recovery points, high watermarks and log starts, in the order to write."""
        stale: list[StaleCheckpoint] = []
        for log_dir in self._dirs.online():
            logs = self._registry.in_dir(log_dir)
            starts = {
                topic_partition: log.log_start_offset
                for topic_partition, log in logs.items()
                if log.log_start_offset > log.segments.first_base_offset
            }
            recovery_points = {key: log.recovery_point for key, log in logs.items()}
            high_watermarks = {key: log.high_watermark for key, log in logs.items()}
            # Starts first: a recovery point without its start would bring deleted records back.
            stale += self._compared(log_dir, LOG_START_CHECKPOINT, starts)
            stale += self._compared(log_dir, RECOVERY_POINT_CHECKPOINT, recovery_points)
            stale += self._compared(log_dir, REPLICATION_CHECKPOINT, high_watermarks)
        return stale

    def stale_cleaner_offsets(self) -> list[StaleCheckpoint]:
        """The files of how far logs are compacted.

        Only the cleaner has them written, when it is done.
        """
        stale: list[StaleCheckpoint] = []
        for log_dir in self._dirs.online():
            offsets = {
                topic_partition: log.first_dirty_offset
                for topic_partition, log in self._registry.in_dir(log_dir).items()
                if log.first_dirty_offset > 0
            }
            stale += self._compared(log_dir, CLEANER_CHECKPOINT, offsets)
        return stale

    def lower_cleaner_offset(self, log: PartitionLog) -> None:
        """What is written beyond the end of a truncated log is not compacted, nor after a restart.

        Raises OSError.
        """
        log_dir = self._registry.dir_of(log.topic_partition)
        if log_dir is not None:
            log_dir.checkpoints.lower(
                CLEANER_CHECKPOINT, log.topic_partition, log.first_dirty_offset
            )

    def _compared(
        self, log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]
    ) -> Iterator[StaleCheckpoint]:
        if log_dir.checkpoints.is_stale(name, offsets):
            yield StaleCheckpoint(log_dir, name, offsets, log_dir.checkpoints.next_number())

    def write(self, checkpoint: StaleCheckpoint) -> None:
        """Save one file that is stale. Raises OSError. Any thread."""
        log_dir, name, offsets, number = checkpoint
        log_dir.checkpoints.write(name, offsets, number)
        self._dirs.on_written(log_dir)
