"""Log directories: ownership, loading, creation, deletion, checkpoints, failures, clean stop."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_dirs import LogDirError
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import NOW_MS, batch, load_all
from tests.support.memory_files import MemoryFileSystem

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
ID, OTHER_ID = b"1" * 16, b"2" * 16
TP = TopicPartition("topic", 0)


class Node:
    """A broker's log manager over several lives."""

    def __init__(self, *paths: str) -> None:
        self.fs = MemoryFileSystem()
        self.paths = paths or ("/a",)
        self._ids = itertools.count(1)
        self.now_ms = NOW_MS
        self.manager = self.start()

    def start(self) -> LogManager:
        self.manager = LogManager(
            self.fs, self.paths, new_id=lambda: next(self._ids).to_bytes(16, "big")
        )
        load_all(self.manager, self.manager.start(CLUSTER, 1), self.now_ms)
        return self.manager

    def kill(self) -> LogManager:
        self.manager.release()
        return self.start()

    def stop(self) -> LogManager:
        self.manager.close(broker_epoch=5)
        return self.start()

    def create(self, tp: TopicPartition = TP, topic_id: bytes = ID, **config: Any) -> PartitionLog:
        return self.manager.get_or_create_log(
            tp,
            topic_id,
            LogConfig(**config),
            self.now_ms,
        )

    def append(self, log: PartitionLog, *values: bytes) -> None:
        log.append_as_leader(batch(*values), 0, self.now_ms)
        log.update_high_watermark(log.log_end_offset)

    def log(self, tp: TopicPartition = TP) -> PartitionLog:
        log = self.manager.get_log(tp)
        assert log is not None
        return log


def test_fresh_directory_gets_an_owner() -> None:
    node = Node()
    assert b"cluster.id=" + CLUSTER.encode() in node.fs.read_file("/a/meta.properties")
    first = node.manager.dirs[0].directory_id
    assert node.stop().dirs[0].directory_id == first


@pytest.mark.parametrize(("cluster", "node_id"), [("other", 1), (CLUSTER, 2)])
def test_directory_of_another_is_refused(cluster: str, node_id: int) -> None:
    node = Node()
    node.manager.close()
    with pytest.raises(LogDirError, match="belongs to"):
        LogManager(node.fs, ["/a"]).start(cluster, node_id)


def test_garbled_owner_is_refused() -> None:
    node = Node()
    node.manager.close()
    node.fs.open("/a/meta.properties").truncate(3)
    with pytest.raises(LogDirError):
        LogManager(node.fs, ["/a"]).start(CLUSTER, 1)


def test_second_process_is_refused() -> None:
    node = Node()
    with pytest.raises(LogDirError, match="locked"):
        LogManager(node.fs, ["/a"]).start(CLUSTER, 1)


def test_logs_come_back_after_a_clean_stop() -> None:
    """Ids, offsets and watermarks; nothing is checked again."""
    node = Node()
    node.append(node.create(), b"a", b"b")
    node.append(node.create(TopicPartition("topic", 1)), b"c")
    node.log().delete_records_before(1)
    node.stop()
    assert node.manager.dirs[0].clean_shutdown
    assert node.manager.dirs[0].previous_broker_epoch == 5
    log = node.log()
    assert (log.topic_id, log.log_start_offset, log.high_watermark, log.log_end_offset) == (
        ID, 1, 2, 2,
    )  # fmt: skip
    assert log.recovery_point == 2
    assert len(list(node.manager.logs())) == 2


def test_kill_is_no_clean_stop() -> None:
    """The marker is gone once loading began, so two kills in a row are both noticed."""
    node = Node()
    node.append(node.create(), b"a")
    node.manager.close()
    manager = LogManager(node.fs, ["/a"])
    pending = manager.start(CLUSTER, 1)
    assert manager.dirs[0].clean_shutdown
    assert len(pending) == 1
    manager.release()  # died while loading
    node.start()
    assert not node.manager.dirs[0].clean_shutdown
    assert node.log().log_end_offset == 1


