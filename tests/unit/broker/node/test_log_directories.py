"""What DescribeLogDirs reports of a broker's log directories."""

from __future__ import annotations

import errno
from pathlib import Path

from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.node.log_directories import LogDirectories
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import load_all


def test_a_log_directory_that_fails_is_described_with_its_error(tmp_path: Path) -> None:
    """One that is offline, and one that is gone though nobody has met that yet."""
    paths = [tmp_path / name for name in ("good", "failed", "gone")]
    manager = LogManager(OsFileSystem(), list(map(str, paths)))
    load_all(manager, manager.start("AAAAAAAAAAAAAAAAAAAAAQ", 1), 0)
    for number in range(3):
        manager.create_log(TopicPartition("t", number), b"1" * 16, LogConfig(), 0)
    manager.fail_dir(manager.dirs[1], OSError(errno.EIO, "broken"))
    paths[2].rename(tmp_path / "elsewhere")
    good, failed, gone = LogDirectories(manager, lambda _: {}).log_directories()
    assert (good.path, list(good.partitions), good.error) == (str(paths[0]), [("t", 0)], None)
    assert 0 < good.usable_bytes <= good.total_bytes
    for one in (failed, gone):
        assert one.error is not None
        assert one.error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not one.partitions
    manager.release()
