"""Codecs of record batches: framings, bounds and hostile bytes."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records import compression
from kraftrio.wire.records.compression import Compression, compress, decompress

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TEXT = b"".join(b'{"id": %d, "name": "user-%d"}' % (i, i * 7) for i in range(9000))
NOISE = random.Random(1).randbytes(100_000)
DATA = {"one byte": b"x", "text": TEXT, "noise": NOISE, "zeros": bytes(300_000)}


def error_of(codec: Compression, data: bytes, max_bytes: int = 1 << 20) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, max_bytes)
    return caught.value.code


@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
@pytest.mark.parametrize("codec", list(Compression))
def test_round_trip(codec: Compression, data: bytes) -> None:
    """What was compressed comes back, from any kind of buffer."""
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed), len(data)) == data
    assert compress(codec, memoryview(data)) == packed


@pytest.mark.parametrize("codec", list(Compression))
def test_nothing_round_trips(codec: Compression) -> None:
    """No data at all compress to a frame of their own (which an empty batch never holds)."""
    assert decompress(codec, compress(codec, b""), 0) == b""


@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
@pytest.mark.parametrize("codec", CODECS)
def test_bound_is_exact(codec: Compression, data: bytes) -> None:
    """One byte more than allowed is MESSAGE_TOO_LARGE, exactly as much is fine."""
    packed = compress(codec, data)
    assert error_of(codec, packed, len(data) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert decompress(codec, packed, len(data)) == data


def test_bound_without_codec() -> None:
    """Plain data are bounded too."""
    assert error_of(Compression.NONE, b"abc", 2) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_cut_or_foreign_bytes_are_invalid_records(codec: Compression) -> None:
    """Every proper prefix, no bytes and bytes of another kind are INVALID_RECORD."""
    packed = compress(codec, b"abcdefgh" * 40 + b"xyz")
    cuts = [packed[:end] for end in range(len(packed))]
    if codec is Compression.SNAPPY:
        cuts.remove(packed[:16])  # a header and no blocks: nothing, as snappy-java reads it
    for cut in [*cuts, packed + b"junk", b"\x00" * 20, b"\xff" * 20]:
        assert error_of(codec, cut) is ErrorCode.INVALID_RECORD


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_flipped_bytes_raise_nothing_but_kafka_errors(data: st.DataObject) -> None:
    """A damaged frame gives some bytes or a KafkaError, never another exception."""
    codec = data.draw(st.sampled_from(CODECS))
    packed = bytearray(compress(codec, b"abcdefgh" * 40 + NOISE[:50]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, bytes(packed), 5000)) <= 5000
    except KafkaError as error:
        assert error.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


@given(st.binary(max_size=200), st.sampled_from(CODECS))
@settings(max_examples=300, deadline=None)
def test_random_bytes_raise_nothing_but_kafka_errors(junk: bytes, codec: Compression) -> None:
    """Junk behind each codec's magic gives a KafkaError or a bounded result."""
    magics = {
        Compression.GZIP: b"\x1f\x8b\x08",
        Compression.SNAPPY: b"\x82SNAPPY\x00",
        Compression.LZ4: b"\x04\x22\x4d\x18",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for candidate in (junk, magics[codec] + junk):
        try:
            assert len(decompress(codec, candidate, 1000)) <= 1000
        except KafkaError as error:
            assert error.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", CODECS)
def test_frames_one_after_the_other(codec: Compression) -> None:
    """Several frames in a row are one value."""
    packed = compress(codec, b"first") + compress(codec, TEXT) + compress(codec, b"last")
    assert decompress(codec, packed, 1 << 20) == b"first" + TEXT + b"last"


def test_bombs_are_refused_without_being_inflated() -> None:
    """64 MiB of zeros in a few KiB are refused at the bound by every codec."""
    zeros = bytes(64 << 20)
    for codec in CODECS:
        assert error_of(codec, compress(codec, zeros)) is ErrorCode.MESSAGE_TOO_LARGE


def test_snappy_lies_about_its_size() -> None:
    """A raw block that claims 90 MiB in some bytes is refused before memory is taken for it."""
    claim = bytes((0x80, 0x80, 0x80, 0x2D))
    assert error_of(Compression.SNAPPY, claim + b"\x00a", 100 << 20) is ErrorCode.INVALID_RECORD


def test_snappy_reads_raw_and_xerial() -> None:
    """librdkafka sends raw blocks, Java sends xerial's framing; both are read."""
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), 1 << 20) == TEXT
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (b"one", b"two" * 999)]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    framed += b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    assert decompress(Compression.SNAPPY, framed, 1 << 20) == b"one" + b"two" * 999


