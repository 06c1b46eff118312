"""Log directories by themselves: who may use them, which work, what is logged of it."""

from __future__ import annotations

import errno

import pytest

from kraftrio.broker.log.manager.log_dirs import LogDirError, LogDirs
from tests.support.memory_files import MemoryFileSystem

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


def opened(fs: MemoryFileSystem, *paths: str, cluster_id: str = CLUSTER) -> LogDirs:
    ids = iter(range(1, 9))
    dirs = LogDirs(fs, paths, lambda: next(ids).to_bytes(16, "big"))
    dirs.open(cluster_id, 1, {})
    return dirs


def test_ids_last() -> None:
    fs = MemoryFileSystem()
    first = opened(fs, "/a", "/b")
    ids = [log_dir.directory_id for log_dir in first]
    assert len(set(ids)) == 2
    first.release()
    assert [log_dir.directory_id for log_dir in opened(fs, "/a", "/b")] == ids


def test_a_directory_is_of_one_process_and_one_cluster() -> None:
    fs = MemoryFileSystem()
    first = opened(fs, "/a")
    with pytest.raises(LogDirError, match="is locked"):
        opened(fs, "/a")
    first.release()
    with pytest.raises(LogDirError, match="belongs to cluster"):
        opened(fs, "/a", cluster_id="other")


def test_meta_properties_wait_for_the_cluster() -> None:
    fs = MemoryFileSystem()
    dirs = opened(fs, "/a", cluster_id="")
    assert not fs.exists("/a/meta.properties")
    dirs.format(CLUSTER, 1)
    assert CLUSTER.encode() in fs.read_file("/a/meta.properties")


def test_one_that_fails_is_offline_once() -> None:
    dirs = opened(MemoryFileSystem(), "/a", "/b")
    error = OSError(errno.EIO, "injected")
    assert dirs.fail(dirs[0], error)
    assert not dirs.fail(dirs[0], error)
    assert dirs.online() == [dirs[1]]
    assert dirs.offline_ids() == [dirs[0].directory_id]
    assert not dirs.has_online(dirs[0].directory_id)
    assert dirs.describe_failures() == "/a: injected"
    dirs.check_usable()
    dirs.fail(dirs[1], error)
    with pytest.raises(LogDirError, match="no log directory can be used"):
        dirs.check_usable()


def test_lack_of_room_is_logged_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    dirs = opened(MemoryFileSystem(), "/a")
    for _ in range(2):
        dirs.on_no_room(dirs[0], OSError(errno.ENOSPC, "injected"))
    dirs.on_written(dirs[0])
    dirs.on_written(dirs[0])
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_the_probe_leaves_nothing_behind() -> None:
    fs = MemoryFileSystem()
    dirs = opened(fs, "/a")
    before = fs.list_directory("/a")
    dirs.probe(dirs[0])
    fs.fail("write", "/a/", errno.ENOSPC)
    with pytest.raises(OSError, match="injected"):
        dirs.probe(dirs[0])
    assert fs.list_directory("/a") == before


def test_the_directory_of_a_folder() -> None:
    dirs = opened(MemoryFileSystem(), "/a", "/a/b")
    assert dirs.holding("/a/b/topic-0") is dirs[1]
    assert dirs.holding("/a/topic-0") is dirs[0]
    assert dirs.holding("/c/topic-0") is None


def test_the_mark_of_a_clean_stop_counts_once() -> None:
    fs = MemoryFileSystem()
    for expected in (False, True, False):
        dirs = opened(fs, "/a")
        assert dirs[0].clean_shutdown is expected
        if not expected:
            dirs.mark_clean(dirs[0], 3)
        dirs.release()
        if expected:
            assert dirs[0].previous_broker_epoch == 3
