"""What the indexes of a segment know, and that they are rebuilt where they lie."""

from __future__ import annotations

from kraftrio.broker.log.segment.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.broker.log.segment.segment_indexes import SegmentIndexes
from tests.support.logs import NOW_MS, segment_of
from tests.support.memory_files import MemoryFileSystem


def reopened(fs: MemoryFileSystem, segment: Segment) -> SegmentIndexes:
    """The indexes as another process finds them."""
    segment.on_become_inactive()
    segment.flush()
    segment.close_file()
    found = Segment.open(fs, "/t-0", 0, segment.indexes.config)
    found.load_end_offset()
    return found.indexes


def test_an_entry_for_every_interval() -> None:
    """One entry behind the first batch of more than index.interval.bytes."""
    _, segment = segment_of(5, index_interval_bytes=0)
    assert segment.indexes.offsets.entry_count == 4
    _, segment = segment_of(5, index_interval_bytes=1 << 20)
    assert segment.indexes.offsets.entry_count == 0


def test_largest_timestamp_without_loading() -> None:
    """Retention asks every segment: the last entry of the time index says it."""
    fs, segment = segment_of(5, index_interval_bytes=0)
    indexes = reopened(fs, segment)
    indexes.unload()
    assert indexes.max_timestamp == NOW_MS + 4
    assert not indexes.are_loaded
    assert indexes.first_batch_timestamp == NOW_MS


def test_missing_or_wrong_indexes_are_rebuilt() -> None:
    for kind, content in (
        (INDEX_SUFFIX, None),
        (TIME_INDEX_SUFFIX, b"x" * 12),
        (INDEX_SUFFIX, b"x"),
    ):
        fs, segment = segment_of(5, index_interval_bytes=0)
        indexes = reopened(fs, segment)
        indexes.unload()
        fs.remove(segment.path(kind))
        if content is not None:
            fs.open(segment.path(kind), create=True).write_at(content, 0)
        assert indexes.offsets.entry_count == 4, kind
        assert indexes.times.last_entry == (NOW_MS + 4, 4), kind


def test_an_entry_that_points_to_no_batch_is_not_believed() -> None:
    fs, segment = segment_of(5, index_interval_bytes=0)
    indexes = reopened(fs, segment)
    indexes.unload()
    entry = indexes.offsets.last_entry
    indexes.unload()
    # Relative offset 4, and a position in the middle of the batch before it.
    size = fs.size_bytes(segment.path(INDEX_SUFFIX))
    fs.open(segment.path(INDEX_SUFFIX)).write_at(
        (4).to_bytes(4, "big") + (entry.position - 10).to_bytes(4, "big"), size - 8
    )
    assert indexes.position_before(4) == entry.position


def test_truncation_finds_the_largest_timestamp_that_is_left() -> None:
    _, segment = segment_of(5, index_interval_bytes=1 << 20)
    assert segment.indexes.max_timestamp == NOW_MS + 4
    segment.truncate_to(3)
    assert segment.indexes.max_timestamp_entry == (NOW_MS + 2, 2)
    segment.truncate_to(0)
    assert segment.indexes.max_timestamp == segment.indexes.first_batch_timestamp == -1
