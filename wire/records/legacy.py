"""Message sets of magic 0 and 1, the formats before record batches: reading and converting.

Owns the old layout (protocol guide, "Message Sets"; KIP-31, KIP-32)::

    0 offset   8 message_size   12 crc   16 magic   17 attributes   [18 timestamp, magic 1]
    key and value, each with an int32 length, -1 for null

A compressed set is one message whose value is the compressed set of the inner messages.

Rules:
1. The CRC is CRC-32 (not CRC-32C) of everything from the magic on.
2. Inner offsets are absolute for magic 0; for magic 1 they are relative and the wrapper's offset is
   that of the last inner message (KIP-31). Producers may leave them all 0, so ``to_v2`` numbers the
   messages by their count and never looks at them.
3. Faults are CORRUPT_MESSAGE for sizes and CRC and INVALID_RECORD under a correct CRC, as for
   batches. Wrappers do not nest.

Called where data of old clients or old files come in; nothing writes these formats.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn
from zlib import crc32

from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import (
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    Record,
    TimestampType,
    build_batch,
)
from kraftrio.wire.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    decompress,
    repair_lz4_header_checksum,
)

_HEADER = struct.Struct(">qiIBb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC_END = 16
_MIN_MESSAGE_BYTES = {0: 14, 1: 22}
_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME_BIT = 0x08


class LegacyMessage(NamedTuple):
    """One message as it stands in the set; a wrapper's value is its compressed inner set."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def compression(self) -> Compression:
        """The codec of a wrapper's value, NONE for a plain message."""
        code = self.attributes & _COMPRESSION_MASK
        if code >= Compression.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"compression type {code} needs record batches of magic 2",
            )
        return Compression(code)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the broker gave the timestamp."""
        if self.attributes & _LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME


def is_legacy(buf: Buffer, pos: int = 0) -> bool:
    """Whether a message of magic 0 or 1 starts at ``pos``."""
    return len(buf) > pos + _CRC_END and buf[pos + _CRC_END] < 2


def iter_messages(buf: Buffer) -> Iterator[LegacyMessage]:
    """Yield the messages that fill ``buf``, wrappers as they are; each CRC is checked.

    Raises:
        KafkaError: CORRUPT_MESSAGE or INVALID_RECORD.
    """
    view = memoryview(buf)
    pos = 0
    size = len(view)
    while pos < size:
        try:
            offset, length, crc, magic, attributes = _HEADER.unpack_from(view, pos)
        except struct.error:
            raise CorruptBatchError("the message set is incomplete") from None
        if magic not in _MIN_MESSAGE_BYTES:
            raise CorruptBatchError(f"a message set cannot hold magic {magic}")
        end = pos + LOG_OVERHEAD + length
        if length < _MIN_MESSAGE_BYTES[magic]:
            raise CorruptBatchError(f"message size {length} is too small for magic {magic}")
        if end > size:
            raise CorruptBatchError("the message set is incomplete")
        actual = crc32(view[pos + _CRC_END : end])
        if actual != crc:
            raise CorruptBatchError(f"the message's CRC is {crc}, but its bytes have {actual}")
        yield _parse_message(bytes(view[pos:end]), offset, magic, attributes)
        pos = end


def _parse_message(data: bytes, offset: int, magic: int, attributes: int) -> LegacyMessage:
    pos = _HEADER.size
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _INT64.unpack_from(data, pos)
        pos += 8
    key, pos = _read_bytes(data, pos)
    value, pos = _read_bytes(data, pos)
    if pos != len(data):
        _invalid("a message does not end where its size says")
    return LegacyMessage(offset, magic, attributes, timestamp, key, value)


def _read_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    if pos + 4 > len(data):
        _invalid("a message ends before its value")
    (length,) = _INT32.unpack_from(data, pos)
    pos += 4
    if length < 0:
        return None, pos
    if length > len(data) - pos:
        _invalid("a message's key or value goes beyond its end")
    return data[pos : pos + length], pos + length


def iter_legacy_records(
    buf: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Yield all records of the set, also those in wrappers, with their absolute offsets.

    Args:
        max_decompressed_bytes: bound for all wrappers together.
    """
    left = max_decompressed_bytes
    for message in iter_messages(buf):
        if message.compression is Compression.NONE:
            yield Record(message.offset, message.timestamp, message.key, message.value)
            continue
        data = _decompress_wrapper(message, left)
        left -= len(data)
        yield from _inner_records(message, data)


def _decompress_wrapper(wrapper: LegacyMessage, max_bytes: int) -> bytes:
    if wrapper.value is None:
        _invalid("a compressed message set has no value")
    data = wrapper.value
    if wrapper.magic == 0 and wrapper.compression is Compression.LZ4:
        data = repair_lz4_header_checksum(data)
    return decompress(wrapper.compression, data, max_bytes)


def _inner_records(wrapper: LegacyMessage, data: bytes) -> Iterator[Record]:
    inner = list(iter_messages(data))
    if not inner:
        _invalid("a compressed message set is empty")
    shift = wrapper.offset - inner[-1].offset if wrapper.magic == 1 else 0
    append_time = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME and wrapper.magic == 1
    for message in inner:
        if message.magic != wrapper.magic:
            _invalid(f"a message of magic {message.magic} in a set of magic {wrapper.magic}")
        if message.compression is not Compression.NONE:
            _invalid("a compressed message set in a compressed message set")
        timestamp = wrapper.timestamp if append_time else message.timestamp
        yield Record(message.offset + shift, timestamp, message.key, message.value)


def to_v2(
    buf: Buffer,
    *,
    compression: Compression | None = None,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytearray:
    """Return one record batch with all records of the set, from offset 0 on.

    The timestamps count as CreateTime; those of magic 0 are -1.

    Args:
        compression: codec of the batch; None keeps that of the first message.

    Raises:
        KafkaError: the set is malformed or empty.
    """
    first = next(iter_messages(buf), None)
    if first is None:
        _invalid("the message set is empty")
    codec = first.compression if compression is None else compression
    records = list(iter_legacy_records(buf, max_decompressed_bytes=max_decompressed_bytes))
    return build_batch(records, compression=codec)


def _invalid(reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, reason)
