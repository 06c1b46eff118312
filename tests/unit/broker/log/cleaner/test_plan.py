"""What is due for compaction, how segments are joined, what the map holds, how fast it goes."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from kraftrio.broker.log.cleaner.offset_map import OffsetMap
from kraftrio.broker.log.cleaner.pace import SLICE_S, CleanerPace
from kraftrio.broker.log.cleaner.plan import cleaning_target, dirtiest, group_segments
from kraftrio.broker.log.log_config import INT_MAX, LogConfig
from kraftrio.broker.log.segment.names import SegmentNames
from kraftrio.broker.log.segment.segment import Segment
from tests.support.cleaning import clean
from tests.support.logs import NOW_MS, LogContext
from tests.support.memory_files import MemoryFileSystem

HOUR_MS = 3_600_000


def hourly(**config: Any) -> LogContext:
    """Six segments of one record, one hour apart, all committed; the newest is active."""
    context = LogContext(**{"cleanup_policy": "compact", "segment_bytes": 150, **config})
    for hour in range(6):
        context.append(b"x" * 40, timestamps=[NOW_MS - (5 - hour) * HOUR_MS])
    context.commit()
    return context


def test_dirty_ratio() -> None:
    """Due is a log of which more than the ratio is dirty, by the bytes of its closed segments."""
    context = hourly()
    target = cleaning_target(context.log, NOW_MS)
    assert (target.first_dirty_offset, target.end_offset) == (0, 5)
    assert (target.clean_bytes, target.dirty_ratio) == (0, 1.0)
    for first_dirty_offset, is_due in ((2, True), (3, False), (5, False)):
        context.log.first_dirty_offset = first_dirty_offset
        target = cleaning_target(context.log, NOW_MS)
        assert target.first_dirty_offset == first_dirty_offset
        assert target.dirty_ratio == (5 - first_dirty_offset) / 5
        assert target.is_due == is_due
    context.log.set_config(dataclasses.replace(context.config, min_cleanable_dirty_ratio=0.4))
    context.log.first_dirty_offset = 3
    assert not cleaning_target(context.log, NOW_MS).is_due  # 0.4 is not more than 0.4
    context.log.set_config(dataclasses.replace(context.config, min_cleanable_dirty_ratio=0.0))
    context.log.first_dirty_offset = 5
    assert not cleaning_target(context.log, NOW_MS).is_due  # nothing is dirty


def test_dirtiest_comes_first() -> None:
    """Logs that are not compacted, empty or clean do not come at all."""
    first, second, clean_one = hourly(), hourly(), hourly()
    first.log.first_dirty_offset = 1
    clean(clean_one)
    others = [hourly(cleanup_policy="delete").log, LogContext(cleanup_policy="compact").log]
    found = dirtiest([*others, clean_one.log, first.log, second.log], NOW_MS)
    assert found is not None
    assert found.log is second.log
    assert dirtiest([*others, clean_one.log], NOW_MS) is None


def test_impossible_marks_start_over() -> None:
    """A mark before the log start or behind the log end is that of another log."""
    context = hourly()
    context.log.delete_records_before(2)
    for mark in (0, 1, 7):
        context.log.first_dirty_offset = mark
        assert cleaning_target(context.log, NOW_MS).first_dirty_offset == 2


@pytest.mark.parametrize(
    ("lag_ms", "end_offset"), [(0, 5), (1, 5), (HOUR_MS, 5), (HOUR_MS + 1, 4), (9 * HOUR_MS, 0)]
)
def test_min_compaction_lag(lag_ms: int, end_offset: int) -> None:
    """Segments with a record younger than min.compaction.lag.ms stay, and all behind them."""
    context = hourly(min_compaction_lag_ms=lag_ms)
    target = cleaning_target(context.log, NOW_MS)
    assert target.end_offset == end_offset
    assert target.is_due == (end_offset > 0)


def test_max_compaction_lag() -> None:
    """A dirty segment older than max.compaction.lag.ms makes a log due below its ratio."""
    context = hourly(max_compaction_lag_ms=3 * HOUR_MS, min_cleanable_dirty_ratio=1.0)
    context.log.first_dirty_offset = 3
    assert not cleaning_target(context.log, NOW_MS + HOUR_MS).is_due
    assert cleaning_target(context.log, NOW_MS + HOUR_MS + 1).is_due
    clean(context)
    assert not cleaning_target(context.log, NOW_MS + 9 * HOUR_MS).is_due


def test_max_compaction_lag_rolls() -> None:
    """The active segment rolls in time: what waits there is not compacted."""
    assert LogConfig(cleanup_policy="compact", max_compaction_lag_ms=5).roll_ms == 5
    assert LogConfig(cleanup_policy="delete", max_compaction_lag_ms=5).roll_ms == 604_800_000
    context = LogContext(cleanup_policy="compact", max_compaction_lag_ms=HOUR_MS)
    for time in (NOW_MS - HOUR_MS - 1, NOW_MS - 1, NOW_MS):
        context.append(b"x", timestamps=[time])
    assert context.log.segments.base_offsets == [0, 2]


def segments(*sizes: tuple[int, int]) -> list[Segment]:
    """Closed segments by (base offset, size); each ends where the next begins."""
    fs = MemoryFileSystem()
    made = [
        Segment(
            fs,
            SegmentNames("/x", base),
            LogConfig(),
            size_bytes=size,
            end_offset=0,
            created_ms=0,
            is_new=False,
        )
        for base, size in sizes
    ]
    for segment, after in pairwise(made):
        segment.end_offset = after.base_offset
    made[-1].end_offset = made[-1].base_offset + 1
    return made


def groups(found: list[list[Segment]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in found]


def test_groups_by_size() -> None:
    """Neighbours are joined up to segment.bytes, the oldest first; none is left out."""
    config = LogConfig(segment_bytes=100)
    made = segments((0, 60), (10, 40), (20, 1), (30, 99), (40, 100), (50, 0), (60, 200), (70, 1))
    found = group_segments(made, config, lambda segment: 0)
    assert groups(found) == [[0, 10], [20, 30], [40, 50], [60], [70]]


def test_groups_by_index_size() -> None:
    """The indexes of a group fit segment.index.bytes."""
    config = LogConfig(segment_index_bytes=20)
    made = segments(*((base, 1) for base in range(6)))
    found = group_segments(made, config, lambda segment: 8)
    assert groups(found) == [[0, 1], [2, 3], [4, 5]]


def test_groups_by_offset_range() -> None:
    """No offset of a group is more than 2^31-1 behind its base (KAFKA-6264)."""
    made = segments((5, 1), (6, 1), (5 + INT_MAX, 1), (6 + INT_MAX, 1), (7 + INT_MAX, 1))
    found = group_segments(made, LogConfig(), lambda segment: 0)
    assert groups(found) == [[5, 6, 5 + INT_MAX], [6 + INT_MAX, 7 + INT_MAX]]


def test_offset_map_is_bounded() -> None:
    """It is full when its entries would take what it may; overwriting costs nothing."""
    offset_map = OffsetMap(10_000)
    for offset in range(1000):
        offset_map.put(b"same", offset)
    assert not offset_map.is_full
    assert (len(offset_map), offset_map.get(b"same"), offset_map.get(b"other")) == (1, 999, -1)
    count = 0
    while not offset_map.is_full:
        offset_map.put(b"key %d" % count, count)
        count += 1
    assert 40 < count < 100


class FakeTime:
    """A clock that only moves by work and sleep."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s += seconds


