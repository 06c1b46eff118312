"""Record batches of magic 2: headers, checksums, stamping in place, reading, checking, building.

Owns Kafka's on-disk and on-wire unit of data (KIP-98; protocol guide, "Record Batch")::

    0 base_offset      8 batch_length   12 partition_leader_epoch  16 magic      17 crc
    21 attributes     23 last_offset_delta   27 base_timestamp     35 max_timestamp
    43 producer_id    51 producer_epoch      53 base_sequence      57 record_count   61 records

Rules:
1. The CRC-32C covers everything from the attributes on. ``base_offset`` and
   ``partition_leader_epoch`` lie before it, so the broker stamps them without touching the CRC.
2. ``parse_header`` reads only the header: the rest of the batch need not be in the buffer.
3. Functions that write in place also update the ``BatchHeader`` they were given.
4. Faults are ``KafkaError``: CORRUPT_MESSAGE for sizes, magic and CRC, INVALID_RECORD for what is
   wrong under a correct CRC (also magic 0 and 1, which Produce v3+ must refuse so; see
   ``records/legacy`` for them), MESSAGE_TOO_LARGE for data that decompress beyond the bound.

``records/walk`` reads and writes the single records; its types are exported here too. The log, the
replica manager, the coordinators, the metadata log and the clients call this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    compress,
    decompress,
)
from kraftrio.wire.records.walk import (
    Headers,
    RawRecord,
    Record,
    check_records,
    decode_records,
    encode_columns,
    encode_records,
    iter_raw_records,
    rebase_timestamp,
    walk_lengths,
)

__all__ = [
    "BASE_OFFSET_BYTES",
    "BATCH_OVERHEAD",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "HEADER_WALK",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAGIC_POSITION",
    "MAX_PRODUCER_EPOCH",
    "MAX_SEQUENCE",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "TRANSACTIONAL_BIT",
    "BatchHeader",
    "Compression",
    "LegacyFormatError",
    "RawRecord",
    "Record",
    "RecordsInfo",
    "TimestampType",
    "assemble",
    "assign_offsets",
    "build_batch",
    "build_from_columns",
    "check_client_header",
    "check_lengths",
    "is_later_sequence",
    "iter_headers",
    "iter_records",
    "parse_header",
    "recompress",
    "records_data",
    "retain_records",
    "sequence_after",
    "set_log_append_time",
    "set_max_timestamp",
    "stored_base_offset",
    "stored_producer",
    "stored_size",
    "validate_records",
    "verify_crc",
    "with_producer",
]

LOG_OVERHEAD = 12
"""Base offset and length, which every batch of any magic starts with."""
BATCH_OVERHEAD = 61
"""Size of a magic-2 header; the records follow."""
MAGIC = 2
MAGIC_POSITION = 16
"""Where the magic lies in a batch; offset and leader epoch, which brokers stamp, lie before it."""
BASE_OFFSET_BYTES = 8
"""What `stored_base_offset` needs of a batch."""
HEADER_WALK = struct.Struct(">qi11xi")
"""Base offset, length (of what follows it) and last offset delta: for walks from batch to batch."""
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 0x7FFF
MAX_SEQUENCE = 0x7FFF_FFFF

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")

_LENGTH_POS = 8
_EPOCH_POS = 12
_CRC_POS = 17
_ATTRIBUTES_POS = 21
_MAX_TIMESTAMP_POS = 35
_PRODUCER_POS = 43

_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40

_MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF


class TimestampType(IntEnum):
    """Who gave the timestamps of a batch: its producer or the broker that appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class LegacyFormatError(CorruptBatchError):
    """A message set of magic 0 or 1 where only magic 2 is allowed: INVALID_RECORD on the wire."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record batches must have magic 2, but this one has {magic}")
        self.code = ErrorCode.INVALID_RECORD


@dataclass(slots=True)
class BatchHeader:
    """The header of one batch and the position in the buffer where it starts."""

    base_offset: int
    size_bytes: int  # the whole batch, with the 12 bytes of base offset and length
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch was written with."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return sequence_after(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        """The codec of the records.

        Raises:
            KafkaError: UNSUPPORTED_COMPRESSION_TYPE for the numbers Kafka has no codec for.
        """
        code = self.attributes & _COMPRESSION_MASK
        if code > Compression.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {code}"
            )
        return _COMPRESSIONS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the records' own timestamps count or ``max_timestamp`` stands for them all."""
        if self.attributes & _LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (its end marker does too)."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, which consumers never see."""
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id >= 0

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may drop the batch's tombstones or markers; None while not decided."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON_BIT else None


class RecordsInfo(NamedTuple):
    """What ``validate_records`` found; ``key_errors`` are indexes of records without a key."""

    max_timestamp: int
    offset_of_max_timestamp: int
    key_errors: list[int]


