"""Control records: the key and value bytes of what only brokers write into a log.

A control record's key is int16 version and int16 type. Owns the end-transaction markers (KIP-98)
completely; for the KRaft records (leader change, snapshot header and footer, KIP-595, KIP-630) the
value comes from the caller as bytes, because their messages are declared with the others.

Called by the transaction coordinator's marker writes, the log (replay of producer state), the
metadata quorum and the consumer.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import BatchHeader, Record, build_batch, iter_records

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """The type in a control record's key; UNKNOWN is any that this version does not know."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    commit: bool
    coordinator_epoch: int


def control_key(record_type: ControlRecordType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(0, record_type)


def control_type(key: bytes | None) -> ControlRecordType:
    """Return the type that ``key`` names.

    Raises:
        KafkaError: INVALID_RECORD when the key is not that of a control record.
    """
    if key is None or len(key) < _KEY.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a control record needs a key of 4 bytes")
    version, code = _KEY.unpack_from(key)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid control record version {version}")
    try:
        return ControlRecordType(code)
    except ValueError:
        return ControlRecordType.UNKNOWN


def build_control_batch(
    record_type: ControlRecordType,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Build a batch of one KRaft control record with an encoded ``value``."""
    return build_batch(
        [Record(base_offset, timestamp, control_key(record_type), value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        control=True,
    )


def build_end_transaction_batch(
    producer_id: int,
    producer_epoch: int,
    marker: EndTransactionMarker,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Build the batch that ends a transaction in one partition."""
    kind = ControlRecordType.COMMIT if marker.commit else ControlRecordType.ABORT
    value = _MARKER.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, control_key(kind), value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """Return the marker in a control record, None when it is another kind of record.

    Raises:
        KafkaError: INVALID_RECORD for malformed bytes.
    """
    kind = control_type(record.key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the transaction marker is too short")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid transaction marker version {version}")
    return EndTransactionMarker(kind is ControlRecordType.COMMIT, coordinator_epoch)


def read_end_transaction_marker(buf: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker of a control batch; None when compaction emptied it or for other kinds."""
    if not header.is_control or not header.has_producer_id:
        return None
    for record in iter_records(buf, header):
        return end_transaction_marker(record)
    return None