def test_pace_rests_as_long_as_it_works() -> None:
    """No more than a slice of work without a rest, and half of the time rests."""
    time = FakeTime()
    pace = CleanerPace(lambda: time.now_s, time.sleep, float("inf"))
    worked_s = longest_s = 0.0
    while worked_s < 1.0:
        before, slept_s = worked_s, time.slept_s
        while time.slept_s == slept_s:
            time.now_s += 0.0005
            worked_s += 0.0005
            pace.pause(1000, lambda: None)
        longest_s = max(longest_s, worked_s - before)
    assert longest_s <= SLICE_S + 0.001
    assert time.slept_s == pytest.approx(worked_s, rel=0.01)


def test_pace_keeps_to_the_rate() -> None:
    """log.cleaner.io.max.bytes.per.second."""
    time = FakeTime()
    pace = CleanerPace(lambda: time.now_s, time.sleep, 1_000_000.0)
    for _ in range(1000):
        time.now_s += 0.0001
        pace.pause(10_000, lambda: None)
    assert time.now_s == pytest.approx(10.0, rel=0.05)


def test_long_rest_ends_when_the_run_does() -> None:
    """At a low rate the rests are long; ending the run need not wait for them."""

    class Ended(Exception):
        pass

    def check() -> None:
        if time.slept_s > 1:
            raise Ended

    time = FakeTime()
    pace = CleanerPace(lambda: time.now_s, time.sleep, 1.0)
    with pytest.raises(Ended):
        pace.pause(1_000_000, check)
    assert time.slept_s < 1.2