def sequence_after(sequence: int, increment: int) -> int:
    """Return the sequence ``increment`` records later; 0 follows 2^31-1."""
    return (sequence + increment) & MAX_SEQUENCE


def is_later_sequence(sequence: int, other: int) -> bool:
    """Return whether a sequence comes after another, not very long after; 0 follows 2^31-1."""
    return 0 < (sequence - other) & MAX_SEQUENCE < 1 << 30


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the batch header at ``pos``.

    Raises:
        LegacyFormatError: magic 0 or 1.
        CorruptBatchError: truncated header, impossible size or unknown magic.
    """
    try:
        header = BatchHeader(*(*_HEADER.unpack_from(buf, pos), pos))
    except struct.error:
        _reject_short(buf, pos)
    if header.magic != MAGIC:
        _reject_magic(header.magic)
    if header.size_bytes < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise CorruptBatchError(f"batch length {header.size_bytes} is below that of a header")
    header.size_bytes += LOG_OVERHEAD
    return header


def _reject_short(buf: Buffer, pos: int) -> NoReturn:
    if pos + MAGIC_POSITION < len(buf) and buf[pos + MAGIC_POSITION] != MAGIC:
        _reject_magic(buf[pos + MAGIC_POSITION])
    raise CorruptBatchError(f"{len(buf) - pos} bytes are too few for a batch header")


def _reject_magic(magic: int) -> NoReturn:
    if magic in (0, 1):
        raise LegacyFormatError(magic)
    raise CorruptBatchError(f"unknown magic {magic}")


def stored_base_offset(buf: Buffer, pos: int = 0) -> int:
    """The base offset of the batch that is said to begin at ``pos``; nothing is checked."""
    offset: int = _INT64.unpack_from(buf, pos)[0]
    return offset


def stored_size(buf: Buffer, pos: int = 0) -> int:
    """The size of a batch by its length field, unchecked; 0 when its header is not all there."""
    if len(buf) - pos < BATCH_OVERHEAD:
        return 0
    length: int = _INT32.unpack_from(buf, pos + _LENGTH_POS)[0]
    return LOG_OVERHEAD + length if length > 0 else BATCH_OVERHEAD


def stored_attributes(buf: Buffer) -> int:
    """The low byte of the attributes of the first batch; 0 when it is not of magic 2."""
    if len(buf) > _ATTRIBUTES_POS + 1 and buf[MAGIC_POSITION] == MAGIC:
        return buf[_ATTRIBUTES_POS + 1]
    return 0


def stored_compression(buf: Buffer) -> int:
    """The number of the first batch's compression codec; 0 (none) when it is not of magic 2."""
    return stored_attributes(buf) & _COMPRESSION_MASK


def stored_producer(buf: Buffer) -> tuple[int, int]:
    """Producer id and epoch of the first batch, unchecked; (-1, -1) when it is incomplete."""
    if len(buf) < BATCH_OVERHEAD:
        return -1, -1
    producer_id, producer_epoch, _ = _PRODUCER.unpack_from(buf, _PRODUCER_POS)
    return producer_id, producer_epoch


def is_transactional(buf: Buffer) -> bool:
    """Is the first batch part of a transaction?"""
    return bool(stored_attributes(buf) & TRANSACTIONAL_BIT)


def iter_headers(buf: Buffer, *, allow_partial: bool = False) -> Iterator[BatchHeader]:
    """Yield the headers of the batches that fill ``buf``.

    Args:
        allow_partial: end quietly at an incomplete last batch, as a Fetch response may hold.
    """
    pos = 0
    size = len(buf)
    while pos < size:
        if allow_partial and size - pos < BATCH_OVERHEAD:
            return
        header = parse_header(buf, pos)
        if header.size_bytes > size - pos:
            if allow_partial:
                return
            raise CorruptBatchError(
                f"the batch has {header.size_bytes} bytes, but only {size - pos} are there"
            )
        yield header
        pos += header.size_bytes


def verify_crc(buf: Buffer, header: BatchHeader) -> None:
    """Compare the batch's checksum with its bytes.

    Raises:
        CorruptBatchError: they differ, or ``buf`` ends before the batch does.
    """
    pos = header.position
    end = pos + header.size_bytes
    if end > len(buf):
        raise CorruptBatchError("the batch is incomplete")
    actual = crc32c(memoryview(buf)[pos + _ATTRIBUTES_POS : end])
    if actual != header.crc:
        raise CorruptBatchError(f"the batch's CRC is {header.crc}, but its bytes have {actual}")


