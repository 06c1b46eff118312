"""The metadata log's batches and snapshots as bytes: Kafka record batches (KIP-595, KIP-630).

Owns: the one form in which they are stored and sent. Rules:
1. A batch has the same bytes on every node: a follower stores what the leader sent. So `LogBatch`
   keeps the bytes that it was read from, and `encode_batch` gives those.
2. A snapshot is a header record, data batches, and a footer record, with offsets from 0; without
   its footer it is not whole.
3. Nothing here is trusted: lengths, CRCs, and what batches claim of themselves are checked.

Called by: the metadata log on disk, raft_wire.py, quorum/service.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kraftrio.kraft_meta.raft.values import LogBatch, SnapshotId
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import CorruptBatchError, RemoteProtocolError
from kraftrio.wire.messages.quorum import SnapshotFooterRecord, SnapshotHeaderRecord
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import (
    BatchHeader,
    Record,
    build_batch,
    iter_headers,
    iter_records,
    verify_crc,
)
from kraftrio.wire.records.control import ControlRecordType, control_key, control_type

_SNAPSHOT_BATCH_RECORDS: Final = 1000


class SnapshotContents(NamedTuple):
    """What a snapshot's bytes hold: record values, and when the last record below it was made."""

    values: list[bytes]
    last_timestamp_ms: int


def encoded(batch: LogBatch) -> LogBatch:
    """Return the batch with its bytes."""
    if batch.encoded is not None:
        return batch
    keys: Sequence[bytes | None] = batch.control_keys or [None] * len(batch.values)
    data = build_batch(
        [
            Record(0, batch.timestamp_ms, key, value)
            for key, value in zip(keys, batch.values, strict=True)
        ],
        base_offset=batch.base_offset,
        leader_epoch=batch.epoch,
        control=batch.is_control,
    )
    return replace(batch, encoded=bytes(data))


def encode_batch(batch: LogBatch) -> bytes:
    """Return the bytes of a batch."""
    data = encoded(batch).encoded
    assert data is not None
    return data


def decode_batch(buf: Buffer, header: BatchHeader) -> LogBatch:
    """Read one batch.

    Raises:
        KafkaError: its bytes are damaged, or a metadata log cannot hold it.
    """
    verify_crc(buf, header)
    records = list(iter_records(buf, header))
    if not records or header.last_offset_delta != len(records) - 1:
        raise CorruptBatchError(
            f"{len(records)} records for {header.last_offset_delta + 1} offsets"
            f" at {header.base_offset}"
        )
    if header.partition_leader_epoch < 0 or header.base_offset < 0:
        raise CorruptBatchError(f"a batch without an epoch at {header.base_offset}")
    return LogBatch(
        base_offset=header.base_offset,
        epoch=header.partition_leader_epoch,
        timestamp_ms=header.max_timestamp,
        values=tuple(record.value or b"" for record in records),
        control_keys=tuple(record.key or b"" for record in records) if header.is_control else (),
        encoded=bytes(memoryview(buf)[header.position : header.position + header.size_bytes]),
    )


def decode_batches(buf: Buffer) -> list[LogBatch]:
    """Read batches that follow each other; an incomplete last one is left out.

    Raises:
        KafkaError: something is damaged.
    """
    return [decode_batch(buf, header) for header in iter_headers(buf, allow_partial=True)]


def snapshot_batches(
    snapshot_id: SnapshotId, values: Iterable[bytes], last_timestamp_ms: int
) -> Iterator[bytearray]:
    """Yield the batches of a snapshot: header, data and footer."""
    offset = 0

    def control(kind: ControlRecordType, value: bytes) -> bytearray:
        record = Record(0, last_timestamp_ms, control_key(kind), value)
        return build_batch(
            [record], base_offset=offset, leader_epoch=snapshot_id.epoch, control=True
        )

    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)
    yield control(ControlRecordType.SNAPSHOT_HEADER, encode(header, 0))
    offset += 1
    pending: list[Record] = []
    for value in values:
        pending.append(Record(0, last_timestamp_ms, None, value))
        if len(pending) == _SNAPSHOT_BATCH_RECORDS:
            yield build_batch(pending, base_offset=offset, leader_epoch=snapshot_id.epoch)
            offset += len(pending)
            pending = []
    if pending:
        yield build_batch(pending, base_offset=offset, leader_epoch=snapshot_id.epoch)
        offset += len(pending)
    yield control(ControlRecordType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(version=0), 0))


def parse_snapshot(data: Buffer) -> SnapshotContents:
    """Read a whole snapshot.

    Raises:
        KafkaError: it is damaged or not whole.
    """
    values: list[bytes] = []
    controls: list[ControlRecordType] = []
    last_timestamp_ms = -1
    for header in iter_headers(data):
        verify_crc(data, header)
        for record in iter_records(data, header):
            if not header.is_control:
                values.append(record.value or b"")
                continue
            controls.append(control_type(record.key))
            if controls[-1] is ControlRecordType.SNAPSHOT_HEADER:
                last_timestamp_ms = _header_timestamp_ms(record)
    if controls != [ControlRecordType.SNAPSHOT_HEADER, ControlRecordType.SNAPSHOT_FOOTER]:
        raise CorruptBatchError("the snapshot is incomplete")
    return SnapshotContents(values, last_timestamp_ms)


def _header_timestamp_ms(record: Record) -> int:
    header: SnapshotHeaderRecord
    try:
        header, _ = decode(SnapshotHeaderRecord, 0, record.value or b"")
    except RemoteProtocolError as error:
        raise CorruptBatchError(f"the snapshot's header is damaged: {error}") from error
    return header.last_contained_log_timestamp
