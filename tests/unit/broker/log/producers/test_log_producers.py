"""Producers of a log in memory and in snapshots."""

from __future__ import annotations

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
            producers.restore(segments, 0, 1, NOW_MS)
            producers.write_snapshot(1)
        producers.restore(segments, 0, 2, NOW_MS)
        entry = producers.state.get(7)
        assert entry is not None
        assert (entry.last_sequence, entry.last_offset) == (1, 1)
        assert producers.snapshots.offsets == ([1] if with_snapshot else [])


def test_forget_leaves_nothing() -> None:
    context = context_with_a_producer()
    producers = context.log.producers
    producers.write_snapshot(3)
    producers.forget(9)
    assert len(producers.state) == 0
    assert producers.state.map_end_offset == 9
    assert producers.snapshots.offsets == []
    assert not [name for name in context.fs.list_directory("/logs/topic-0") if "snapshot" in name]
