"""Batches that a consumer hands over: what they say undecoded, how they are cut and filtered."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from kraftrio.clients.consumer.records import (
    ConsumerBatch,
    ConsumerRecord,
    ConsumerRecords,
    SplitRecords,
    split_records,
)
from kraftrio.wire.errors import CorruptBatchError, KafkaError
from kraftrio.wire.messages.data import AbortedTransaction
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import (
    Compression,
    Record,
    TimestampType,
    build_batch,
    parse_header,
    retain_records,
)
from kraftrio.wire.records.values import batch_values

TP = TopicPartition("t", 3)


def batch(base_offset: int, count: int = 3, **options: Any) -> bytes:
    records = [
        Record(0, 1_000 + i, b"k%d" % (base_offset + i), b"v%d" % (base_offset + i))
        for i in range(count)
    ]
    return bytes(build_batch(records, base_offset=base_offset, **{"leader_epoch": 5, **options}))


def marker(offset: int, producer_id: int, *, abort: bool) -> bytes:
    key = struct.pack(">hh", 0, 0 if abort else 1)
    return bytes(
        build_batch(
            [Record(0, 0, key, b"\0" * 6)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def transactional(base_offset: int, producer_id: int, count: int = 2) -> bytes:
    return batch(base_offset, count, producer_id=producer_id, producer_epoch=0, transactional=True)


def split(
    data: bytes,
    fetch_offset: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    read_committed: bool = False,
    check_crcs: bool = True,
) -> SplitRecords:
    named = [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted]
    return split_records(
        TP,
        memoryview(data),
        fetch_offset,
        named,
        read_committed=read_committed,
        check_crcs=check_crcs,
    )


def offsets(found: SplitRecords) -> list[int]:
    return [record.offset for each in found.batches for record in each]


def only(data: bytes, fetch_offset: int = 0) -> ConsumerBatch:
    [found] = split(data, fetch_offset).batches
    return found


def test_records_say_where_they_come_from() -> None:
    """Topic, partition, epoch and kind of timestamp, beside the record itself."""
    first = only(batch(10)).records()[0]
    assert first == ConsumerRecord(
        "t", 3, 5, TimestampType.CREATE_TIME, 10, 1_000, b"k10", b"v10", ()
    )
    assert first.topic_partition == TP


def test_a_batch_is_described_without_decoding_it() -> None:
    """Nothing of this decompresses it."""
    found = only(batch(10, 3, compression=Compression.GZIP))
    assert (found.first_offset, found.next_offset, len(found)) == (10, 13, 3)
    assert (found.topic, found.partition, found.leader_epoch) == ("t", 3, 5)
    assert found.compression is Compression.GZIP
    assert found.timestamp_type is TimestampType.CREATE_TIME
    assert found.max_timestamp == 1_002
    assert found._records is None
    assert repr(found) == "<ConsumerBatch t-3 10..12>"
    assert found.values() == [b"v10", b"v11", b"v12"]
    assert found.rows()[0] == Record(10, 1_000, b"k10", b"v10", ())


def test_bytes_that_a_batch_may_contain() -> None:
    """What is in it, compressed or not; a part answers for the whole."""
    for compression in (Compression.NONE, Compression.ZSTD):
        two = batch(10, compression=compression) + batch(20, compression=compression)
        first, second = split(two).batches
        assert first.may_contain(b"v11")
        assert not first.may_contain(b"v21")
        assert second.may_contain(b"k2")
        assert first.starting_at(12).may_contain(b"v11")


def test_values_of_parts() -> None:
    """Nothing but values is decoded, whichever part of a batch is asked."""
    found = only(batch(10, 5), 11)
    first, rest = found.split(2)
    assert rest is not None
    assert first.values() == [b"v11", b"v12"]
    assert rest.values() == [b"v13", b"v14"]
    assert found._records is first._records is rest._records is None
    assert [record.value for record in first] == first.values()


def test_the_values_of_all_parts_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls with a limit take a batch in parts."""
    calls: list[int] = []

    def counted(*given: Any) -> list[bytes | None]:
        calls.append(1)
        return batch_values(*given)

    monkeypatch.setattr("kraftrio.clients.consumer.records.batch_values", counted)
    first, rest = only(batch(10, 5)).split(2)
    assert rest is not None
    assert [*first.values(), *rest.values()] == [b"v10", b"v11", b"v12", b"v13", b"v14"]
    assert len(calls) == 1


