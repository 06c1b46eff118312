"""The codecs of record batches: gzip, snappy, lz4 and zstd, each bounded when it decompresses.

Owns the framing that Kafka's Java client puts around each codec (protocol guide, "Record Batch";
KIP-110 for zstd, KIP-390 for the levels):

- gzip: one or several gzip members.
- snappy: written in the framing of xerial's snappy-java (``82 SNAPPY 00``, version, then blocks of
  32 KiB with an int32 length); read both so and as one raw block, which librdkafka and sarama send.
- lz4: LZ4 frames with independent blocks, since the Java client refuses linked ones. Magic-0
  message sets carry a header checksum computed over too many bytes (KAFKA-3160).
- zstd: frames without a dictionary.

Rules: ``decompress`` never returns nor holds much more than ``max_bytes``, whatever the data claim.
Data that do not decompress are INVALID_RECORD: the batch's CRC was right, so the sender wrote them
like this and sending them again does not help. Too much data is MESSAGE_TOO_LARGE, upon which the
Java producer splits the batch. Called by ``records/batch`` and ``records/legacy``. All functions
may run in several threads at once.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Any

import lz4.frame
import zstandard

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
"""Bound used when the caller names none: a hundred times Kafka's default message.max.bytes."""

GZIP_LEVELS = range(1, 10)
LZ4_LEVELS = range(1, 18)
ZSTD_LEVELS = range(-131072, 23)
GZIP_DEFAULT_LEVEL = -1
LZ4_DEFAULT_LEVEL = 9
ZSTD_DEFAULT_LEVEL = 3

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")
_CHUNK_BYTES = 1024 * 1024
# Streams one after the other, as gzip and lz4 allow; each copies what follows it.
_MAX_STREAMS = 500

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_UINT32_LE = struct.Struct("<I")


class Compression(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(compression: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress ``data`` the way Kafka's Java client frames it.

    Args:
        level: value of ``compression.{gzip,lz4,zstd}.level``; None is Kafka's default.
    """
    if compression is Compression.GZIP:
        packer = zlib.compressobj(GZIP_DEFAULT_LEVEL if level is None else level, wbits=31)
        return packer.compress(data) + packer.flush()
    if compression is Compression.SNAPPY:
        return _compress_snappy(data)
    if compression is Compression.LZ4:
        return _compress_lz4(data, level)
    if compression is Compression.ZSTD:
        return _compress_zstd(data, ZSTD_DEFAULT_LEVEL if level is None else level)
    return bytes(data)


def decompress(
    compression: Compression, data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Decompress ``data``, at most ``max_bytes`` of it.

    Raises:
        KafkaError: INVALID_RECORD when the data are not of this codec or incomplete,
            MESSAGE_TOO_LARGE when they hold more than ``max_bytes``.
    """
    if compression is Compression.GZIP:
        return _decompress_gzip(data, max_bytes)
    if compression is Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if compression is Compression.LZ4:
        return _decompress_lz4(data, max_bytes)
    if compression is Compression.ZSTD:
        return _decompress_zstd(data, max_bytes)
    if len(data) > max_bytes:
        raise _too_large(compression, max_bytes)
    return bytes(data)


def repair_lz4_header_checksum(data: Buffer) -> bytes:
    """Return the LZ4 frame of a magic-0 message set with the right header checksum.

    Old clients computed that byte over the frame's magic number too; Kafka ignores it for magic 0.
    """
    frame = bytearray(data)
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise _undecodable(Compression.LZ4, "no frame header")
    flags = frame[4]
    descriptor_end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if descriptor_end >= len(frame):
        raise _undecodable(Compression.LZ4, "truncated frame header")
    frame[descriptor_end] = _xxh32_short(bytes(frame[4:descriptor_end])) >> 8 & 0xFF
    return bytes(frame)


def _too_large(compression: Compression, max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the {compression.name.lower()} data hold more than {max_bytes} bytes",
    )


def _undecodable(compression: Compression, reason: object) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD, f"the {compression.name.lower()} data cannot be read: {reason}"
    )


# gzip


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    out: list[bytes] = []
    left = max_bytes
    rest: Buffer = data
    for _ in range(_MAX_STREAMS):
        unpacker = zlib.decompressobj(wbits=31)
        try:
            # One byte above the bound shows "too much" from "exactly full"; 0 would mean no bound.
            piece = unpacker.decompress(rest, left + 1)
        except zlib.error as error:
            raise _undecodable(Compression.GZIP, error) from None
        left -= len(piece)
        if left < 0:
            raise _too_large(Compression.GZIP, max_bytes)
        out.append(piece)
        if not unpacker.eof:
            raise _undecodable(Compression.GZIP, "the stream is incomplete")
        rest = unpacker.unused_data
        if not rest:
            return out[0] if len(out) == 1 else b"".join(out)
    raise _undecodable(Compression.GZIP, f"more than {_MAX_STREAMS} streams")


# snappy


def _cramjam() -> Any:
    """The library of snappy's raw blocks: 1.5 MB that a broker needs once a client uses snappy."""
    import cramjam

    return cramjam


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(_cramjam().snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes, max_bytes)
    out: list[bytes] = []
    left = max_bytes
    pos = len(_XERIAL_HEADER)
    size = len(view)
    if pos > size:
        raise _undecodable(Compression.SNAPPY, "truncated header")
    while pos < size:
        if view[pos : pos + 8] == _XERIAL_MAGIC:  # streams written one after the other
            pos += len(_XERIAL_HEADER)
            continue
        if pos + 4 > size:
            raise _undecodable(Compression.SNAPPY, "truncated block length")
        (length,) = _INT32.unpack_from(view, pos)
        pos += 4
        if not 0 < length <= size - pos:
            raise _undecodable(Compression.SNAPPY, f"impossible block length {length}")
        block = _decompress_snappy_block(view[pos : pos + length], left, max_bytes)
        left -= len(block)
        out.append(block)
        pos += length
    return out[0] if len(out) == 1 else b"".join(out)


def _decompress_snappy_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    """Decompress one raw block; its first bytes name its size, which is checked before use."""
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _undecodable(Compression.SNAPPY, "no valid length")
    if claimed > left:
        raise _too_large(Compression.SNAPPY, max_bytes)
    # A copy of 64 bytes takes 2 bytes at least, so a bigger claim is a lie: do not allocate for it.
    if claimed > 64 * len(block):
        raise _undecodable(Compression.SNAPPY, f"impossible length {claimed}")
    try:
        return bytes(_cramjam().snappy.decompress_raw(block))
    except _cramjam().DecompressionError as error:
        raise _undecodable(Compression.SNAPPY, error) from None


# lz4


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # As in Kafka, the default level means the fast compressor and any other the high one,
    # whose levels in the C library are 3 to 12.
    native = 0 if level is None or level == LZ4_DEFAULT_LEVEL else min(max(level, 3), 12)
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=native,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def _decompress_lz4(data: Buffer, max_bytes: int) -> bytes:
    out: list[bytes] = []
    left = max_bytes
    # A first guess of the output's size: enough for most batches, little for a tiny one.
    chunk_bytes = min(max(4 * len(data), 64 * 1024), _CHUNK_BYTES * 4)
    rest: Buffer = data
    for _ in range(_MAX_STREAMS):
        if not rest:
            break
        unpacker = lz4.frame.LZ4FrameDecompressor()
        pending: Buffer = rest
        while not unpacker.eof:
            try:
                piece = unpacker.decompress(pending, max_length=min(left + 1, chunk_bytes))
            except RuntimeError as error:
                raise _undecodable(Compression.LZ4, error) from None
            left -= len(piece)
            if left < 0:
                raise _too_large(Compression.LZ4, max_bytes)
            if not piece and not unpacker.eof and unpacker.needs_input:
                raise _undecodable(Compression.LZ4, "the frame is incomplete")
            out.append(piece)
            pending = b""
        rest = unpacker.unused_data or b""
    if rest:
        raise _undecodable(Compression.LZ4, f"more than {_MAX_STREAMS} frames")
    if not out:
        raise _undecodable(Compression.LZ4, "no frame")
    return out[0] if len(out) == 1 else b"".join(out)


def _xxh32_short(data: bytes) -> int:
    """Return xxHash32 (seed 0) of fewer than 16 bytes: a frame descriptor has at most 14."""
    prime1, prime2, prime3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
    prime4, prime5, mask = 0x27D4EB2F, 0x165667B1, 0xFFFFFFFF
    value = prime5 + len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = value + word * prime3 & mask
        value = (value << 17 | value >> 15) * prime4 & mask
    for byte in data[whole:]:
        value = value + byte * prime5 & mask
        value = (value << 11 | value >> 21) * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


# zstd: contexts are costly to make and must not be shared by threads, so each use takes one out
# of a list and puts it back (both atomic).

_zstd_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}
_zstd_decompressors: list[zstandard.ZstdDecompressor] = []


