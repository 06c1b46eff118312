"""Batches that are not decided yet: by age, also after one was split."""

from __future__ import annotations

from math import inf

from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.incomplete import IncompleteBatches


def batch_of(created_ms: float) -> Batch:
    return Batch("t", 0, (0,), created_ms, 1000, 1000)


def test_the_oldest_come_first() -> None:
    incomplete = IncompleteBatches()
    assert incomplete.oldest_ms == inf
    first, second, third = (batch_of(created_ms) for created_ms in (10.0, 20.0, 30.0))
    for batch in (first, second, third):
        incomplete.add(batch)
    assert incomplete.oldest_ms == 10.0
    assert incomplete.older_than(9.9) == []
    assert incomplete.older_than(20.0) == [first, second]
    incomplete.remove(first)
    assert incomplete.oldest_ms == 20.0
    assert list(incomplete) == [second, third]


def test_parts_are_as_old_as_the_whole_was() -> None:
    incomplete = IncompleteBatches()
    whole, later = batch_of(10.0), batch_of(20.0)
    incomplete.add(whole)
    incomplete.add(later)
    parts = [batch_of(10.0), batch_of(10.0)]
    incomplete.replace(whole, parts)
    assert len(incomplete) == 3
    assert incomplete.oldest_ms == 10.0
    assert incomplete.older_than(15.0) == parts
    assert incomplete.older_than(20.0) == [*parts, later], "each of them once"
    for part in parts:
        incomplete.remove(part)
    assert incomplete.oldest_ms == 20.0


def test_a_part_may_be_split_again() -> None:
    incomplete = IncompleteBatches()
    whole = batch_of(10.0)
    incomplete.add(whole)
    part = batch_of(10.0)
    incomplete.replace(whole, [part])
    smaller = [batch_of(10.0), batch_of(10.0)]
    incomplete.replace(part, smaller)
    assert incomplete.older_than(10.0) == smaller