def check_client_header(header: BatchHeader) -> None:
    """Check what a producer may not claim in a header, as Kafka's LogValidator does.

    Raises:
        KafkaError: INVALID_RECORD, or INVALID_TIMESTAMP for a batch that claims LogAppendTime.
    """
    if header.record_count <= 0:
        _invalid(f"invalid record count {header.record_count}")
    if header.last_offset_delta != header.record_count - 1:
        _invalid(
            f"{header.record_count} records do not fit the last offset delta "
            f"{header.last_offset_delta}"
        )
    if header.is_control:
        _invalid("clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        _invalid(f"invalid sequence {header.base_sequence} for a batch with a producer id")
    if header.is_transactional and header.producer_id < 0:
        _invalid("a transactional batch needs a producer id")
    if header.attributes & _LOG_APPEND_TIME_BIT:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "producers may not set the timestamp type LogAppendTime"
        )


# Stamping in place


def assign_offsets(
    buf: bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int
) -> None:
    """Write the base offset and the leader epoch; the CRC does not cover them."""
    pos = header.position
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + _EPOCH_POS, leader_epoch)
    header.base_offset = base_offset
    header.partition_leader_epoch = leader_epoch


def set_log_append_time(buf: bytearray | memoryview, header: BatchHeader, now_ms: int) -> None:
    """Make the batch one of LogAppendTime: every record shows ``now_ms``."""
    _set_timestamp(buf, header, header.attributes | _LOG_APPEND_TIME_BIT, now_ms)


def set_max_timestamp(buf: bytearray | memoryview, header: BatchHeader, timestamp: int) -> None:
    """Write the true max timestamp of a CreateTime batch."""
    _set_timestamp(buf, header, header.attributes & ~_LOG_APPEND_TIME_BIT, timestamp)


def _set_timestamp(
    buf: bytearray | memoryview, header: BatchHeader, attributes: int, max_timestamp: int
) -> None:
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    pos = header.position
    _ATTRIBUTES.pack_into(buf, pos + _ATTRIBUTES_POS, attributes)
    _INT64.pack_into(buf, pos + _MAX_TIMESTAMP_POS, max_timestamp)
    crc = crc32c(memoryview(buf)[pos + _ATTRIBUTES_POS : pos + header.size_bytes])
    _CRC.pack_into(buf, pos + _CRC_POS, crc)
    header.attributes = attributes
    header.max_timestamp = max_timestamp
    header.crc = crc


# Reading and checking