def test_snappy_is_written_in_blocks_of_32_kib() -> None:
    """Java's reader allocates its block size once, so no block may be bigger."""
    packed = compress(Compression.SNAPPY, NOISE)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    sizes = []
    pos = 16
    while pos < len(packed):
        (length,) = struct.unpack_from(">i", packed, pos)
        block = packed[pos + 4 : pos + 4 + length]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        pos += 4 + length
    assert sizes == [32768, 32768, 32768, 100_000 - 3 * 32768]


def test_lz4_is_written_with_independent_blocks_and_no_size() -> None:
    """Java's reader refuses linked blocks; flags and block size are what Java itself writes."""
    assert compress(Compression.LZ4, TEXT)[:6] == b"\x04\x22\x4d\x18\x60\x40"


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_lz4_reads_any_flags(linked: bool, checksums: bool) -> None:
    """Content size, checksums and linked blocks of other clients are understood."""
    packed = lz4.frame.compress(
        TEXT,
        block_linked=linked,
        content_checksum=checksums,
        block_checksum=checksums,
        store_size=checksums,
    )
    assert decompress(Compression.LZ4, packed, 1 << 20) == TEXT


def test_lz4_wrong_header_checksum_is_refused_and_repaired() -> None:
    """Magic-0 clients computed the header checksum over the magic too; repairing it helps."""
    for store_size in (False, True):
        good = lz4.frame.compress(TEXT, store_size=store_size)
        position = 14 if store_size else 6
        broken = bytearray(good)
        broken[position] ^= 0x55
        assert error_of(Compression.LZ4, bytes(broken)) is ErrorCode.INVALID_RECORD
        assert compression.repair_lz4_header_checksum(broken) == good
    for short in (b"", b"\x04\x22\x4d\x18\x68\x40", bytes(30)):
        with pytest.raises(KafkaError):
            compression.repair_lz4_header_checksum(short)


def test_zstd_reads_frames_without_size_and_skippable_frames() -> None:
    """Java streams zstd without a content size; skippable frames are skipped."""
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    packed = skippable + unsized + skippable
    assert decompress(Compression.ZSTD, packed, 1 << 20) == TEXT


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [-1, *compression.GZIP_LEVELS]),
        (Compression.LZ4, list(compression.LZ4_LEVELS)),
        (Compression.ZSTD, [-131072, -5, *range(1, 23)]),
    ],
)
def test_every_level_of_kafka_is_accepted(codec: Compression, levels: list[int]) -> None:
    """Each value of compression.*.level gives readable data; a higher one packs better."""
    sizes = []
    for level in levels:
        packed = compress(codec, TEXT[:20_000], level)
        assert decompress(codec, packed, 1 << 20) == TEXT[:20_000]
        sizes.append(len(packed))
    assert sizes[-1] < sizes[1]


def test_default_levels_are_those_of_kafka() -> None:
    """No level means gzip 6, lz4 9 (which Kafka maps to the fast compressor) and zstd 3."""
    assert compress(Compression.GZIP, TEXT) == compress(Compression.GZIP, TEXT, 6)
    assert zlib.decompress(compress(Compression.GZIP, TEXT), wbits=31) == TEXT
    assert gzip.decompress(compress(Compression.GZIP, TEXT, 1)) == TEXT
    assert compress(Compression.LZ4, TEXT) == compress(Compression.LZ4, TEXT, 9)
    assert compress(Compression.ZSTD, TEXT) == compress(Compression.ZSTD, TEXT, 3)


def test_codecs_run_in_several_threads() -> None:
    """Reused contexts are never shared by two calls at a time."""
    inputs = [bytes((i,)) * 200_000 + NOISE[: 1000 * i] for i in range(16)]

    def round_trip(data: bytes) -> bool:
        return all(decompress(codec, compress(codec, data), 1 << 20) == data for codec in CODECS)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(round_trip, inputs))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
def test_very_many_streams_in_a_row_are_refused(codec: Compression) -> None:
    """Each costs a copy of all that follows, so a few bytes each would cost minutes."""
    one = compress(codec, b"x")
    assert decompress(codec, one * 500, 10_000) == b"x" * 500
    with pytest.raises(KafkaError) as caught:
        decompress(codec, one * 501, 10_000)
    assert caught.value.code is ErrorCode.INVALID_RECORD