def _compress_zstd(data: Buffer, level: int) -> bytes:
    pool = _zstd_compressors.setdefault(level, [])
    try:
        packer = pool.pop()
    except IndexError:
        packer = zstandard.ZstdCompressor(level=level)
    try:
        return packer.compress(data)
    finally:
        pool.append(packer)


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    _check_zstd_frames(memoryview(data))
    try:
        unpacker = _zstd_decompressors.pop()
    except IndexError:
        unpacker = zstandard.ZstdDecompressor()
    out: list[bytes] = []
    left = max_bytes
    chunk_bytes = min(max(8 * len(data), 64 * 1024), _CHUNK_BYTES)
    try:
        with unpacker.stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(min(left + 1, chunk_bytes)):
                left -= len(piece)
                if left < 0:
                    raise _too_large(Compression.ZSTD, max_bytes)
                out.append(piece)
    except zstandard.ZstdError as error:
        raise _undecodable(Compression.ZSTD, error) from None
    finally:
        _zstd_decompressors.append(unpacker)
    return out[0] if len(out) == 1 else b"".join(out)


def _check_zstd_frames(view: memoryview) -> None:
    """Check that ``view`` is a sequence of whole frames (RFC 8878).

    The library's bounded reader ends without an error where the last frame is incomplete.
    """
    pos = 0
    size = len(view)
    try:
        while True:
            (magic,) = _UINT32_LE.unpack_from(view, pos)
            pos += 4
            if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC:
                pos += 4 + _UINT32_LE.unpack_from(view, pos)[0]
            elif magic == _ZSTD_MAGIC:
                pos = _zstd_frame_end(view, pos)
            else:
                raise _undecodable(Compression.ZSTD, "unknown frame")
            if pos == size:
                return
            if pos > size:
                break
    except (struct.error, IndexError):
        pos = size
    raise _undecodable(Compression.ZSTD, "the frame is incomplete")


def _zstd_frame_end(view: memoryview, pos: int) -> int:
    """Return the position after the frame whose header starts at ``pos``."""
    descriptor = view[pos]
    single_segment = descriptor >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    pos += 1 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
    last = False
    while not last:
        header = view[pos] | view[pos + 1] << 8 | view[pos + 2] << 16
        last = bool(header & 1)
        pos += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)  # a run-length block is one byte
    return pos + (4 if descriptor & 4 else 0)
