"""Which checkpoint files are to be written, and that the newest content counts."""

from __future__ import annotations

from kraftrio.broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)
from kraftrio.broker.log.manager.checkpoint_writer import CheckpointWriter
from kraftrio.broker.log.manager.log_dirs import LogDirs
from kraftrio.broker.log.manager.log_registry import LogRegistry
from tests.support.logs import TOPIC_PARTITION, LogContext


class Writer:
    """The checkpoints of one directory with one log of three records."""

    def __init__(self) -> None:
        self.context = LogContext()
        self.log = self.context.log
        self.dirs = LogDirs(self.context.fs, ["/logs"], lambda: bytes(16))
        self.dirs.open("cluster", 1, {})
        registry = LogRegistry()
        registry.add(self.log, self.dirs[0])
        self.checkpoints = CheckpointWriter(self.dirs, registry)
        self.context.append(b"a", b"b", b"c")

    def names(self) -> list[str]:
        return [stale.name for stale in self.checkpoints.stale()]

    def write_all(self) -> None:
        for stale in self.checkpoints.stale():
            self.checkpoints.write(stale)


def test_files_are_written_as_the_logs_change() -> None:
    """Starts first: a recovery point without its start would bring deleted records back."""
    writer = Writer()
    assert writer.names() == [RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT]
    writer.write_all()
    assert writer.names() == []
    writer.log.flush()
    writer.context.commit()
    writer.log.delete_records_before(2)
    assert writer.names() == [
        LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT,
    ]  # fmt: skip
    writer.write_all()
    held = writer.dirs[0].checkpoints
    assert held.offset(LOG_START_CHECKPOINT, TOPIC_PARTITION) == 2
    assert held.offset(RECOVERY_POINT_CHECKPOINT, TOPIC_PARTITION) == 3


def test_a_late_write_of_older_content_is_dropped() -> None:
    writer = Writer()
    writer.write_all()
    writer.log.flush()
    (late,) = writer.checkpoints.stale()
    writer.context.append(b"d")
    writer.log.flush()
    writer.write_all()
    writer.checkpoints.write(late)
    held = writer.dirs[0].checkpoints
    assert held.offset(RECOVERY_POINT_CHECKPOINT, TOPIC_PARTITION) == 4


def test_cleaner_offsets_are_the_cleaners() -> None:
    writer = Writer()
    writer.log.first_dirty_offset = 2
    assert CLEANER_CHECKPOINT not in writer.names()
    (stale,) = writer.checkpoints.stale_cleaner_offsets()
    assert (stale.name, stale.offsets) == (CLEANER_CHECKPOINT, {TOPIC_PARTITION: 2})
    writer.checkpoints.write(stale)
    assert writer.checkpoints.stale_cleaner_offsets() == []
