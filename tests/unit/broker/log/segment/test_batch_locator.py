"""Where a read finds its batches in a segment."""

from __future__ import annotations

from tests.support.logs import segment_of


def test_whole_batches_from_the_one_that_holds_the_offset() -> None:
    _, segment = segment_of(5)
    size = segment.size_bytes // 5
    locate = segment.batches.locate
    assert locate(1, 2 * size, 5, True) == (size, 2 * size, 3)
    assert locate(1, 3 * size - 1, 5, True) == (size, 2 * size, 3)
    assert locate(0, 1 << 20, 5, True) == (0, 5 * size, 5)
    assert locate(0, 1 << 20, 4, True) == (0, 4 * size, 4)
    assert locate(5, 1 << 20, 9, True) is None


def test_the_first_batch_comes_whole_or_not_at_all() -> None:
    _, segment = segment_of(5)
    size = segment.size_bytes // 5
    assert segment.batches.locate(2, 1, 5, True) == (2 * size, size, 3)
    assert segment.batches.locate(2, 1, 5, False) == (2 * size, 0, 2)


def test_readers_that_go_on_need_no_index() -> None:
    """The place behind the last batch read is remembered, until the log is cut."""
    _, segment = segment_of(5, index_interval_bytes=0)
    size = segment.size_bytes // 5
    segment.batches.locate(0, size, 5, True)
    segment.flush()
    segment.unload_indexes()
    assert segment.batches.find(1) == (size, 1, size)
    segment.batches.forget()
    assert not segment.indexes.are_loaded
    assert segment.batches.find(1) == (size, 1, size)
    assert segment.indexes.are_loaded
