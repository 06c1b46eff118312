"""Ranges of offsets: split, limited and checked for loss as Spark does it."""

from __future__ import annotations

import pytest

from kraftrio.clients.spark.ranges import (
    OffsetRange,
    batch_ranges,
    from_json,
    limit_rows,
    row_count,
    split_ranges,
    to_json,
)
from kraftrio.wire.primitives import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def spans(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    """Return (partition, start, end) of each."""
    return [(item.partition, item.start, item.end) for item in ranges]


def sized(*sizes: int) -> list[OffsetRange]:
    """Return ranges of these sizes, one of each partition."""
    return [OffsetRange("t", partition, 0, size) for partition, size in enumerate(sizes)]


def test_json() -> None:
    """Offsets are written as Spark's kafka format writes them, in order."""
    offsets = {B0: 7, A1: 2, A0: 1}
    written = to_json(offsets)
    assert written == {"a": {"0": 1, "1": 2}, "b": {"0": 7}}
    assert list(written) == ["a", "b"]
    assert from_json(written) == offsets


def test_without_a_wish() -> None:
    """There is one piece for each range; empty ones and those that go back are left out."""
    ranges = [*sized(5, 0, 3), OffsetRange("t", 3, 9, 4)]
    assert spans(split_ranges(ranges)) == [(0, 0, 5), (2, 0, 3)]
    assert spans(split_ranges(ranges, min_partitions=2)) == [(0, 0, 5), (2, 0, 3)]


@pytest.mark.parametrize(
    ("sizes", "wish", "counts"),
    [
        ((100, 100, 100), 6, [2, 2, 2]),
        ((100, 100, 100), 8, [3, 3, 3]),
        ((500, 2, 1), 3, [1, 1, 1]),
        ((500, 2, 1), 6, [4, 1, 1]),
        ((10,), 4, [4]),
        ((3,), 8, [3]),
        ((100, 200, 300), 5, [1, 2, 2]),
    ],
)
def test_more_partitions(sizes: tuple[int, ...], wish: int, counts: list[int]) -> None:
    """Large ranges are split by their share; small ones stay whole and do not count."""
    pieces = split_ranges(sized(*sizes), min_partitions=wish)
    assert [sum(item.partition == n for item in pieces) for n in range(len(sizes))] == counts
    for partition, size in enumerate(sizes):
        covered = [item for item in pieces if item.partition == partition]
        ends = [0, *(item.end for item in covered)]
        assert [item.start for item in covered] == ends[:-1]
        assert ends[-1] == size


def test_bounded_pieces() -> None:
    """maxRecordsPerPartition splits ranges into pieces that are as large at most."""
    pieces = split_ranges(sized(10, 4), max_records_per_partition=4)
    assert spans(pieces) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 4)]


def test_limits() -> None:
    """A limit is shared out by what there is; small partitions move, ends are not passed."""
    starts, ends = {A0: 0, A1: 100}, {A0: 1000, A1: 101, B0: 50}
    assert limit_rows(10, starts, ends, {B0: 20}) == {A0: 9, A1: 101, B0: 21}
    assert limit_rows(10_000, starts, ends, {B0: 20}) == ends
    assert limit_rows(10, ends, ends, {}) == ends
    assert limit_rows(10, {}, {A0: 8}, {}) == {A0: 8}  # gone meanwhile: reported by the planner


def test_row_count() -> None:
    """New partitions count from their beginning."""
    assert row_count({A0: 5}, {A0: 9, A1: 3}) == 7


def test_batch() -> None:
    """A micro-batch reads what lies between its ends; new partitions from their start."""
    lost: list[str] = []
    ranges = batch_ranges({A0: 3, A1: 4}, {A0: 7, A1: 4, B0: 2}, {B0: 0}, lost.append)
    assert ranges == [
        OffsetRange("a", 0, 3, 7),
        OffsetRange("a", 1, 4, 4),
        OffsetRange("b", 0, 0, 2),
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("starts", "ends", "earliest", "message"),
    [
        ({A0: 5}, {A0: 3}, {}, "a-0 went back from offset 5 to 3"),
        ({A0: 5, B0: 1}, {A0: 5}, {}, "The partitions b-0 are gone"),
        ({A0: 5}, {A0: 5, B0: 9}, {B0: 4}, "The new partition b-0 starts at 4, not at 0"),
        ({A0: 5}, {A0: 5, B0: 9}, {}, "The partitions b-0 are gone before they could be read"),
    ],
)
def test_loss(
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
    message: str,
) -> None:
    """What may have been lost is reported, whatever becomes of it."""
    lost: list[str] = []
    batch_ranges(starts, ends, earliest, lost.append)
    assert lost == [message]