def test_stop_before_loading_was_done_is_not_clean() -> None:
    node = Node()
    node.append(node.create(), b"a")
    node.manager.close()
    manager = LogManager(node.fs, ["/a"])
    manager.start(CLUSTER, 1)
    manager.close()
    assert not node.fs.exists("/a/.kafka_cleanshutdown")


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "replication-offset-checkpoint",
     "log-start-offset-checkpoint"],
)  # fmt: skip
@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"0\n9\n"])
def test_garbled_checkpoint_loses_no_records(name: str, content: bytes) -> None:
    """It is ignored with a warning, and written again."""
    node = Node()
    node.append(node.create(), b"a", b"b")
    node.manager.close()
    file = node.fs.open(f"/a/{name}", create=True)
    file.truncate(0)
    file.write_at(content, 0)
    node.start()
    assert node.log().log_end_offset == 2
    node.append(node.log(), b"c")
    node.stop()
    assert node.log().high_watermark == 3


@pytest.mark.parametrize(("saved", "expected"), [(0, 1), (2, 2), (9, 3)])
def test_a_saved_high_watermark_outside_the_log_is_its_nearest_end(
    saved: int, expected: int
) -> None:
    """A crash loses records, or finds a start that went on since."""
    node = Node()
    node.append(node.create(), b"a", b"b", b"c")
    node.log().delete_records_before(1)
    node.manager.close()
    file = node.fs.open("/a/replication-offset-checkpoint", create=True)
    content = f"0\n1\ntopic 0 {saved}\n".encode()
    file.truncate(0)
    file.write_at(content, 0)
    node.start()
    log = node.log()
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, expected, 3)


def test_checkpoints_are_enough_after_a_kill() -> None:
    node = Node()
    log = node.create()
    node.append(log, b"a", b"b")
    log.flush()
    log.delete_records_before(1)
    node.manager.write_checkpoints()
    node.append(log, b"c")
    found = node.kill().get_log(TP)
    assert found is not None
    log = found
    assert (log.recovery_point, log.log_start_offset, log.high_watermark) == (2, 1, 2)
    assert log.log_end_offset == 3


def test_a_cut_below_the_recovery_point_is_saved_at_once() -> None:
    """What is written in its place is not durable, and a recovery must look at it."""
    node = Node()
    log = node.create()
    node.append(log, b"a")
    node.append(log, b"b", b"c")
    log.flush()
    node.manager.write_checkpoints()
    node.manager.truncate(log, 1)
    node.append(log, b"d", b"e")
    found = node.kill().get_log(TP)
    assert found is not None
    log = found
    assert (log.recovery_point, log.log_end_offset) == (1, 3)


def test_unchanged_checkpoints_are_not_written() -> None:
    node = Node()
    node.append(node.create(), b"a")
    node.manager.write_checkpoints()
    syncs = node.fs.sync_count
    node.manager.write_checkpoints()
    assert node.fs.sync_count == syncs


def test_deleted_log_is_renamed_then_removed() -> None:
    """Also with the longest name; the same name can be used again at once."""
    node = Node()
    tp = TopicPartition("t" * 249, 3)
    node.append(node.create(tp), b"a")
    node.manager.delete_log(tp, node.now_ms)
    assert node.manager.get_log(tp) is None
    names = [n for n in node.fs.list_directory("/a") if n.startswith("ttt")]
    assert len(names) == 1
    assert names[0].endswith("-delete")
    assert len(names[0]) <= 255
    again = node.create(tp, OTHER_ID)
    assert (again.log_end_offset, again.topic_id) == (0, OTHER_ID)
    assert node.manager.remove_deleted(node.now_ms + 59_999) == 1
    assert node.manager.remove_deleted(node.now_ms + 60_000) == 0
    assert not [n for n in node.fs.list_directory("/a") if n.endswith("-delete")]
    node.manager.delete_log(tp, node.now_ms)
    node.manager.delete_log(tp, node.now_ms)


def test_deletion_is_finished_after_a_restart() -> None:
    node = Node()
    node.append(node.create(), b"a")
    node.manager.delete_log(TP, node.now_ms)
    node.kill()
    assert list(node.manager.logs()) == []
    node.manager.retain(node.now_ms)
    assert not [n for n in node.fs.list_directory("/a") if n.endswith("-delete")]


def test_flush_of_a_deleted_log_is_nothing() -> None:
    """A worker thread may come late."""
    node = Node()
    log = node.create()
    node.append(log, b"a")
    node.manager.delete_log(TP, node.now_ms)
    log.flush()
    node.manager.remove_deleted(node.now_ms + 60_000)
    files = node.fs.list_directory("/a")
    log.flush()
    assert node.fs.list_directory("/a") == files
    assert not [name for name in files if name.startswith(str(TP))]


