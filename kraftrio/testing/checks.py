"""Checks of what a program did with the records of a topic: each once, at least once, in order.

Each takes what was sent and what was handled as the test has them (records, or their values), and
raises an AssertionError that names the first ones that are wrong, not all of them.

Called by: tests, through `kraftrio.testing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

from kraftrio.wire.primitives import TopicPartition

T = TypeVar("T", bound=Hashable)
_NAMED = 5  # of the items that are wrong


class PlacedRecord(Protocol):
    """A record with its key and place, as `ConsumerRecord` is."""

    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


def at_least_once(sent: Iterable[T], handled: Iterable[T]) -> None:
    """Check that everything that was sent was handled, as often as it was sent or more often."""
    missing = Counter(sent) - Counter(handled)
    if missing:
        raise AssertionError(f"never handled: {_named(missing)}")


def at_most_once(sent: Iterable[T], handled: Iterable[T]) -> None:
    """Check that nothing was handled that was not sent, nor more often than it was sent."""
    expected, found = Counter(sent), Counter(handled)
    unknown = Counter({item: count for item, count in found.items() if item not in expected})
    if unknown:
        raise AssertionError(f"handled, but never sent: {_named(unknown)}")
    twice = found - expected
    if twice:
        raise AssertionError(f"handled too often: {_named(twice)}")


def exactly_once(sent: Iterable[T], handled: Iterable[T]) -> None:
    """Check that every item was handled exactly as often as it was sent."""
    expected, found = list(sent), list(handled)
    at_least_once(expected, found)
    at_most_once(expected, found)


def in_order_by_key(handled: Iterable[PlacedRecord]) -> None:
    """Check that no record was first handled after a later one with the same key.

    Records that are handled again, after a rebalance, are in order as long as none was left out.
    Records without a key are in order by partition.
    """
    newest: dict[tuple[bytes | None, str, int], int] = {}
    seen: set[tuple[str, int, int]] = set()
    for record in handled:
        stream = (record.key, record.topic, record.partition)
        before = newest.get(stream, -1)
        if record.offset < before and _place(record) not in seen:
            raise AssertionError(
                f"key {record.key!r}: offset {record.offset} of {record.topic}-{record.partition}"
                f" was handled for the first time after offset {before}"
            )
        seen.add(_place(record))
        newest[stream] = max(before, record.offset)


def committed_only_handled(
    committed: Mapping[TopicPartition, int],
    records: Iterable[PlacedRecord],
    handled: Iterable[PlacedRecord],
) -> None:
    """Check that no record was left out that a group has committed as done.

    Args:
        committed: what `committed(group)` gives.
        records: what `records(topic)` gives.
        handled: those that the program has processed.
    """
    done = {_place(record) for record in handled}
    for record in records:
        position = committed.get(TopicPartition(record.topic, record.partition), 0)
        if record.offset < position and _place(record) not in done:
            raise AssertionError(
                f"{record.topic}-{record.partition} is committed up to {position}, but offset"
                f" {record.offset} was never handled"
            )


def _place(record: PlacedRecord) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


def _named(counts: Counter[T]) -> str:
    named = [
        repr(item) if count == 1 else f"{item!r} ({count} times)"
        for item, count in list(counts.items())[:_NAMED]
    ]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
