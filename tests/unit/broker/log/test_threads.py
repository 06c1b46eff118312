"""Flushes in a worker thread while the owner appends, rolls, cuts and deletes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.partition.recovery import open_log
from tests.support.logs import (
    NOW_MS,
    TOPIC_ID,
    TOPIC_PARTITION,
    LogContext,
    batch,
    records_of,
)
from tests.support.memory_files import MemoryFileSystem


def opened(path: Path, *, clean: bool) -> PartitionLog:
    config = LogConfig(segment_bytes=4000, index_interval_bytes=100, retention_bytes=20_000)
    return open_log(
        LogResources(OsFileSystem()),
        str(path / "topic-0"),
        TOPIC_PARTITION,
        config,
        CheckpointedOffsets(),
        topic_id=TOPIC_ID,
        clean_shutdown=clean,
        now_ms=NOW_MS,
    )


def test_flushes_beside_everything_else(tmp_path: Path) -> None:
    """No error in either thread, the recovery point never ahead of the end, all files right."""
    log = opened(tmp_path, clean=True)
    stop = threading.Event()
    errors: list[BaseException] = []

    def flush() -> None:
        try:
            while not stop.is_set():
                log.flush()
                log.durability.flush_closed_segments()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for number in range(1500):
            log.append_as_leader(batch(b"%d" % number), number // 100, NOW_MS)
            log.update_high_watermark(log.log_end_offset)
            if number % 97 == 96:
                log.truncate_to(log.log_end_offset - 3)
            if number % 50 == 0:
                log.apply_retention(NOW_MS)
                log.retired.remove_expired(
                    NOW_MS + 10**9
                )  # at once, as with file.delete.delay.ms=0
            assert log.recovery_point <= log.log_end_offset
    finally:
        stop.set()
        thread.join()
    assert errors == []
    log.flush()
    assert log.recovery_point == log.log_end_offset
    expected = [r for b in log.batches(0) for r in records_of(b.buffer[b.header.position :])[:1]]
    log.close_files()
    again = opened(tmp_path, clean=False)
    assert again.recovery_events == ()
    found = [r for b in again.batches(0) for r in records_of(b.buffer[b.header.position :])[:1]]
    assert found == expected
    assert again.leader_epochs.entries == log.leader_epochs.entries


class PausedFlush:
    """A flush in a thread, in the middle of which (a call on a path) something else is done.

    What waits for the flush in turn is given up for as long as it does: it ends after the flush.
    """

    def __init__(self, fs: MemoryFileSystem, operation: str, part: str) -> None:
        self._fs = fs
        self._wanted = (operation, part)
        self._meanwhile: threading.Thread | None = None

    def run(self, flush: Callable[[], object], meanwhile: Callable[[], object]) -> None:
        errors: list[BaseException] = []

        def guarded(work: Callable[[], object]) -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        other = threading.Thread(target=guarded, args=(meanwhile,))

        def on_call(operation: str, path: str) -> None:
            if operation == self._wanted[0] and self._wanted[1] in path and not other.ident:
                other.start()
                other.join(0.05)

        self._fs.on_call = on_call
        flusher = threading.Thread(target=guarded, args=(flush,))
        flusher.start()
        flusher.join()
        self._fs.on_call = None
        assert other.ident, "the flush did not come there"
        other.join()
        assert errors == []


@pytest.mark.parametrize(
    ("operation", "part"), [("sync", ".log"), ("open", ".index"), ("open", "checkpoint")]
)
@pytest.mark.parametrize("offset", [0, 2, 5])
def test_a_cut_during_a_flush(operation: str, part: str, offset: int) -> None:
    """The recovery point is not beyond what is left, and what is appended then is not promised."""
    context = LogContext(segment_bytes=300, index_interval_bytes=80)
    for number in range(9):
        context.leader_epoch = number // 2
        context.append(b"%d" % number)

    def cut() -> None:
        context.log.truncate_to(offset)
        context.append(b"new")

    PausedFlush(context.fs, operation, part).run(context.log.flush, cut)
    assert context.log.recovery_point <= offset
    values = context.values()
    assert values == [*(b"%d" % number for number in range(offset)), b"new"]
    assert context.log.flush() == offset + 1
    context.recovery_point = offset + 1
    context.fs = context.fs.after_crash()
    context.open(clean=False)
    assert context.values() == values


@pytest.mark.parametrize("part", ["leader-epoch-checkpoint.tmp", ".index", ".timeindex"])
def test_a_flush_writes_nothing_into_the_log_of_another_topic(part: str) -> None:
    """A topic is deleted and made again, in a folder of the same name, while its log is flushed."""
    fs = MemoryFileSystem()
    manager = LogManager(fs, ["/logs"])
    manager.start("cluster", 1)
    manager.dirs.finish_loading()
    config = LogConfig(index_interval_bytes=50)
    log = manager.create_log(TOPIC_PARTITION, TOPIC_ID, config, NOW_MS)
    for number in range(4):
        log.append_as_leader(batch(b"old"), 4 + number, NOW_MS)
    log.leader_epochs.assign(20, log.log_end_offset)  # not saved yet
    made: list[PartitionLog] = []

    def recreate() -> None:
        manager.delete_log(TOPIC_PARTITION, NOW_MS)
        made.append(manager.create_log(TOPIC_PARTITION, bytes(16), config, NOW_MS))

    PausedFlush(fs, "open", part).run(log.flush, recreate)
    manager.release()
    found = {
        name: fs.read_file(f"{made[0].directory}/{name}")
        for name in fs.list_directory(made[0].directory)
    }
    assert found.pop("partition.metadata").endswith(b"AAAAAAAAAAAAAAAAAAAAAA")
    assert sorted(found) == [f"{0:020d}{end}" for end in (".index", ".log", ".timeindex")]
    assert set(found.values()) == {b""}