def test_log_of_an_earlier_topic_is_replaced() -> None:
    """A topic deleted and created again while this broker was down has no old records."""
    node = Node()
    node.append(node.create(), b"old")
    node.stop()
    log = node.create(topic_id=OTHER_ID)
    assert (log.topic_id, log.log_end_offset) == (OTHER_ID, 0)
    assert node.stop().get_log(TP) is not None
    assert node.log().topic_id == OTHER_ID


def test_stray_logs_are_reported() -> None:
    node = Node()
    node.create()
    stray = TopicPartition("gone", 0)
    node.create(stray, OTHER_ID)
    found = node.manager.stray_logs(lambda tp, topic_id: (tp, topic_id) == (TP, ID))
    assert [log.topic_partition for log in found] == [stray]


def test_new_logs_go_where_the_fewest_are() -> None:
    node = Node("/a", "/b")
    for number in range(6):
        node.create(TopicPartition("t", number))
    counts = [sum(n.startswith("t-") for n in node.fs.list_directory(p)) for p in ("/a", "/b")]
    assert counts == [3, 3]
    wanted = node.manager.dirs[1].directory_id
    tp = TopicPartition("u", 0)
    node.manager.create_log(tp, ID, LogConfig(), NOW_MS, directory_id=wanted)
    assert node.manager.dir_of(tp) is node.manager.dirs[1]
    node.stop()
    assert len(list(node.manager.logs())) == 7


def test_partition_in_two_directories_is_refused() -> None:
    node = Node("/a", "/b")
    node.create()
    node.manager.close()
    for path in [p for p in node.fs.files if p.startswith("/a/topic-0/")]:
        node.fs.make_directory("/b/topic-0")
        copy = node.fs.open("/b" + path[2:], create=True)
        copy.write_at(node.fs.read_file(path), 0)
    with pytest.raises(LogDirError, match="two log directories"):
        node.start()


def test_failed_directory_goes_offline_alone() -> None:
    """Its logs are no longer served, the other directory goes on; a stop is not clean there."""
    node = Node("/a", "/b")
    for number in range(4):
        node.append(node.create(TopicPartition("t", number)), b"x")
    lost = node.manager.fail_dir(node.manager.dirs[0], OSError(errno.EIO, "broken"))
    assert len(lost) == 2
    assert len(list(node.manager.logs())) == 2
    with pytest.raises(KafkaError) as error:
        node.manager.fail_dir(node.manager.dirs[1], OSError(errno.EIO, "broken"))
        node.create(TopicPartition("u", 0))
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    node.manager.close()
    assert not node.fs.exists("/a/.kafka_cleanshutdown")


def test_failing_creation_takes_the_directory_offline() -> None:
    node = Node("/a", "/b")
    node.fs.fail("make_directory", "/a/")
    with pytest.raises(KafkaError) as error:
        node.create()
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [d.is_online for d in node.manager.dirs] == [False, True]
    assert node.create().directory == "/b/topic-0"


def test_failing_directory_at_start() -> None:
    """One bad directory does not keep the broker from starting; all bad ones do."""
    node = Node("/a", "/b")
    node.append(node.create(), b"x")
    node.manager.close()
    node.fs.fail("read", "/b/meta.properties")
    node.start()
    assert [d.is_online for d in node.manager.dirs] == [True, False]
    assert node.log().log_end_offset == 1
    node.manager.close()
    node.fs.fail("read", "/a/meta.properties")
    with pytest.raises(LogDirError, match="no log directory can be used: /a: "):
        node.start()


def test_retention_failure_takes_the_directory_offline() -> None:
    node = Node()
    log = node.create(retention_ms=1)
    node.append(log, b"x")
    node.fs.fail("rename", ".log")
    assert node.manager.retain(node.now_ms + 10) == 0
    assert not node.manager.dirs[0].is_online