def test_records_before_the_position_are_left_out() -> None:
    """Brokers send the whole batch that holds it."""
    found = only(batch(10, 5), 12)
    assert [record.offset for record in found] == [12, 13, 14]
    assert len(found) == 3


def test_a_batch_that_is_cut_comes_again() -> None:
    """The next fetch begins there."""
    data = batch(0) + batch(3)[:-1]
    found = split(data)
    assert offsets(found) == [0, 1, 2]
    assert found.next_offset == 3
    assert split(batch(0) + batch(3)[:20]).next_offset == 3


def test_nothing_but_a_cut_batch_is_a_fault() -> None:
    """Brokers send the first batch whole, however large."""
    with pytest.raises(CorruptBatchError):
        split(batch(0)[:-1])
    assert split(b"").next_offset == 0


def test_compacted_batches() -> None:
    """Offsets have gaps, and the position goes on behind the batch as it was written."""
    data = bytearray(batch(0, 6))
    kept = retain_records(data, parse_header(data), lambda offset, _: offset in (1, 4))
    assert kept is not None
    found = split(bytes(kept) + batch(6, 1))
    assert offsets(found) == [1, 4, 6]
    assert found.batches[0].next_offset == 6
    assert len(found.batches[0]) == 2
    emptied = retain_records(data, parse_header(data), lambda *_: False)
    assert emptied is not None
    found = split(bytes(emptied))
    assert found == SplitRecords([], 6, 5)


def test_control_batches_are_never_handed_over() -> None:
    """But count for where the next fetch begins."""
    data = transactional(0, 7) + marker(2, 7, abort=False)
    for read_committed in (False, True):
        found = split(data, read_committed=read_committed)
        assert offsets(found) == [0, 1]
        assert found.next_offset == 3


def test_aborted_transactions_are_left_out() -> None:
    """Only for read_committed; what others wrote meanwhile, and what comes later, is kept."""
    data = (
        transactional(0, 7)
        + transactional(2, 8)
        + batch(4, 1)
        + marker(5, 7, abort=True)
        + transactional(6, 7)
        + marker(8, 8, abort=False)
        + marker(9, 7, abort=False)
    )
    aborted = [(7, 0)]
    assert offsets(split(data, 0, aborted, read_committed=True)) == [2, 3, 4, 6, 7]
    assert offsets(split(data, 0, aborted)) == [0, 1, 2, 3, 4, 6, 7]