def records_data(buf: Buffer, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    """Return the batch's records, uncompressed.

    The copy is deliberate: indexing ``bytes`` is twice as fast as indexing a memoryview.
    """
    start = header.position + BATCH_OVERHEAD
    end = header.position + header.size_bytes
    if end > len(buf):
        raise CorruptBatchError("the batch is incomplete")
    compression = header.compression
    if compression is Compression.NONE:
        return bytes(buf[start:end])
    if start == end and not header.record_count:
        return b""
    return decompress(compression, memoryview(buf)[start:end], max_decompressed_bytes)


def iter_records(
    buf: Buffer,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[Record]:
    """Yield the batch's records with their offsets and timestamps; decompresses at once.

    Raises:
        KafkaError: the records do not decompress, or, while iterating, a record is malformed.
    """
    data = records_data(buf, header, max_decompressed_bytes)
    append_time = header.max_timestamp if header.attributes & _LOG_APPEND_TIME_BIT else None
    return decode_records(
        data, header.record_count, header.base_offset, header.base_timestamp, append_time
    )


def check_lengths(
    buf: Buffer,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> None:
    """Check only that the records' sizes fill the batch: a third of ``validate_records``' cost."""
    walk_lengths(records_data(buf, header, max_decompressed_bytes), header.record_count)


def validate_records(
    buf: Buffer,
    header: BatchHeader,
    *,
    require_keys: bool = False,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordsInfo:
    """Walk all records of a produced batch: sizes, consecutive offsets, count, timestamps, keys.

    The caller decides about ``key_errors`` (they are collected so that it can report all) and
    about the range of timestamps. Offsets are those of the header as it is.

    Raises:
        KafkaError: INVALID_RECORD for a fault of structure, CORRUPT_MESSAGE for an incomplete
            batch, MESSAGE_TOO_LARGE for too much compressed data.
    """
    count = header.record_count
    if count <= 0:
        _invalid(f"invalid record count {count}")
    if header.last_offset_delta != count - 1:
        _invalid(f"{count} records do not fit the last offset delta {header.last_offset_delta}")
    data = records_data(buf, header, max_decompressed_bytes)
    max_delta, index, null_keys = check_records(data, count)
    if header.attributes & _LOG_APPEND_TIME_BIT:
        max_timestamp = header.max_timestamp
        index = 0
    else:
        max_timestamp = header.base_timestamp + max_delta
        if not -_MAX_INT64 <= max_timestamp <= _MAX_INT64:
            _invalid(f"impossible timestamp {max_timestamp}")
    return RecordsInfo(max_timestamp, header.base_offset + index, null_keys if require_keys else [])


def _invalid(reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, reason)


# Building


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """Build a batch of at least one record.

    The records' own offsets are not looked at: they get ``base_offset``, ``base_offset + 1``...
    """
    assert records, "a batch needs a record"
    base_timestamp = records[0].timestamp
    pieces = encode_records(records, base_timestamp)
    if compression is not Compression.NONE:
        pieces = [compress(compression, b"".join(pieces), level)]
    attributes = (
        compression
        | timestamp_type << 3
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (_CONTROL_BIT if control else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        size_bytes=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max([record[1] for record in records]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
        position=0,
    )
    return assemble(header, pieces)


def build_from_columns(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Mapping[int, Headers],
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Build a batch as a producer sends it, without an object per record.

    Args:
        timestamps, keys, values: of each record; at least one.
        headers: by the record's index, of those that have any.
    """
    count = len(timestamps)
    assert count == len(keys) == len(values) > 0, "columns of one length, of at least one record"
    pieces = encode_columns(timestamps, keys, values, headers, timestamps[0])
    if compression is not Compression.NONE:
        pieces = [compress(compression, b"".join(pieces), level)]
    header = BatchHeader(
        base_offset=0,
        size_bytes=0,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=compression | (TRANSACTIONAL_BIT if transactional else 0),
        last_offset_delta=count - 1,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
        position=0,
    )
    return assemble(header, pieces)


def with_producer(
    batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int
) -> bytearray:
    """Return a copy of a whole batch with another place in a producer's order."""
    buf = bytearray(batch)
    _PRODUCER.pack_into(buf, _PRODUCER_POS, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(buf, _CRC_POS, crc32c(memoryview(buf)[_ATTRIBUTES_POS:]))
    return buf


def assemble(header: BatchHeader, pieces: Sequence[Buffer]) -> bytearray:
    """Put the header before the records' pieces; size and CRC are computed here."""
    buf = bytearray().join([_EMPTY_HEADER, *pieces])
    _HEADER.pack_into(
        buf,
        0,
        header.base_offset,
        len(buf) - LOG_OVERHEAD,
        header.partition_leader_epoch,
        MAGIC,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    _CRC.pack_into(buf, _CRC_POS, crc32c(memoryview(buf)[_ATTRIBUTES_POS:]))
    return buf


def recompress(
    buf: Buffer,
    header: BatchHeader,
    compression: Compression,
    *,
    level: int | None = None,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytearray:
    """Return the batch with its records' bytes in another codec and everything else the same."""
    data = records_data(buf, header, max_decompressed_bytes)
    if compression is not Compression.NONE:
        data = compress(compression, data, level)
    attributes = header.attributes & ~_COMPRESSION_MASK | compression
    return assemble(replace(header, attributes=attributes), [data])


def retain_records(
    buf: Buffer,
    header: BatchHeader,
    keep: Callable[[int, RawRecord], bool],
    *,
    delete_horizon: int | None = None,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytearray | None:
    """Return the batch with only the records ``keep(offset, record)`` wants, for compaction.

    Offsets, the last offset, sequences and the producer stay as they are, also when no record is
    left: whether an empty batch is worth keeping (the last one of its producer is) the caller
    decides. None means that nothing changes.

    Args:
        delete_horizon: when tombstones or markers in the batch may go; written only once.
    """
    data = records_data(buf, header, max_decompressed_bytes)
    records = list(iter_raw_records(data, header.record_count))
    base_offset = header.base_offset
    kept = [record for record in records if keep(base_offset + record.offset_delta, record)]
    settled = delete_horizon is None or header.delete_horizon is not None
    if len(kept) == len(records) and settled:
        return None
    shift = 0
    new = replace(header, record_count=len(kept))
    if not kept:  # as Kafka writes an empty batch
        new.base_timestamp = NO_TIMESTAMP
        new.attributes &= ~(_COMPRESSION_MASK | _DELETE_HORIZON_BIT)
        return assemble(new, [])
    if delete_horizon is not None and header.delete_horizon is None:
        shift = header.base_timestamp - delete_horizon
        new.base_timestamp = delete_horizon
        new.attributes |= _DELETE_HORIZON_BIT
    if not header.attributes & _LOG_APPEND_TIME_BIT:
        new.max_timestamp = max(header.base_timestamp + record.timestamp_delta for record in kept)
    pieces = [
        rebase_timestamp(record, record.timestamp_delta + shift) if shift else record.data
        for record in kept
    ]
    if header.compression is not Compression.NONE:
        pieces = [compress(header.compression, b"".join(pieces))]
    return assemble(new, pieces)


_COMPRESSIONS = tuple(Compression)
_EMPTY_HEADER = bytes(BATCH_OVERHEAD)
