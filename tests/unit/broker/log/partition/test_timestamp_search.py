"""Searching a log by time: offsets_for_times and the record with the largest timestamp."""

from __future__ import annotations

from random import Random

import pytest

from kraftrio.broker.log.partition.timestamp_search import (
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from kraftrio.wire.records.batch import Compression
from tests.support.logs import NOW_MS, LogContext


def test_first_record_at_or_after_the_time() -> None:
    """Every time between records gives the next one, with its own timestamp."""
    context = LogContext()
    context.leader_epoch = 6
    for timestamp in (2, 4, 6, 8):
        context.append(b"x", timestamps=[timestamp])
    for target in range(9):
        expected = max(2, target + target % 2)
        assert offset_for_timestamp(context.log, target) == (expected // 2 - 1, expected, 6)
    assert offset_for_timestamp(context.log, 9) is None


@pytest.mark.parametrize("compression", list(Compression))
def test_max_timestamp_is_a_records_own(compression: Compression) -> None:
    """Inside a batch, too, and of equal ones the first."""
    context = LogContext()
    context.append(b"a", b"b", b"c", timestamps=[10, 50, 30], compression=compression)
    assert offset_of_max_timestamp(context.log) == (1, 50, 0)
    context.append(b"d", b"e", timestamps=[50, 50], compression=compression)
    assert offset_of_max_timestamp(context.log) == (1, 50, 0)
    context.append(b"f", timestamps=[51])
    assert offset_of_max_timestamp(context.log) == (5, 51, 0)


def test_empty_and_trimmed_logs() -> None:
    """No records, no answer; after a trim the first record that is left."""
    context = LogContext(segment_bytes=150)
    assert offset_for_timestamp(context.log, 0) is None
    assert offset_of_max_timestamp(context.log) is None
    for timestamp in (10, 50, 30, 40):
        context.append(b"x", timestamps=[timestamp])
    context.append(b"y", b"z", timestamps=[45, 20])
    context.commit()
    context.log.delete_records_before(2)
    assert offset_for_timestamp(context.log, 0) == (2, 30, 0)
    assert offset_for_timestamp(context.log, 46) is None
    assert offset_of_max_timestamp(context.log) == (4, 45, 0)
    context.log.delete_records_before(5)
    assert offset_of_max_timestamp(context.log) == (5, 20, 0)
    context.log.delete_records_before(6)
    assert offset_for_timestamp(context.log, 0) is None
    assert offset_of_max_timestamp(context.log) is None
    context.log.apply_retention(NOW_MS)
    assert offset_for_timestamp(context.log, 0) is None
    assert offset_of_max_timestamp(context.log) is None


def test_records_without_timestamp_are_never_found() -> None:
    context = LogContext()
    context.append(b"x", timestamps=[-1])
    assert offset_for_timestamp(context.log, 0) is None
    assert offset_of_max_timestamp(context.log) is None


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_timestamps(seed: int) -> None:
    """The indexes give what a search through all records gives, also after restart and cut."""
    random = Random(seed)
    context = LogContext(segment_bytes=1500, index_interval_bytes=200, segment_ms=10**15)
    for _ in range(80):
        count = random.randrange(1, 4)
        times = [random.randrange(1000) for _ in range(count)]
        context.append(*[b"x" * random.randrange(30)] * count, timestamps=times)

    def check() -> None:
        records = context.read_all()
        for target in range(0, 1010, 7):
            found = offset_for_timestamp(context.log, target)
            expected = next((r for r in records if r.timestamp >= target), None)
            assert (found and found[:2]) == (expected and expected[:2])
        largest = max(r.timestamp for r in records)
        first = next(r for r in records if r.timestamp == largest)
        found = offset_of_max_timestamp(context.log)
        assert found is not None
        # Of equal largest timestamps in several segments any may be the indexed one.
        assert found.timestamp == largest
        assert found.offset == first.offset

    check()
    context.restart()
    check()
    context.log.truncate_to(context.log.log_end_offset // 2)
    check()
    context.kill()
    check()
