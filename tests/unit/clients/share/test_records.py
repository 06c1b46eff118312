"""The acquired records in what a broker sent."""

from __future__ import annotations

import pytest

from kraftrio.clients.share.acknowledgements import AcknowledgeType, TopicIdPartition
from kraftrio.clients.share.records import Acquired, ShareBatch, ShareRecord, read_acquired
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.messages.share_fetch import AcquiredRecords
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import BATCH_OVERHEAD
from tests.unit.clients.share.share_brokers import batch_bytes

P0 = TopicIdPartition(b"t" * 16, TopicPartition("t", 0))


def read(data: bytes, *runs: tuple[int, int, int], check_crcs: bool = True) -> Acquired:
    acquired = [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in runs
    ]
    return read_acquired(memoryview(data), acquired, check_crcs=check_crcs)


def seen(acquired: Acquired) -> list[tuple[int, int]]:
    return [(each.row.offset, each.delivery_count) for each in acquired.found]


def test_only_what_was_acquired_is_handed_over() -> None:
    """A broker sends whole batches; each run has its own count of deliveries."""
    found = read(batch_bytes(0, 5) + batch_bytes(5, 5), (1, 2, 1), (4, 6, 3))
    assert seen(found) == [(1, 1), (2, 1), (4, 3), (5, 3), (6, 3)]
    assert (found.gaps, found.rejected, found.failure) == ([], [], None)
    assert found.found[0].row.value == b"1" and found.found[0].leader_epoch == 3


def test_offsets_without_a_record_are_gaps() -> None:
    """Of markers, and of what was compacted away."""
    data = batch_bytes(0, 4, holes=(1,)) + batch_bytes(4, 1, control=True) + batch_bytes(5, 1)
    found = read(data, (0, 5, 1))
    assert seen(found) == [(0, 1), (2, 1), (3, 1), (5, 1)]
    assert found.gaps == [1, 4]


def test_a_batch_that_cannot_be_read_is_rejected() -> None:
    """The others of the answer are handed over."""
    broken = bytearray(batch_bytes(2, 3))
    broken[BATCH_OVERHEAD + 3] ^= 0xFF
    data = batch_bytes(0, 2) + bytes(broken) + batch_bytes(5, 1)
    found = read(data, (0, 5, 1))
    assert seen(found) == [(0, 1), (1, 1), (5, 1)]
    assert found.rejected == [2, 3, 4] and found.gaps == []
    assert isinstance(found.failure, CorruptBatchError)


@pytest.mark.parametrize(
    ("at", "mask"),
    [
        (22, 0x20),  # the attributes: a control batch, whose offsets have no record
        (23, 0x40),  # the last offset's delta: it reaches over all that follows
        (23, 0x80),  # it ends before it begins
    ],
)
def test_a_damaged_header_is_not_believed(at: int, mask: int) -> None:
    """It does not make records gaps, which nobody would get, nor reject those of others."""
    damaged = bytearray(batch_bytes(2, 3))
    damaged[at] ^= mask
    found = read(batch_bytes(0, 2) + bytes(damaged) + batch_bytes(5, 1), (0, 5, 1))
    assert seen(found) == [(0, 1), (1, 1), (5, 1)]
    assert (found.gaps, found.rejected) == ([], [2, 3, 4])


def test_bytes_that_are_no_batches_end_the_answer() -> None:
    found = read(batch_bytes(0, 2) + b"\0" * BATCH_OVERHEAD, (0, 3, 1))
    assert seen(found) == [(0, 1), (1, 1)] and found.rejected == [2, 3]
    assert found.failure is not None


def test_batches_say_what_became_of_all() -> None:
    """Each record knows where it comes from, and its methods call the consumer."""
    acknowledged: list[tuple[int, AcknowledgeType]] = []

    def acknowledge(record: ShareRecord, kind: AcknowledgeType) -> None:
        acknowledged.append((record.offset, kind))

    found = read(batch_bytes(7, 3), (7, 9, 2)).found
    batch = ShareBatch(P0, 1, found, 5.0, acknowledge)
    assert len(batch) == 3 and batch.topic_partition == TopicPartition("t", 0)
    first, *_ = batch
    assert (first.topic, first.partition, first.delivery_count) == ("t", 0, 2)
    assert (first.key, first.value, first.timestamp) == (b"k", b"7", 1_000)
    for method in (first.accept, first.release, first.reject, first.renew):
        method()
    assert acknowledged == [(7, kind) for kind in AcknowledgeType]
    acknowledged.clear()
    batch.acknowledge()
    assert acknowledged == [(offset, AcknowledgeType.ACCEPT) for offset in (7, 8, 9)]


@pytest.mark.parametrize("count", [1, 2])
def test_batches_are_split(count: int) -> None:
    batch = ShareBatch(P0, 1, read(batch_bytes(0, 3), (0, 2, 1)).found, 5.0, lambda *_: None)
    first, rest = batch.split(count)
    assert rest is not None and len(first) == count and len(rest) == 3 - count
    assert all(record.batch is rest for record in rest)
    assert batch.split(3) == (batch, None)
