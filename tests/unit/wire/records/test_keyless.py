"""Records without keys, written many at once: the same bytes as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftrio.wire.records.keyless import encode_keyless
from kraftrio.wire.records.walk import encode_records


def one_by_one(timestamps: list[int], values: list[bytes], base_timestamp: int) -> bytes:
    """Return the bytes as the general way writes them."""
    rows = [(0, stamp, None, value, ()) for stamp, value in zip(timestamps, values, strict=True)]
    return b"".join(encode_records(rows, base_timestamp))


@given(
    st.lists(
        st.tuples(st.integers(8, 70), st.integers(-5, 100_000), st.integers(0, 300)),
        min_size=1,
        max_size=5,
    )
)
def test_the_same_bytes(runs: list[tuple[int, int, int]]) -> None:
    """Runs of one timestamp, whose values all differ in size."""
    timestamps = [1_000 + delta for count, delta, _ in runs for _ in range(count)]
    values = [b"v" * (size + at) for count, _, size in runs for at in range(count)]
    found = encode_keyless(timestamps, values, 1_000)
    assert found is None or b"".join(found) == one_by_one(timestamps, values, 1_000)


@pytest.mark.parametrize("count", [64, 65, 8_192, 8_193, 20_000])
def test_long_batches(count: int) -> None:
    """Offset deltas become longer on the way."""
    values = [b"x" * (at % 7) for at in range(count)]
    found = encode_keyless([5] * count, values, 5)
    assert found is not None
    assert b"".join(found) == one_by_one([5] * count, values, 5)


def test_long_values() -> None:
    """Their sizes are not remembered."""
    values = [b"x" * (8_180 + at) for at in range(24)]
    for _ in range(2):
        found = encode_keyless([5] * 24, values, 5)
        assert found is not None
        assert b"".join(found) == one_by_one([5] * 24, values, 5)


def test_what_is_left_to_the_general_way() -> None:
    """Nulls, and records of which hardly two share a timestamp."""
    assert encode_keyless([5] * 100, [b"x"] * 99 + [None], 5) is None
    assert encode_keyless(list(range(100)), [b"x"] * 100, 0) is None