def test_flush_is_due_by_time_and_after_rolls() -> None:
    node = Node()
    timed = node.create(flush_ms=1000)
    rolled = node.create(TopicPartition("topic", 1), segment_bytes=150)
    idle = node.create(TopicPartition("topic", 2))
    node.append(timed, b"a")
    node.append(idle, b"a")
    node.append(rolled, b"x" * 50)
    node.append(rolled, b"x" * 50)
    assert node.manager.flushes.logs_to_flush(node.now_ms) == [rolled]
    assert not node.manager.flushes.needs_full_flush(rolled, node.now_ms)
    assert rolled.durability.flush_closed_segments() == 1
    assert node.manager.flushes.logs_to_flush(node.now_ms + 999) == []
    assert node.manager.flushes.logs_to_flush(node.now_ms + 1000) == [timed]
    assert timed.flush() == 1
    node.manager.flushes.on_flushed(timed, node.now_ms + 1000)
    assert node.manager.flushes.logs_to_flush(node.now_ms + 5000) == []


def test_idle_logs_stop_without_a_sync_each() -> None:
    """Stopping a broker with many idle partitions is quick."""
    node = Node()
    for number in range(20):
        node.append(node.create(TopicPartition("t", number)), b"x")
    node.stop()
    syncs = node.fs.sync_count
    node.manager.close()
    assert node.fs.sync_count - syncs < 20


def test_metadata_log_is_left_alone() -> None:
    node = Node()
    node.fs.make_directory("/a/__cluster_metadata-0")
    node.fs.make_directory("/a/not a log")
    node.stop()
    assert list(node.manager.logs()) == []


def test_a_stray_log_is_kept_under_another_name() -> None:
    """It is not served and not loaded again, and its records can still be had."""
    node = Node()
    node.append(node.create(), b"precious")
    kept_in = node.manager.set_aside(TP)
    assert kept_in is not None
    assert kept_in.startswith("/a/topic-0.")
    assert kept_in.endswith("-stray")
    assert node.manager.get_log(TP) is None
    node.stop()
    assert list(node.manager.logs()) == []
    assert node.manager.remove_deleted(node.now_ms + 10**9) == 0
    assert b"precious" in node.fs.read_file(f"{kept_in}/00000000000000000000.log")
    assert node.manager.set_aside(TP) is None


def test_a_full_disk_takes_no_directory_offline() -> None:
    """What needs space fails, and works again as soon as there is some."""
    node = Node()
    node.append(node.create(), b"kept")
    node.fs.fail("write", "/a/", errno.ENOSPC)
    with pytest.raises(KafkaError) as error:
        node.create(TopicPartition("other", 0), bytes(15) + b"9")
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    node.manager.write_checkpoints()
    assert node.manager.dirs[0].is_online
    node.fs.heal()
    node.append(node.log(), b"after")
    assert node.create(TopicPartition("other", 0), bytes(15) + b"9").log_end_offset == 0
    node.manager.write_checkpoints()
    assert b"topic 0 2" in node.fs.read_file("/a/replication-offset-checkpoint")


def test_a_stop_on_a_full_disk_is_no_clean_one() -> None:
    """Without the marker the next start recovers, and nothing is missing."""
    node = Node()
    node.append(node.create(), b"kept")
    node.fs.fail("write", "/a/", errno.ENOSPC)
    node.manager.close(broker_epoch=5)
    node.fs.heal()
    node.start()
    assert not node.manager.dirs[0].clean_shutdown
    assert node.log().log_end_offset == 1


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_folder_that_cannot_be_renamed_does_no_harm(is_kept: bool) -> None:
    """No log is made in it, nothing of it is served or lost, and once there is room all goes on."""
    node = Node()
    node.append(node.create(), b"precious")
    node.fs.fail("rename", "/a/topic-0", errno.ENOSPC)
    if is_kept:
        assert node.manager.set_aside(TP) == "/a/topic-0"
    else:
        node.manager.delete_log(TP, node.now_ms)
    assert node.manager.get_log(TP) is None
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            node.create(topic_id=OTHER_ID)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.manager.remove_deleted(node.now_ms + 10**9) == 1
    assert b"precious" in node.fs.read_file("/a/topic-0/00000000000000000000.log")
    node.fs.heal()
    assert node.create(topic_id=OTHER_ID).log_end_offset == 0
    node.manager.remove_deleted(node.now_ms + 10**9)
    found = [path for path in node.fs.files if b"precious" in node.fs.read_file(path)]
    assert len(found) == is_kept
    assert all("-stray/" in path for path in found)


