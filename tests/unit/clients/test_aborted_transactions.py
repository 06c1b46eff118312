"""Which batches read_committed leaves out, from what the broker says beside them."""

from __future__ import annotations

import struct

import pytest

from kraftrio.clients.aborted_transactions import AbortedFilter
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.messages.data import AbortedTransaction
from kraftrio.wire.records.batch import Record, build_batch, parse_header
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch


def data(offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
    return bytes(
        build_batch(
            [Record(0, 0, None, b"v")],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    end = EndTransactionMarker(commit, 0)
    return bytes(build_end_transaction_batch(producer_id, 0, end, timestamp=0, base_offset=offset))


def left_out(batches: list[bytes], aborted: list[tuple[int, int]]) -> list[int]:
    """Offsets of the batches that are left out, of transactions as (producer_id, first_offset)."""
    named = [AbortedTransaction(producer_id=one, first_offset=first) for one, first in aborted]
    seen = AbortedFilter(named)
    return [
        parse_header(each).base_offset
        for each in batches
        if seen.leaves_out(each, parse_header(each))
    ]


def test_until_the_marker() -> None:
    """What the producer writes after it is of another transaction."""
    batches = [data(0, 7), data(1, 8), marker(2, 7, commit=False), data(3, 7)]
    assert left_out(batches, [(7, 0)]) == [0, 2]


def test_a_committed_transaction_before() -> None:
    """The one that is aborted begins at its first offset."""
    batches = [data(0, 7), marker(1, 7, commit=True), data(2, 7), marker(3, 7, commit=False)]
    assert left_out(batches, [(7, 2)]) == [2, 3]


def test_transactions_in_any_order() -> None:
    """The broker may name later ones first."""
    batches = [
        *(data(0, 7), marker(1, 7, commit=False)),
        *(data(2, 8), marker(3, 8, commit=False)),
        *(data(4, 7), marker(5, 7, commit=False)),
    ]
    assert left_out(batches, [(7, 4), (8, 2), (7, 0)]) == [0, 1, 2, 3, 4, 5]


def test_records_outside_of_transactions() -> None:
    """An idempotent producer's own records are kept, whatever its id."""
    assert left_out([data(0, 7, transactional=False), data(1, -1)], [(7, 0)]) == []


def test_malformed_marker() -> None:
    """It is said, not taken for an end or for data."""
    broken = build_batch(
        [Record(0, 0, struct.pack(">h", 0), b"")],
        producer_id=7,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    with pytest.raises(KafkaError, match="control record needs a key"):
        left_out([bytes(broken)], [(7, 0)])
