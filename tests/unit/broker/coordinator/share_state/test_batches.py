"""State batches, combined: a table of the cases, and what holds for any.

The model knows offsets one by one: of each, the highest of what is said about it counts.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftrio.broker.coordinator.share_state.batches import Batches, combine
from kraftrio.broker.share_state import ShareStateBatch

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def batches(*rows: tuple[int, int, int, int]) -> Batches:
    """Batches of (first offset, last offset, delivery state, delivery count)."""
    return tuple(ShareStateBatch(*row) for row in rows)


@pytest.mark.parametrize(
    ("known", "written", "start_offset", "combined"),
    [
        ([], [], 0, []),
        ([(1, 5, 0, 1)], [], -1, [(1, 5, 0, 1)]),
        ([], [(1, 5, 0, 1)], 3, [(3, 5, 0, 1)]),
        ([(1, 5, 0, 1), (6, 9, 2, 1)], [], 6, [(6, 9, 2, 1)]),
        ([(1, 5, 0, 1)], [(1, 5, 0, 1)], -1, [(1, 5, 0, 1)]),
        # The same state, side by side, apart, and one within the other.
        ([(1, 5, 0, 1)], [(6, 9, 0, 1)], -1, [(1, 9, 0, 1)]),
        ([(1, 5, 0, 1)], [(7, 9, 0, 1)], -1, [(1, 5, 0, 1), (7, 9, 0, 1)]),
        ([(1, 9, 0, 1)], [(3, 4, 0, 1)], -1, [(1, 9, 0, 1)]),
        # Another state of the same offsets.
        ([(1, 5, 0, 1)], [(1, 5, 0, 2)], -1, [(1, 5, 0, 2)]),
        ([(1, 5, 0, 2)], [(1, 5, 2, 1)], -1, [(1, 5, 0, 2)]),
        ([(1, 5, 0, 1)], [(1, 5, 2, 1)], -1, [(1, 5, 2, 1)]),
        # Within, at the front, at the end, and over it.
        ([(1, 9, 0, 1)], [(4, 6, 2, 1)], -1, [(1, 3, 0, 1), (4, 6, 2, 1), (7, 9, 0, 1)]),
        ([(1, 9, 0, 1)], [(1, 3, 2, 1)], -1, [(1, 3, 2, 1), (4, 9, 0, 1)]),
        ([(1, 9, 0, 1)], [(7, 9, 2, 1)], -1, [(1, 6, 0, 1), (7, 9, 2, 1)]),
        ([(4, 6, 0, 1)], [(1, 9, 2, 1)], -1, [(1, 9, 2, 1)]),
        ([(4, 6, 2, 1)], [(1, 9, 0, 1)], -1, [(1, 3, 0, 1), (4, 6, 2, 1), (7, 9, 0, 1)]),
        ([(1, 6, 0, 1)], [(4, 9, 2, 1)], -1, [(1, 3, 0, 1), (4, 9, 2, 1)]),
        ([(1, 6, 2, 1)], [(4, 9, 0, 1)], -1, [(1, 6, 2, 1), (7, 9, 0, 1)]),
        # What is left of one, below another of the state before it.
        ([(5, 12, 0, 1)], [(0, 9, 2, 1), (10, 19, 2, 1)], -1, [(0, 19, 2, 1)]),
        # One that closes the gap between two, and several at once.
        ([(1, 3, 2, 1), (7, 9, 2, 1)], [(4, 6, 2, 1)], -1, [(1, 9, 2, 1)]),
        (
            [(1, 9, 0, 1)],
            [(2, 3, 2, 1), (5, 5, 4, 5), (8, 12, 0, 2)],
            2,
            [(2, 3, 2, 1), (4, 4, 0, 1), (5, 5, 4, 5), (6, 7, 0, 1), (8, 12, 0, 2)],
        ),
    ],
)
def test_cases(
    known: list[tuple[int, int, int, int]],
    written: list[tuple[int, int, int, int]],
    start_offset: int,
    combined: list[tuple[int, int, int, int]],
) -> None:
    assert combine(batches(*known), batches(*written), start_offset) == batches(*combined)


def _batch(first: int, length: int, state: int, count: int) -> ShareStateBatch:
    return ShareStateBatch(first, first + length, state, count)


BATCH = st.builds(
    _batch,
    st.integers(0, 60),
    st.integers(0, 15),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 3),
)


@given(st.lists(st.tuples(st.lists(BATCH, max_size=6), st.integers(-1, 70)), max_size=8))
def test_each_offset_has_the_highest_of_what_is_said_about_it(
    writes: list[tuple[list[ShareStateBatch], int]],
) -> None:
    """And what is next to each other with one state is one batch, after each of many writes."""
    combined: Batches = ()
    offsets: dict[int, tuple[int, int]] = {}
    for written, start_offset in writes:
        combined = combine(combined, tuple(written), start_offset)
        for first, last, state, count in written:
            for offset in range(first, last + 1):
                offsets[offset] = max(offsets.get(offset, (0, 0)), (count, state))
        offsets = {offset: found for offset, found in offsets.items() if offset >= start_offset}
        assert combined == tuple(_runs(offsets))


def _runs(offsets: dict[int, tuple[int, int]]) -> list[ShareStateBatch]:
    runs: list[ShareStateBatch] = []
    for offset, (count, state) in sorted(offsets.items()):
        if runs and runs[-1][1:] == (offset - 1, state, count):
            runs[-1] = runs[-1]._replace(last_offset=offset)
        else:
            runs.append(ShareStateBatch(offset, offset, state, count))
    return runs