def test_a_malformed_marker_comes_again() -> None:
    """What is before it is handed over first."""
    broken = build_batch(
        [Record(0, 0, b"", b"")],
        base_offset=4,
        producer_id=7,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    data = batch(0, 1) + transactional(2, 7) + bytes(broken)
    found = split(data, 0, [(7, 2)], read_committed=True)
    assert (offsets(found), found.next_offset) == ([0], 4)
    with pytest.raises(KafkaError, match="control record"):
        split(data[-len(broken) :], 4, [(7, 2)], read_committed=True)


def test_one_producer_aborts_again_and_again() -> None:
    """Each of its transactions has an end of its own."""
    data = (
        transactional(0, 7)
        + marker(2, 7, abort=True)
        + transactional(3, 7)
        + marker(5, 7, abort=False)
        + transactional(6, 7)
        + marker(8, 7, abort=True)
        + transactional(9, 7)
    )
    assert offsets(split(data, 0, [(7, 6), (7, 0)], read_committed=True)) == [3, 4, 9, 10]


def test_a_transaction_that_began_before() -> None:
    """The fetch begins in its middle."""
    data = transactional(10, 7) + marker(12, 7, abort=True) + transactional(13, 7)
    assert offsets(split(data, 10, [(7, 3)], read_committed=True)) == [13, 14]


def test_records_that_are_not_transactional_are_kept() -> None:
    """Also those of an idempotent producer with the id of an aborted transaction."""
    data = transactional(0, 7) + batch(2, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    assert offsets(split(data, 0, [(7, 0)], read_committed=True)) == [2]


def test_split_shares_what_is_decoded() -> None:
    """Cut in two without decoding, and decoded once."""
    whole = only(batch(10, 5))
    first, rest = whole.split(2)
    assert rest is not None
    assert (first.next_offset, rest.first_offset, rest.next_offset) == (12, 12, 15)
    assert whole._records is None
    assert [record.offset for record in first] == [10, 11]
    assert [record.offset for record in rest] == [12, 13, 14]
    assert rest.records()[0] is whole.records()[2]
    assert whole.split(5) == (whole, None)
    third = rest.starting_at(14)
    assert [record.offset for record in third] == [14]
    assert third.records()[0] is whole.records()[4]


def test_split_of_a_compacted_batch() -> None:
    """It counts records, not offsets."""
    data = bytearray(batch(0, 9))
    kept = retain_records(data, parse_header(data), lambda offset, _: offset % 3 == 1)
    assert kept is not None
    first, rest = only(bytes(kept)).split(2)
    assert rest is not None
    assert [record.offset for record in first] == [1, 4]
    assert [record.offset for record in rest] == [7]
    assert (first.next_offset, rest.next_offset) == (7, 9)


def test_damage_is_noticed() -> None:
    """By the checksum."""
    data = bytearray(batch(0))
    only(bytes(data)).verify()
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        only(bytes(data)).verify()


ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, PRODUCER_ID_AT, RECORD_COUNT_AT = 21, 23, 43, 57


@pytest.mark.parametrize(
    ("at", "mask"),
    [
        (ATTRIBUTES_AT + 1, 0x20),  # a control batch, which consumers skip
        (LAST_OFFSET_DELTA_AT, 0x80),  # ends before the offset that was asked for
        (RECORD_COUNT_AT + 3, 0x02),  # has no records
        (PRODUCER_ID_AT + 7, 0x01),  # of a transaction that was aborted
    ],
)
def test_a_damaged_header_is_not_believed(at: int, mask: int) -> None:
    """What says that a batch is to be passed over may be the damage."""
    damaged = bytearray(transactional(2, producer_id=6))
    damaged[at] ^= mask
    data = transactional(0, producer_id=6) + bytes(damaged) + transactional(4, producer_id=6)
    found = split(data, aborted=[(7, 0)], read_committed=True)
    assert (offsets(found), found.next_offset) == ([0, 1], 2)
    with pytest.raises(CorruptBatchError):
        split(data[len(damaged) :], 2, aborted=[(7, 0)], read_committed=True)
    assert 4 in offsets(split(data, aborted=[(7, 0)], read_committed=True, check_crcs=False))


def test_what_is_before_damage_is_handed_over() -> None:
    """What follows is fetched again, and raised if it comes first."""
    data = batch(0) + bytes(100)
    found = split(data)
    assert (offsets(found), found.next_offset) == ([0, 1, 2], 3)
    with pytest.raises(CorruptBatchError):
        split(bytes(100), 3)


def test_what_a_poll_returns() -> None:
    """Counts, iterates, and sorts by partition."""
    other = ConsumerBatch(
        TopicPartition("t", 4), memoryview(batch(0)), parse_header(batch(0)), 0, 3
    )
    polled = ConsumerRecords([only(batch(10)), other, only(batch(13))])
    assert len(polled) == 9
    assert polled.partitions == [TP, TopicPartition("t", 4)]
    assert [record.offset for record in polled] == [10, 11, 12, 0, 1, 2, 13, 14, 15]
    assert [record.offset for record in polled.records(TP)] == [10, 11, 12, 13, 14, 15]
    assert polled
    assert not ConsumerRecords([])
