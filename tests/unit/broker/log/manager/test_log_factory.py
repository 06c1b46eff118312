"""Making the folder of a log, whatever an earlier topic of that name left."""

from __future__ import annotations

import errno

import pytest

from kraftrio.broker.log.checkpoints import RECOVERY_POINT_CHECKPOINT, read_topic_id
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_factory import LogFactory
from kraftrio.broker.log.manager.offset_checkpoints import OffsetCheckpoints
from kraftrio.broker.log.manager.removed_logs import RemovedLogs
from kraftrio.broker.log.partition.log_parts import LogResources
from kraftrio.broker.log.partition.partition_log import PartitionLog
from tests.support.logs import DIRECTORY, NOW_MS, TOPIC_ID, TOPIC_PARTITION, LogContext
from tests.support.memory_files import MemoryFileSystem

OTHER_ID = bytes(15) + b"\x09"


class Factory:
    def __init__(self, fs: MemoryFileSystem) -> None:
        fs.make_directory("/logs")
        self.log_dir = LogDir("/logs", OffsetCheckpoints(fs, "/logs"))
        self.factory = LogFactory(
            LogResources(fs, producer_id_expiration_ms=5000), RemovedLogs(fs), lambda: bytes(16)
        )

    def create(self, topic_id: bytes) -> PartitionLog:
        return self.factory.create(self.log_dir, TOPIC_PARTITION, topic_id, LogConfig(), NOW_MS)


def test_a_new_log_has_its_id_and_the_brokers_settings() -> None:
    fs = MemoryFileSystem()
    log = Factory(fs).create(TOPIC_ID)
    assert (log.directory, log.log_end_offset) == (DIRECTORY, 0)
    assert read_topic_id(fs, DIRECTORY) == TOPIC_ID
    assert log.producer_state.producer_id_expiration_ms == 5000


def test_nothing_of_another_topic_is_taken_over() -> None:
    """Neither its folder, which is kept, nor its line in a checkpoint."""
    context = LogContext()
    context.append(b"precious")
    context.log.close()
    factory = Factory(context.fs)
    checkpoints = factory.log_dir.checkpoints
    checkpoints.write(RECOVERY_POINT_CHECKPOINT, {TOPIC_PARTITION: 1}, checkpoints.next_number())
    log = factory.create(OTHER_ID)
    assert (log.log_end_offset, log.topic_id) == (0, OTHER_ID)
    assert checkpoints.offset(RECOVERY_POINT_CHECKPOINT, TOPIC_PARTITION) == 0
    assert read_topic_id(context.fs, f"/logs/topic-0.{bytes(16).hex()}-stray") == TOPIC_ID


def test_a_folder_that_could_not_be_filled_is_removed() -> None:
    fs = MemoryFileSystem()
    factory = Factory(fs)
    fs.fail("open", ".log", errno.ENOSPC)
    with pytest.raises(OSError, match="injected"):
        factory.create(TOPIC_ID)
    assert not fs.is_directory(DIRECTORY)
