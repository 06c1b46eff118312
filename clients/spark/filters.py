"""What Spark's conditions on topic, partition, offset and timestamp save from being read.

Owns `PushedFilters`: the conditions a query hands down, and what they leave of its ranges. Rules:
1. A condition is taken only if no row comes out that it would have left out; Spark checks all
   others again. A condition that is not taken may still narrow the ranges.
2. Topic and partition are the same for a whole range, so any condition on them is decided at once.
3. A lowest timestamp also moves the start of a range, to the first record that is as new.

Pure. Called by: the data sources, while Spark plans a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from kraftrio.clients.spark.ranges import OffsetRange

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_INT64: Final = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(slots=True)
class PushedFilters:
    """The conditions taken so far."""

    on_topic: list[Filter] = field(default_factory=list)
    on_partition: list[Filter] = field(default_factory=list)
    min_offset: int = 0
    end_offset: int = _MAX_INT64
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None

    def push(self, condition: Filter) -> bool:
        """Take a condition; False: Spark must check it, too."""
        inner = condition.child if isinstance(condition, Not) else condition
        attribute: tuple[str, ...] = getattr(inner, "attribute", ())
        if len(attribute) != 1 or attribute[0] not in _NEVER_NULL:
            return False
        if isinstance(condition, IsNotNull):
            return True
        column = attribute[0]
        if column == "topic":
            self.on_topic.append(condition)
            return True
        if column == "partition":
            self.on_partition.append(condition)
            return True
        if column == "offset":
            return self._push_offset(condition)
        if column == "timestamp":
            return self._push_timestamp(condition)
        return False

    def _push_offset(self, condition: Filter) -> bool:
        if isinstance(condition, In) and condition.value:
            self._bound_offset(min(condition.value), max(condition.value))
            return False
        bounds = _bounds(condition, _whole_number)
        if bounds is None:
            return False
        self._bound_offset(*bounds)
        return True

    def _bound_offset(self, lowest: int | None, highest: int | None) -> None:
        if lowest is not None:
            self.min_offset = max(self.min_offset, lowest)
        if highest is not None:
            self.end_offset = min(self.end_offset, highest + 1)

    def _push_timestamp(self, condition: Filter) -> bool:
        bounds = _bounds(condition, _microseconds)
        if bounds is None:
            return False
        lowest, highest = bounds
        if lowest is not None and (self.min_timestamp_us is None or lowest > self.min_timestamp_us):
            self.min_timestamp_us = lowest
        if highest is not None and (
            self.max_timestamp_us is None or highest < self.max_timestamp_us
        ):
            self.max_timestamp_us = highest
        return True

    def narrow(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return what is left of the ranges; empty ones are left out."""
        left = []
        for item in ranges:
            wanted = all(_holds(condition, item.topic) for condition in self.on_topic) and all(
                _holds(condition, item.partition) for condition in self.on_partition
            )
            start, end = max(item.start, self.min_offset), min(item.end, self.end_offset)
            if wanted and start < end:
                left.append(item._replace(start=start, end=end))
        return left

    @property
    def min_timestamp_ms(self) -> int | None:
        """The lowest timestamp that a record can have, as Kafka counts."""
        return None if self.min_timestamp_us is None else -(-self.min_timestamp_us // 1000)


def _bounds(condition: Filter, convert: Any) -> tuple[int | None, int | None] | None:
    """Return the lowest and the highest value that hold; None when it is no such condition."""
    if not isinstance(
        condition,
        EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
    ):
        return None
    value = convert(condition.value)
    if value is None:
        return None
    if isinstance(condition, GreaterThan):
        return value + 1, None
    if isinstance(condition, GreaterThanOrEqual):
        return value, None
    if isinstance(condition, LessThan):
        return None, value - 1
    if isinstance(condition, LessThanOrEqual):
        return None, value
    return value, value


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _holds(condition: Filter, value: Any) -> bool:
    """Whether a condition holds for a value that is not null."""
    match condition:
        case Not(child=child):
            return not _holds(child, value)
        case EqualTo() | EqualNullSafe():
            return bool(value == condition.value)
        case GreaterThan():
            return bool(value > condition.value)
        case GreaterThanOrEqual():
            return bool(value >= condition.value)
        case LessThan():
            return bool(value < condition.value)
        case LessThanOrEqual():
            return bool(value <= condition.value)
        case In():
            return value in condition.value
        case IsNull():
            return False
        case StringStartsWith():
            return bool(value.startswith(condition.value))
        case StringEndsWith():
            return bool(value.endswith(condition.value))
        case StringContains():
            return condition.value in value
        case _:
            raise AssertionError(f"Spark knows no other conditions than {condition!r}")
