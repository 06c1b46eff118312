"""Checks of what a program did: what passes, and what each says of the first that is wrong."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kraftrio import TopicPartition
from kraftrio.testing import checks


class Record(NamedTuple):
    key: bytes | None
    offset: int
    partition: int = 0
    topic: str = "orders"


def test_at_least_once() -> None:
    checks.at_least_once([1, 2], [2, 1, 1])
    with pytest.raises(AssertionError, match=r"never handled: 2 \(2 times\), 3"):
        checks.at_least_once([1, 2, 2, 3], [1])
    with pytest.raises(AssertionError, match="never handled: 0, 1, 2, 3, 4 and 95 more"):
        checks.at_least_once(range(100), [])


def test_exactly_once() -> None:
    checks.exactly_once(iter([1, 2, 2]), iter([2, 1, 2]))
    with pytest.raises(AssertionError, match="handled too often: 1"):
        checks.exactly_once([1, 2], [1, 1, 2])
    with pytest.raises(AssertionError, match="handled, but never sent: 9"):
        checks.exactly_once([1], [1, 9])
    with pytest.raises(AssertionError, match="never handled: 2"):
        checks.exactly_once([1, 2], [1, 1])


def test_at_most_once() -> None:
    checks.at_most_once([1, 2], [2])
    with pytest.raises(AssertionError, match="handled too often: 2"):
        checks.at_most_once([1, 2], [2, 2])


def test_in_order_by_key() -> None:
    """What is handled again is in order; what is left out and comes later is not."""
    a, b = b"a", b"b"
    checks.in_order_by_key([Record(a, 0), Record(b, 1), Record(a, 2), Record(a, 0), Record(a, 2)])
    checks.in_order_by_key([Record(a, 5), Record(b, 1), Record(None, 0), Record(None, 0, 1)])
    with pytest.raises(AssertionError, match=r"key b'a': offset 1 of orders-0 was .* offset 2"):
        checks.in_order_by_key([Record(a, 0), Record(a, 2), Record(a, 1)])


def test_committed_only_handled() -> None:
    records = [Record(None, offset) for offset in (0, 1, 3)]  # a marker lies between
    orders = TopicPartition("orders", 0)
    checks.committed_only_handled({orders: 3}, records, records[1::-1])
    checks.committed_only_handled({}, records, [])
    with pytest.raises(AssertionError, match="orders-0 is committed up to 4, but offset 3 was nev"):
        checks.committed_only_handled({orders: 4}, records, records[:2])
