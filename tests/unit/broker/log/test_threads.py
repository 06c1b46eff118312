"""Flushes in a worker thread while the owner appends, rolls, cuts and deletes."""

from __future__ import annotations

import threading
from pathlib import Path

from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition_log import PartitionLog
from tests.support.logs import NOW_MS, TOPIC_ID, TOPIC_PARTITION, batch, records_of


def open_log(path: Path, *, clean: bool) -> PartitionLog:
    config = LogConfig(segment_bytes=4000, index_interval_bytes=100, retention_bytes=20_000)
    return PartitionLog.open(
        OsFileSystem(),
        str(path / "topic-0"),
        TOPIC_PARTITION,
        config,
        topic_id=TOPIC_ID,
        recovery_point=0,
        log_start_offset=0,
        clean_shutdown=clean,
        now_ms=NOW_MS,
    )


def test_flushes_beside_everything_else(tmp_path: Path) -> None:
    """No error in either thread, the recovery point never ahead of the end, all files right."""
    log = open_log(tmp_path, clean=True)
    stop = threading.Event()
    errors: list[BaseException] = []

    def flush() -> None:
        try:
            while not stop.is_set():
                log.flush()
                log.flush_closed_segments()
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
                log.remove_retired(NOW_MS + 10**9)  # at once, as with file.delete.delay.ms=0
            assert log.recovery_point <= log.log_end_offset
    finally:
        stop.set()
        thread.join()
    assert errors == []
    log.flush()
    assert log.recovery_point == log.log_end_offset
    expected = [r for b in log.batches(0) for r in records_of(b.buffer[b.header.position :])[:1]]
    log.close_files()
    again = open_log(tmp_path, clean=False)
    assert again.recovery_events == []
    found = [r for b in again.batches(0) for r in records_of(b.buffer[b.header.position :])[:1]]
    assert found == expected
    assert again.leader_epochs.entries == log.leader_epochs.entries
