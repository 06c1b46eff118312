"""Values put into a batch many at a time: as many as one by one, and not a byte more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftrio.clients.producer.batch import Batch, record_size
from kraftrio.clients.producer.bulk import Values


def open_batch(limit_bytes: int) -> Batch:
    return Batch("t", 0, (0,), 0.0, limit_bytes, limit_bytes)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(61, 1_000))
def test_as_many_as_one_by_one(values: list[bytes], limit_bytes: int) -> None:
    expected = open_batch(limit_bytes)
    for value in values:
        size_bytes = expected.size_bytes + record_size(None, value, ())
        if size_bytes > limit_bytes:
            break
        expected.size_bytes = size_bytes
        expected.values.append(value)
    batch = open_batch(limit_bytes)
    left = Values(values, 7)
    assert left.fill(batch) == len(expected.values)
    assert (batch.values, batch.size_bytes) == (expected.values, expected.size_bytes)
    assert batch.keys == [None] * len(batch.values)
    assert batch.timestamps == [7] * len(batch.values)
    assert left.next == len(batch.values)
    assert left.is_empty == (len(batch.values) == len(values))


def test_long_values_count_what_they_take() -> None:
    values = [b"x" * 9_000] * 3
    one = record_size(None, values[0], ())
    left = Values(values, 7)
    batch = open_batch(61 + 2 * one)
    assert left.fill(batch) == 2
    assert left.take() == values[2]
    assert left.is_empty
    assert not left.fill(batch)


@pytest.mark.parametrize("limit_bytes", [61, 62, 71])
def test_no_room(limit_bytes: int) -> None:
    assert Values([b"x"], 7).fill(open_batch(limit_bytes)) == 0
