"""Which conditions the sources take from Spark, and what they leave of the ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kraftrio.clients.spark.ranges import OffsetRange

RANGES = [
    OffsetRange("flights", 0, 0, 100),
    OffsetRange("flights", 1, 50, 60),
    OffsetRange("weather", 0, 10, 20),
]
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_357_041_600_000_000


def condition(name: str, *arguments: Any) -> Any:
    """Make one of Spark's conditions."""
    from pyspark.sql import datasource

    column, *value = arguments
    attribute = column if name == "Not" else tuple(column.split("."))
    return getattr(datasource, name)(attribute, *value)


def pushed(*conditions: tuple[Any, ...]) -> tuple[Any, list[bool]]:
    """Push conditions; return what came of it, and which were taken."""
    from kraftrio.clients.spark.filters import PushedFilters

    filters = PushedFilters()
    return filters, [filters.push(condition(*one)) for one in conditions]


CASES: list[tuple[list[tuple[Any, ...]], list[bool], list[tuple[int, int, int]]]] = [
    ([("EqualTo", "topic", "weather")], [True], [(2, 10, 20)]),
    (
        [("StringStartsWith", "topic", "fl"), ("IsNotNull", "topic")],
        [True, True],
        [(0, 0, 100), (1, 50, 60)],
    ),
    ([("In", "partition", (1, 2))], [True], [(1, 50, 60)]),
    (
        [("GreaterThan", "partition", 0), ("LessThanOrEqual", "partition", 1)],
        [True, True],
        [(1, 50, 60)],
    ),
    ([("EqualTo", "offset", 15)], [True], [(0, 15, 16), (2, 15, 16)]),
    (
        [("GreaterThan", "offset", 54), ("LessThan", "offset", 99)],
        [True, True],
        [(0, 55, 99), (1, 55, 60)],
    ),
    (
        [("GreaterThanOrEqual", "offset", 99), ("LessThanOrEqual", "offset", 99)],
        [True, True],
        [(0, 99, 100)],
    ),
    ([("In", "offset", (12, 17))], [False], [(0, 12, 18), (2, 12, 18)]),
    ([("IsNull", "topic")], [True], []),
    ([("EqualTo", "key", b"x")], [False], [(0, 0, 100), (1, 50, 60), (2, 10, 20)]),
    ([("EqualTo", "headers.key", "x")], [False], [(0, 0, 100), (1, 50, 60), (2, 10, 20)]),
    ([("EqualTo", "timestampType", 0)], [False], [(0, 0, 100), (1, 50, 60), (2, 10, 20)]),
]


@pytest.mark.parametrize(("conditions", "taken", "left"), CASES)
def test_ranges(
    conditions: list[tuple[Any, ...]], taken: list[bool], left: list[tuple[int, int, int]]
) -> None:
    """What is taken holds for all that is left; the rest narrows where it can."""
    filters, found = pushed(*conditions)
    assert found == taken
    expected = [RANGES[index]._replace(start=start, end=end) for index, start, end in left]
    assert filters.narrow(RANGES) == expected


def test_negated() -> None:
    """A negated condition is taken where any would be, and not on offsets."""
    from kraftrio.clients.spark.filters import PushedFilters

    filters = PushedFilters()
    assert filters.push(condition("Not", condition("EqualTo", "topic", "weather")))
    assert not filters.push(condition("Not", condition("EqualTo", "offset", 1)))
    assert not filters.push(condition("Not", condition("EqualTo", "timestamp", NOON)))
    assert filters.narrow(RANGES) == RANGES[:2]


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("EqualTo", (NOON_US, NOON_US)),
        ("GreaterThan", (NOON_US + 1, None)),
        ("GreaterThanOrEqual", (NOON_US, None)),
        ("LessThan", (None, NOON_US - 1)),
        ("LessThanOrEqual", (None, NOON_US)),
    ],
)
def test_times(name: str, bounds: tuple[int | None, int | None]) -> None:
    """Times are bounds in microseconds, in whatever zone they are given."""
    for time in (NOON, NOON.astimezone(timezone(timedelta(hours=5)))):
        filters, taken = pushed((name, "timestamp", time))
        assert taken == [True]
        assert (filters.min_timestamp_us, filters.max_timestamp_us) == bounds


def test_times_without_a_zone() -> None:
    """A time without a zone has no certain meaning."""
    _, taken = pushed(("EqualTo", "timestamp", NOON.replace(tzinfo=None)))
    assert taken == [False]


def test_first_millisecond() -> None:
    """The lowest timestamp as Kafka counts is not below the bound."""
    filters, _ = pushed(("GreaterThan", "timestamp", NOON))
    assert filters.min_timestamp_ms == NOON_US // 1000 + 1
    filters, _ = pushed(("GreaterThanOrEqual", "timestamp", NOON))
    assert filters.min_timestamp_ms == NOON_US // 1000
