"""The metadata log's batches and snapshots as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from kraftrio.kraft_meta.quorum.log_batches import (
    decode_batches,
    encode_batch,
    encoded,
    parse_snapshot,
    snapshot_batches,
)
from kraftrio.kraft_meta.raft.values import LogBatch, SnapshotId
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.records.batch import parse_header, set_max_timestamp
from kraftrio.wire.records.control import ControlRecordType, build_control_batch, control_key

BATCHES = [
    LogBatch(5, 2, 1000, (b"value",), (control_key(ControlRecordType.LEADER_CHANGE),)),
    LogBatch(6, 2, 1001, (b"a", b"", b"c" * 1000)),
    LogBatch(9, 3, 1002, (b"d",)),
]


def test_batches_come_back_with_the_same_bytes() -> None:
    """A follower that stores what it decoded has the leader's log to the byte."""
    data = b"".join(encode_batch(batch) for batch in BATCHES)
    decoded = decode_batches(data)
    assert decoded == BATCHES
    assert b"".join(encode_batch(batch) for batch in decoded) == data
    assert [batch.encoded for batch in decoded] == [encoded(batch).encoded for batch in BATCHES]


def test_known_bytes_are_not_encoded_again() -> None:
    batch = encoded(BATCHES[1])
    assert encoded(batch) is batch
    assert encode_batch(replace(BATCHES[1], encoded=b"known")) == b"known"


def test_a_cut_batch_at_the_end_is_left_out() -> None:
    """As a fetch may be answered; damage is an error."""
    data = b"".join(encode_batch(batch) for batch in BATCHES)
    assert decode_batches(data[:-1]) == BATCHES[:2]
    damaged = bytearray(data)
    damaged[70] ^= 1
    with pytest.raises(KafkaError):
        decode_batches(damaged)


def test_what_no_metadata_log_holds_is_refused() -> None:
    """No records, no epoch, offsets without records."""
    with pytest.raises(KafkaError):
        decode_batches(encode_batch(LogBatch(0, -1, 0, (b"a",))))
    gap = bytearray(encode_batch(BATCHES[1]))
    struct.pack_into(">i", gap, 23, 7)  # the last offset's delta
    set_max_timestamp(gap, parse_header(gap), 1001)  # with a new CRC
    with pytest.raises(KafkaError):
        decode_batches(gap)


def snapshot(count: int) -> bytes:
    values = [b"v%d" % n for n in range(count)]
    return b"".join(snapshot_batches(SnapshotId(77, 3), values, 123_456))


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
def test_snapshots_come_back(count: int) -> None:
    """Values in their order, and the time of the last record."""
    parsed = parse_snapshot(snapshot(count))
    assert parsed.values == [b"v%d" % n for n in range(count)]
    assert parsed.last_timestamp_ms == 123_456


def cut(data: bytearray) -> bytearray:
    return data[:-1]


def without_footer(data: bytearray) -> bytearray:
    footer = len(build_control_batch(ControlRecordType.SNAPSHOT_FOOTER, bytes(3), timestamp=0))
    return data[:-footer]


def without_header(data: bytearray) -> bytearray:
    return data[parse_header(data).size_bytes :]


def flipped(data: bytearray) -> bytearray:
    data[len(data) // 2] ^= 4
    return data


def empty(data: bytearray) -> bytearray:
    return data[:0]


@pytest.mark.parametrize("spoil", [cut, without_footer, without_header, flipped, empty])
def test_a_snapshot_that_is_not_whole_is_refused(
    spoil: Callable[[bytearray], bytearray],
) -> None:
    with pytest.raises(KafkaError):
        parse_snapshot(spoil(bytearray(snapshot(1500))))
