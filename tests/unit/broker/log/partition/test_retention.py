"""Deleting old segments: by age, by size, by log start offset, and when the files go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.logs import NOW_MS, LogContext

HOUR_MS = 3_600_000


def filled(**config: Any) -> LogContext:
    """Six segments of one record, one hour apart; the newest record is of NOW_MS."""
    context = LogContext(**{"segment_bytes": 150, "file_delete_delay_ms": 1000, **config})
    for hour in range(6):
        context.append(b"x" * 40, timestamps=[NOW_MS - (5 - hour) * HOUR_MS])
    assert context.log.segments.base_offsets == list(range(6))
    context.commit()
    return context


def test_retention_by_time() -> None:
    """Segments whose newest record is older than retention.ms go; the log starts behind them."""
    context = filled(retention_ms=3 * HOUR_MS)
    assert context.log.apply_retention(NOW_MS) == 2
    assert context.log.log_start_offset == 2
    assert [r.offset for r in context.read_all()] == [2, 3, 4, 5]
    assert context.log.size_bytes == context.log.segments.total_bytes()
    assert context.log.apply_retention(NOW_MS) == 0


def test_retention_by_size() -> None:
    """As long as retention.bytes are kept without the oldest segment, it goes."""
    context = filled()
    size = context.log.segments[0].size_bytes
    context = filled(retention_bytes=3 * size + 1, retention_ms=-1)
    assert context.log.apply_retention(NOW_MS) == 2
    assert context.log.log_start_offset == 2


def test_what_goes_by_age_counts_for_the_size() -> None:
    """Time takes two large segments; the small ones behind them are within retention.bytes then."""
    context = LogContext(segment_bytes=300)
    for hour, size in enumerate([200, 200, 40, 40, 40]):
        context.append(b"x" * size, timestamps=[NOW_MS - (5 - hour) * HOUR_MS])
        context.log.roll(NOW_MS)
    context.commit()
    sizes = [segment.size_bytes for segment in context.log.segments]
    context.log.config = replace(
        context.log.config, retention_ms=3 * HOUR_MS, retention_bytes=sum(sizes) - sizes[2]
    )
    assert sizes[2] < sizes[0]
    assert context.log.apply_retention(NOW_MS) == 2
    assert context.log.apply_retention(NOW_MS) == 0
    assert context.log.log_start_offset == 2


def test_active_segment_expires_too() -> None:
    """A log whose every record is old becomes empty, at the same offsets."""
    context = filled(retention_ms=HOUR_MS)
    assert context.log.apply_retention(NOW_MS + 2 * HOUR_MS) == 6
    log = context.log
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (6, 6, 0)
    assert log.apply_retention(NOW_MS + 9 * HOUR_MS) == 0
    assert context.append(b"new").base_offset == 6
    context.restart()
    assert context.values() == [b"new"]
    assert context.log.log_start_offset == 6


def test_nothing_above_the_high_watermark_goes() -> None:
    """What is not replicated is not deleted."""
    context = filled(retention_ms=1)
    context.log.high_watermark = 3
    assert context.log.apply_retention(NOW_MS + HOUR_MS) == 3
    assert context.log.log_start_offset == 3


def test_delete_records() -> None:
    """The start moves at once, the segments before it go with the next pass, of any policy."""
    for policy in ("delete", "compact", "compact,delete"):
        context = filled(cleanup_policy=policy, retention_ms=-1)
        assert context.log.delete_records_before(4)
        assert not context.log.delete_records_before(4)
        assert context.log.log_start_offset == 4
        assert context.log.apply_retention(NOW_MS) == 4
        assert context.log.segments.base_offsets == [4, 5]
        assert context.log.leader_epochs.entries == [(0, 4)]
        context.log_start_offset = 4
        assert context.kill().log_start_offset == 4


def test_compacted_logs_keep_old_segments() -> None:
    context = filled(cleanup_policy="compact", retention_ms=1, retention_bytes=1)
    assert context.log.apply_retention(NOW_MS + HOUR_MS) == 0


def test_files_go_after_the_delay() -> None:
    """They are called `.deleted` first, then removed (file.delete.delay.ms)."""
    context = filled(retention_ms=3 * HOUR_MS)
    context.log.apply_retention(NOW_MS)
    deleted = [name for name in context.files() if name.endswith(".deleted")]
    assert sorted(deleted) == [
        f"{base:020d}{suffix}.deleted"
        for base in (0, 1)
        for suffix in (".index", ".log", ".timeindex")
    ]
    assert context.log.retired.remove_expired(NOW_MS + 999) == 2
    assert context.log.retired.remove_expired(NOW_MS + 1000) == 0
    assert not [name for name in context.files() if name.endswith(".deleted")]
    assert f"{1:020d}.snapshot" not in context.files()


def test_missing_files_do_not_stop_a_deletion() -> None:
    """Somebody was faster: the rest goes all the same."""
    context = filled(retention_ms=3 * HOUR_MS)
    context.fs.remove(context.path(f"{0:020d}.index"))
    context.fs.remove(context.path(f"{0:020d}.log"))
    assert context.log.apply_retention(NOW_MS) == 2
    context.fs.remove(context.path(f"{1:020d}.log.deleted"))
    assert context.log.retired.remove_expired(NOW_MS + 1000) == 0


def test_segments_without_timestamps_go_by_file_age() -> None:
    context = LogContext(segment_bytes=150, retention_ms=HOUR_MS)
    context.fs._now_ms = lambda: NOW_MS
    for _ in range(3):
        context.append(b"x" * 40, timestamps=[-1])
    context.commit()
    assert context.log.apply_retention(NOW_MS + HOUR_MS) == 0
    assert context.log.apply_retention(NOW_MS + HOUR_MS + 1) == 3


def test_restart_between_rename_and_removal() -> None:
    """`.deleted` files of an earlier process are no segments."""
    context = filled(retention_ms=3 * HOUR_MS)
    context.log.apply_retention(NOW_MS)
    context.kill()
    assert context.log.log_start_offset == 2
    assert [r.offset for r in context.read_all()] == [2, 3, 4, 5]


@pytest.mark.parametrize("kills", [False, True])
def test_retention_beside_an_open_transaction(kills: bool) -> None:
    """Its first records may go, as in Kafka; what is left of it is still open, then aborted."""
    context = LogContext(segment_bytes=200, retention_bytes=300)
    for sequence in range(6):
        context.append(
            b"x" * 50, producer_id=7, producer_epoch=0, sequence=sequence, transactional=True
        )
    context.commit()
    log = context.log
    assert log.apply_retention(context.now_ms)
    start = log.log_start_offset
    assert 0 < start == log.last_stable_offset < log.high_watermark
    context.log_start_offset = start
    if kills:
        log = context.kill()
        context.commit()
        assert log.last_stable_offset == start
    context.append_marker(7, 0, commit=False)
    context.commit()
    assert log.last_stable_offset == log.high_watermark == 7
    (aborted,) = log.aborted_transactions(start, 7)
    assert aborted.first_offset <= start and aborted.last_offset == 6
    assert log.producer_state.first_unstable_offset is None
