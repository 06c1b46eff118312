"""The headers of a read: what is looked at, and the part that a member is sent."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.segment.txn_index import AbortedTxn
from kraftrio.broker.share.read_batches import ReadBatches
from kraftrio.wire.records.batch import build_batch
from kraftrio.wire.records.walk import Record
from kraftrio.wire.stored_bytes import Piece, StoredBytes


class Stored(StoredBytes):
    """Bytes elsewhere; counts what is read of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.data)

    def file_range(self, start: int) -> tuple[int, int] | None:
        return 7, 1000 + start

    def read(self, start: int, size_bytes: int) -> bytes:
        self.reads.append((start, size_bytes))
        return self.data[start : start + size_bytes]

    def is_at_hand(self, start: int, size_bytes: int) -> bool:
        return start == 0

    def load(self, start: int, size_bytes: int) -> None:
        self.reads.append((start, -size_bytes))


def batch(base_offset: int, count: int, value: bytes = b"v", *, producer_id: int = -1) -> bytes:
    records = [Record(base_offset + at, 0, b"k", value, ()) for at in range(count)]
    return bytes(
        build_batch(
            records,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer_id >= 0,
        )
    )


LOG = [batch(10, 5), batch(15, 1), batch(20, 10)]
ALL = b"".join(LOG)


@pytest.mark.parametrize("records", [ALL, Stored(ALL)])
def test_what_headers_say(records: Piece) -> None:
    batches = ReadBatches(records, 30)
    assert (batches.first_offset, batches.last_offset) == (10, 29)
    assert [batches.end_of_batch_at(at) for at in (10, 15, 17, 20, 29, 40)] == [
        14,
        15,
        17,
        29,
        29,
        40,
    ]
    assert list(batches.base_offsets(15)) == [10, 15]
    assert list(batches.base_offsets(100)) == [10, 15, 20]


def test_headers_are_read_as_far_as_they_are_asked_for() -> None:
    """Many batches of a file cost one read; large ones, one each."""
    small = Stored(b"".join(batch(at, 1) for at in range(40)))
    batches = ReadBatches(small, 40)
    assert batches.end_of_batch_at(20) == 20
    assert len(small.reads) == 1
    large = Stored(b"".join(batch(at, 1, bytes(10_000)) for at in range(40)))
    batches = ReadBatches(large, 40)
    assert batches.end_of_batch_at(2) == 2
    assert len(large.reads) == 3


@pytest.mark.parametrize("records", [ALL, Stored(ALL)])
@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(10, 29, LOG), (12, 13, LOG[:1]), (15, 19, LOG[1:2]), (14, 15, LOG[:2]), (22, 22, LOG[2:])],
)
def test_the_part_with_what_was_acquired(
    records: Piece, first: int, last: int, expected: list[bytes]
) -> None:
    part = ReadBatches(records, 30).part_with(first, last)
    got = part.read(0, len(part)) if isinstance(part, StoredBytes) else bytes(part)
    assert got == b"".join(expected)


def test_a_part_of_stored_bytes_is_sent_as_the_whole_would_be() -> None:
    stored = Stored(ALL)
    part = ReadBatches(stored, 30).part_with(15, 19)
    assert isinstance(part, StoredBytes)
    start = len(LOG[0])
    assert part.file_range(5) == (7, 1000 + start + 5)
    assert not part.is_at_hand(0, 1)
    part.load(0, 3)
    assert stored.reads[-1] == (start, -3)


def test_aborted_batches_by_their_transactions() -> None:
    log = [batch(0, 5, producer_id=1), batch(5, 5, producer_id=2), batch(10, 5, producer_id=1)]
    aborted = [AbortedTxn(1, 0, 9, 0), AbortedTxn(2, 5, 20, 5)]
    batches = ReadBatches(b"".join(log), 15, aborted)
    assert list(batches.aborted(14)) == [(0, 4), (5, 9)]
    assert list(batches.aborted(4)) == [(0, 4)]
    assert list(ReadBatches(b"".join(log), 15).aborted(14)) == []
