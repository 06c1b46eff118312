"""The aborted-transaction index: format, search, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftrio.broker.log.segment.txn_index import (
    ENTRY_BYTES,
    AbortedSearch,
    AbortedTxn,
    check_index,
    decode_index,
    encode_aborted,
    encode_index,
    entries_before,
    search,
)
from kraftrio.wire.errors import CorruptBatchError

RECORDED = (
    Path(__file__).resolve().parents[4] / "data" / "log-dirs" / "txn-0" / f"{0:020d}.txnindex"
)
ENTRIES = [
    AbortedTxn(1, 0, 10, 11),
    AbortedTxn(2, 5, 20, 3),
    AbortedTxn(3, 12, 30, 31),
]


def test_recorded_index() -> None:
    """Kafka's file is read as its own tool printed it and written again to the byte."""
    data = RECORDED.read_bytes()
    entries = decode_index(data)
    assert entries == [
        AbortedTxn(1, 4, 6, 7),
        AbortedTxn(2, 10, 11, 12),
        AbortedTxn(1, 12, 13, 14),
    ]
    assert encode_index(entries) == data
    assert b"".join(encode_aborted(entry) for entry in entries) == data
    assert len(data) == 3 * ENTRY_BYTES
    check_index(entries, 0)


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "producers", "complete"),
    [
        (0, 100, [1, 2, 3], False),
        (11, 100, [2, 3], False),
        (21, 100, [3], False),
        (31, 100, [], False),
        (0, 12, [1, 2], True),
        (0, 5, [1], True),
        (10, 11, [1], True),
        (11, 13, [2, 3], True),
    ],
)
def test_search(fetch_offset: int, upper_bound: int, producers: list[int], complete: bool) -> None:
    """Every transaction that touches the range is found, and the search ends when none can follow.

    It ends at an entry whose last stable offset reaches the bound: all below was decided then.
    """
    found = search(ENTRIES, fetch_offset, upper_bound)
    assert [entry.producer_id for entry in found.transactions] == producers
    assert found.complete is complete


def test_search_of_nothing() -> None:
    """An empty index says nothing about later segments."""
    assert search([], 0, 10) == AbortedSearch([], False)


def test_truncation_keeps_markers_below_the_offset() -> None:
    """A transaction whose marker is cut off is undecided again."""
    assert list(entries_before(ENTRIES, 21)) == ENTRIES[:2]
    assert list(entries_before(ENTRIES, 20)) == ENTRIES[:1]
    assert list(entries_before(ENTRIES, 0)) == []


def test_damage_is_found() -> None:
    """Cut entries, unknown versions and impossible offsets ask for a rebuild."""
    data = encode_index(ENTRIES)
    for bad in (data[:-1], b"\x00\x01" + data[2:]):
        with pytest.raises(CorruptBatchError):
            decode_index(bad)
    check_index(ENTRIES, 10)
    for entries, base_offset in [
        (ENTRIES, 11),
        (ENTRIES[::-1], 0),
        ([AbortedTxn(1, 9, 8, 9)], 0),
        ([AbortedTxn(1, -1, 8, 9)], 0),
    ]:
        with pytest.raises(CorruptBatchError):
            check_index(entries, base_offset)
