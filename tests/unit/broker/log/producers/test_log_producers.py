"""Producers of a log in memory and in snapshots."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.support.logs import NOW_MS, LogContext


def context_with_a_producer() -> LogContext:
    context = LogContext()
    for sequence in range(3):
        context.append(b"x", producer_id=7, producer_epoch=0, sequence=sequence)
    return context


def test_restore_goes_back_to_an_offset() -> None:
    """From the snapshot before it and the batches behind that, or from the batches alone."""
    for with_snapshot in (False, True):
        log = context_with_a_producer().log
        producers, segments = log.producers, log.segments.from_offset(0)
        if with_snapshot:
            producers.restore(segments, 0, 1, NOW_MS, high_watermark=None)
            producers.write_snapshot(1)
        producers.restore(segments, 0, 2, NOW_MS, high_watermark=None)
        entry = producers.state.get(7)
        assert entry is not None
        assert (entry.last_sequence, entry.last_offset) == (1, 1)
        assert producers.snapshots.offsets == ([1] if with_snapshot else [])


@pytest.mark.parametrize("high_watermark", [1, 2, 3, 4, 5])
def test_a_marker_holds_back_what_is_stable_until_it_is_committed(high_watermark: int) -> None:
    """After a restart as before it, though the newest snapshot knows of no open transaction."""
    context = LogContext()
    for sequence in range(2):
        context.append(b"x", producer_id=7, producer_epoch=0, sequence=sequence, transactional=True)
    marker = build_end_transaction_batch(7, 0, EndTransactionMarker(True, 0), timestamp=NOW_MS)
    context.log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    for _ in range(2):
        context.append(b"y")
    context.log.roll(NOW_MS)
    context.high_watermark = high_watermark
    for restart in (context.restart, context.kill):
        log = restart()
        log.update_high_watermark(high_watermark)
        assert log.last_stable_offset == (0 if high_watermark <= 2 else high_watermark)


def test_a_cut_keeps_what_its_markers_hold_back() -> None:
    """What is cut lies behind a snapshot that knows of no open transaction."""
    context = LogContext()
    context.append(b"x", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    marker = build_end_transaction_batch(7, 0, EndTransactionMarker(True, 0), timestamp=NOW_MS)
    context.log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    context.log.roll(NOW_MS)
    context.append(b"y")
    context.log.update_high_watermark(1)
    context.log.truncate_to(2)
    assert context.log.last_stable_offset == 0
    context.log.update_high_watermark(2)
    assert context.log.last_stable_offset == 2


def test_forget_leaves_nothing() -> None:
    context = context_with_a_producer()
    producers = context.log.producers
    producers.write_snapshot(3)
    producers.forget(9)
    assert len(producers.state) == 0
    assert producers.state.map_end_offset == 9
    assert producers.snapshots.offsets == []
    assert not [name for name in context.fs.list_directory("/logs/topic-0") if "snapshot" in name]