@pytest.mark.parametrize("was_up", [True, False])
def test_a_recreated_topic_has_nothing_of_the_checkpoints_of_the_one_before(was_up: bool) -> None:
    """An old log start would empty the new log at the next recovery, an old watermark commit it."""
    node = Node()
    old = node.create()
    for number in range(9):
        node.append(old, b"old%d" % number)
    old.delete_records_before(7)
    old.first_dirty_offset = 8
    old.flush()
    node.manager.write_checkpoints()
    for checkpoint in node.manager.checkpoints.stale_cleaner_offsets():
        node.manager.checkpoints.write(checkpoint)
    if was_up:
        node.manager.delete_log(TP, node.now_ms)
        node.manager.write_checkpoints()
    else:
        node.kill()
    new = node.create(topic_id=OTHER_ID)
    for number in range(3):
        new.append_as_leader(batch(b"new%d" % number), 0, node.now_ms)
    node.kill()
    log = node.log()
    assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (OTHER_ID, 0, 3)
    assert (log.high_watermark, log.recovery_point, log.first_dirty_offset) == (0, 0, 0)


def test_a_checkpoint_that_is_late_does_not_undo_a_newer_one() -> None:
    """A worker thread may come to write what was true before a log was cut, or made again."""
    node = Node()
    for _ in range(3):
        node.append(node.create(), b"a")
    node.log().flush()
    late = node.manager.checkpoints.stale()
    node.manager.truncate(node.log(), 1)
    for checkpoint in late:
        node.manager.checkpoints.write(checkpoint)
    assert b"topic 0 1" in node.fs.read_file("/a/recovery-point-offset-checkpoint")
    late = node.manager.checkpoints.stale()
    node.manager.delete_log(TP, node.now_ms)
    node.create(topic_id=OTHER_ID)
    for checkpoint in late:
        node.manager.checkpoints.write(checkpoint)
    assert b"topic" not in node.fs.read_file("/a/recovery-point-offset-checkpoint")


def test_a_log_that_cannot_be_made_keeps_no_file_open() -> None:
    node = Node()
    node.fs.fail("rename", "partition.metadata", errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(KafkaError):
            node.create()
    assert len(node.fs.open_files) == 1  # the lock
    assert not node.fs.exists("/a/topic-0")


def test_a_folder_of_another_topic_that_was_not_loaded_is_kept_aside() -> None:
    """It was to be set aside before, for one of two logs, say, and could not be."""
    node = Node()
    node.append(node.create(), b"precious")
    node.manager.release()
    node.manager = LogManager(node.fs, node.paths)
    node.manager.start(CLUSTER, 1)
    node.manager.dirs.finish_loading()
    assert node.create(topic_id=OTHER_ID).log_end_offset == 0
    found = [path for path in node.fs.files if b"precious" in node.fs.read_file(path)]
    assert len(found) == 1 and "-stray/" in found[0]


def test_an_error_of_a_log_that_was_replaced_fails_its_own_directory() -> None:
    """A flush in a thread may end when its topic is made again already, in another directory."""
    node = Node("/a", "/b")
    old = node.create()
    other = node.create(TopicPartition("other", 0))
    assert (old.directory, other.directory) == ("/a/topic-0", "/b/other-0")
    node.manager.delete_log(TP, node.now_ms)
    node.create(TopicPartition("third", 0))
    new = node.manager.get_or_create_log(
        TP, OTHER_ID, LogConfig(), node.now_ms, directory_id=node.manager.dirs[1].directory_id
    )
    assert new.directory == "/b/topic-0"
    node.manager.fail_log(old, OSError(errno.EIO, "injected"))
    assert [log_dir.is_online for log_dir in node.manager.dirs] == [False, True]
    assert node.manager.get_log(TP) is new
    old.flush()
    node.manager.flushes.on_flushed(old, node.now_ms)


def test_a_cut_takes_the_checkpoint_of_the_cleaner_back() -> None:
    """What is written there again is not compacted: a hole in it is a loss."""
    node = Node()
    log = node.create()
    node.append(log, b"a", b"b")
    node.append(log, b"c")
    log.first_dirty_offset = 3
    for checkpoint in node.manager.checkpoints.stale_cleaner_offsets():
        node.manager.checkpoints.write(checkpoint)
    node.manager.truncate(log, 2)
    assert node.manager.dirs[0].checkpoints.of(TP).first_dirty_offset == 2
