"""Record batches: recorded files, a slow reference, building, stamping, compaction."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    MAX_SEQUENCE,
    Compression,
    RawRecord,
    Record,
    TimestampType,
    assign_offsets,
    build_batch,
    check_client_header,
    check_lengths,
    is_transactional,
    iter_headers,
    iter_records,
    parse_header,
    recompress,
    retain_records,
    sequence_after,
    set_log_append_time,
    set_max_timestamp,
    stored_attributes,
    stored_compression,
    stored_producer,
    validate_records,
    verify_crc,
)
from tests.unit.wire.batches import LOG_DIRS, T0, batch_bytes, log_bytes, reference_batch

LOGS = sorted([*LOG_DIRS.glob("*/*.log"), *LOG_DIRS.glob("*/*.checkpoint")])


# Hypothesis data: sizes around the one-, two- and three-byte varints.

blobs = st.one_of(
    st.none(),
    st.binary(max_size=70),
    st.integers(0, 20_000).map(lambda size: b"v" * size),
)
headers = st.lists(st.tuples(st.text(max_size=70), blobs), max_size=3).map(tuple)
timestamps = st.one_of(
    st.integers(T0 - 200, T0 + 9000), st.just(-1), st.integers(0, 2**62), st.just(T0)
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    rows = draw(st.lists(st.tuples(timestamps, blobs, blobs, headers), min_size=1, max_size=5))
    # Repeating the rows moves offset deltas over the varints' borders.
    rows = rows * draw(st.sampled_from([1, 1, 1, 30, 70]))
    base_offset = draw(st.sampled_from([0, 7, 2**40]))
    return [Record(base_offset + index, *row) for index, row in enumerate(rows)]


# Recorded files


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recorded_logs_read_whole(path: Path) -> None:
    """Every batch that Kafka wrote has a right CRC and as many records as its header says."""
    buf = path.read_bytes()
    end = 0
    for header in iter_headers(buf):
        assert header.position == end
        verify_crc(buf, header)
        check_lengths(buf, header)
        assert len(list(iter_records(buf, header))) == header.record_count
        end += header.size_bytes
    assert end == len(buf)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recorded_batches_are_built_to_the_byte(path: Path) -> None:
    """Uncompressed batches come out of build_batch exactly as Kafka and its clients wrote them."""
    buf = path.read_bytes()
    for header in iter_headers(buf):
        records = list(iter_records(buf, header))
        compacted = len(records) != header.last_offset_delta + 1 or header.delete_horizon
        if header.compression or compacted or header.timestamp_type:
            continue
        built = build_batch(
            records,
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
        )
        assert built == batch_bytes(buf, header)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_recorded_codec(codec: Compression) -> None:
    """librdkafka's batch in each codec holds ten records with key, value and header."""
    buf = log_bytes(f"codec-{codec.name.lower()}-0")
    (header,) = iter_headers(buf)
    assert header.compression is codec
    records = list(iter_records(buf, header))
    for index, record in enumerate(records):
        headers = record.headers
        value = b"value-%d-" % index + b"abcdefgh" * 10
        assert record == (index, T0 + index, b"key-%d" % index, value, headers)
        assert [name for name, _ in headers] == ["h"]
    assert len(records) == 10
    assert validate_records(buf, header, require_keys=True) == (T0 + 9, 9, [])


def test_recorded_nulls_and_headers() -> None:
    """Null, empty and repeated things come out as they were sent."""
    buf = log_bytes("plain-0")
    header = next(iter_headers(buf))
    records = list(iter_records(buf, header))
    assert [(record.key, record.value) for record in records] == [
        (None, b"hello"),
        (b"k", b"v"),
        (b"tomb", None),
        (b"", b""),
        (b"h", b"with headers"),
    ]
    assert [name for name, _ in records[4].headers] == ["a", "a", "null", "empty"]
    assert dict(records[4].headers)["null"] is None
    assert dict(records[4].headers)["empty"] == b""
    assert validate_records(buf, header, require_keys=True) == (T0 + 4, 4, [0])
    assert validate_records(buf, header, require_keys=False) == (T0 + 4, 4, [])


def test_recorded_log_append_time() -> None:
    """In a LogAppendTime batch every record shows the batch's max timestamp."""
    buf = log_bytes("logappend-0")
    (header,) = iter_headers(buf)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in iter_records(buf, header)} == {1795818045191}
    assert validate_records(buf, header) == (1795818045191, 0, [])


def test_recorded_compaction_is_done_to_the_byte() -> None:
    """Taking a record away, and setting a delete horizon, gives what Kafka's cleaner wrote."""
    buf = log_bytes("compacted-0")
    cleaned = {header.base_offset: header for header in iter_headers(buf)}
    ts = 1795818043830
    round_of_keys = build_batch(
        [Record(0, ts, b"k%d" % i, b"r3-v%d" % i) for i in range(5)], base_offset=21, leader_epoch=0
    )
    kept = retain_records(
        round_of_keys, parse_header(round_of_keys), lambda offset, record: record.key != b"k4"
    )
    assert kept == batch_bytes(buf, cleaned[21])
    assert cleaned[21].last_offset == 25
    tombstone = build_batch([Record(0, 1795818043859, b"k4", None)], base_offset=27, leader_epoch=0)
    header = parse_header(tombstone)
    horizon = 1795818105824
    kept = retain_records(tombstone, header, lambda offset, record: True, delete_horizon=horizon)
    assert kept == batch_bytes(buf, cleaned[27])
    assert cleaned[27].delete_horizon == horizon
    assert next(iter_records(buf, cleaned[27])).timestamp == 1795818043859


JAVA_BATCHES = {
    Compression.GZIP: (
        "00000000000000000000005effffffff02b19634f3000100000001000001a21f0b5a22000001a21f0b5a"
        "2e0000000000000002000000000000000000021f8b08000000000000ffd363606060544a4402bae95599"
        "050c460c124c8c6a492800220300209abed032000000"
    ),
    Compression.SNAPPY: (
        "00000000000000000000006cffffffff02e75f3459000200000001000001a21f0b5def000001a21f0b5e"
        "1900000000000000030000000000000000000282534e4150505900000000010000000100000027361832"
        "0000000126611d01382d736e617070790036005402012a623201001c2d736e6170707900"
    ),
    Compression.LZ4: (
        "000000000000000000000060ffffffff02a9d745cf000300000001000001a21f0b61cf000001a21f0b62"
        "1a00000000000000040000000000000000000204224d1860408220000000772c0000000120610100d92d"
        "6c7a340032009601020124620100502d6c7a340000000000"
    ),
    Compression.ZSTD: (
        "00000000000000000000005fffffffff023f93a1d6000400000001000001a21f0b651f000001a21f0b65"
        "3c00000000000000050000000000000000000228b52ffd0058140100d02e0000000122612d7a73746400"
        "32003a020126622d7a737464000200e07c031801010000"
    ),
}


@pytest.mark.parametrize("codec", JAVA_BATCHES)
def test_java_producer_batches(codec: Compression) -> None:
    """What Kafka's own producer sends in each codec is valid and read."""
    buf = bytes.fromhex(JAVA_BATCHES[codec])
    (header,) = iter_headers(buf)
    verify_crc(buf, header)
    check_client_header(header)
    info = validate_records(buf, header)
    assert (header.compression, info.max_timestamp) == (codec, header.max_timestamp)
    suffix = b"-" + codec.name.lower().encode()
    values = [record.value for record in iter_records(buf, header)]
    assert [value.strip(b"ab") for value in values if value] == [suffix, suffix]
    if codec is Compression.SNAPPY:
        plain = recompress(buf, header, Compression.NONE)
        again = recompress(plain, parse_header(plain), codec)
        assert again[BATCH_OVERHEAD : BATCH_OVERHEAD + 16] == buf[BATCH_OVERHEAD:][:16]


# Building and reading


@given(record_lists(), st.sampled_from(Compression))
@settings(max_examples=150, deadline=None)
def test_round_trip(records: list[Record], codec: Compression) -> None:
    """Any records come back from any codec, and the walk agrees about timestamps and keys."""
    buf = build_batch(records, base_offset=records[0].offset, compression=codec)
    header = parse_header(buf)
    verify_crc(buf, header)
    assert header.size_bytes == len(buf)
    assert list(iter_records(buf, header)) == records
    check_lengths(buf, header)
    stamps = [record.timestamp for record in records]
    info = validate_records(buf, header, require_keys=True)
    assert info.max_timestamp == header.max_timestamp == max(stamps)
    assert info.offset_of_max_timestamp == records[stamps.index(max(stamps))].offset
    assert info.key_errors == [i for i, record in enumerate(records) if record.key is None]


@given(record_lists())
@settings(max_examples=150, deadline=None)
def test_batches_equal_a_straightforward_reference(records: list[Record]) -> None:
    """The fast builder writes the very bytes of the slow one."""
    built = build_batch(
        records,
        base_offset=records[0].offset,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=1,
        base_sequence=5,
    )
    assert built == reference_batch(records, records[0].offset)


def test_header_fields() -> None:
    """Each header field and flag is read from its place."""
    records = [Record(0, T0, b"a", b"b"), Record(0, T0 + 5, b"c", b"d")]
    prefix = b"other"
    buf = prefix + build_batch(
        records,
        base_offset=100,
        leader_epoch=4,
        compression=Compression.ZSTD,
        producer_id=8,
        producer_epoch=2,
        base_sequence=MAX_SEQUENCE,
        transactional=True,
    )
    header = parse_header(buf, len(prefix))
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 101, 102)
    assert (header.base_sequence, header.last_sequence) == (MAX_SEQUENCE, 0)
    assert (header.base_timestamp, header.max_timestamp) == (T0, T0 + 5)
    assert (header.producer_id, header.producer_epoch) == (8, 2)
    assert (header.is_transactional, header.is_control, header.has_producer_id) == (
        True,
        False,
        True,
    )
    assert (header.partition_leader_epoch, header.magic, header.record_count) == (4, 2, 2)
    assert (header.compression, header.delete_horizon) == (Compression.ZSTD, None)
    assert (header.position, header.size_bytes) == (len(prefix), len(buf) - len(prefix))


def test_sequences_wrap_to_zero() -> None:
    """0 follows 2^31-1, and a batch without sequences has none at its end."""
    assert sequence_after(MAX_SEQUENCE, 1) == 0
    assert sequence_after(MAX_SEQUENCE - 1, 3) == 1
    assert parse_header(build_batch([Record(0, 0, None, b"")])).last_sequence == -1


def test_stamping_offsets_keeps_the_crc() -> None:
    """Base offset and leader epoch are written in place, outside the CRC, on a view as well."""
    buf = build_batch([Record(0, T0, None, b"x")] * 3)
    header = parse_header(buf)
    assign_offsets(memoryview(buf), header, 1000, 7)
    again = parse_header(buf)
    verify_crc(buf, again)
    assert again == header
    assert (again.base_offset, again.partition_leader_epoch, again.last_offset) == (1000, 7, 1002)
    assert [record.offset for record in iter_records(buf, again)] == [1000, 1001, 1002]


def test_stamping_timestamps_renews_the_crc() -> None:
    """LogAppendTime and a corrected max timestamp are written with a new CRC."""
    buf = build_batch([Record(0, T0, None, b"x"), Record(0, T0 + 1, None, b"y")])
    original = bytes(buf)
    header = parse_header(buf)
    set_log_append_time(buf, header, T0 + 500)
    again = parse_header(buf)
    verify_crc(buf, again)
    assert again == header
    assert [record.timestamp for record in iter_records(buf, again)] == [T0 + 500] * 2
    set_max_timestamp(buf, header, T0 + 1)
    assert bytes(buf) == original
    set_max_timestamp(buf, header, T0 + 1)
    assert bytes(buf) == original


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", Compression)
def test_recompress(source: Compression, target: Compression) -> None:
    """Another codec changes the size and the codec bits only; back again it is the same batch."""
    records = [Record(i, T0, b"k", b"v" * 50, (("h", b"1"),)) for i in range(40)]
    buf = build_batch(records, base_offset=5, compression=source, producer_id=3, base_sequence=0)
    changed = recompress(buf, parse_header(buf), target)
    header = parse_header(changed)
    verify_crc(changed, header)
    assert header.compression is target
    assert [record[1:] for record in iter_records(changed, header)] == [r[1:] for r in records]
    assert recompress(changed, header, source) == buf


def test_partial_last_batch() -> None:
    """An incomplete batch is an error, but for a fetch response it is just the end."""
    batch = bytes(build_batch([Record(0, T0, None, b"x" * 90)]))
    for cut in (1, 11, 60, 61, len(batch) - 1):
        buf = batch * 2 + batch[:cut]
        assert len(list(iter_headers(buf, allow_partial=True))) == 2
        with pytest.raises(CorruptBatchError):
            list(iter_headers(buf))
    header = parse_header(batch[:61])
    with pytest.raises(CorruptBatchError):
        verify_crc(batch[:-1], header)
    with pytest.raises(CorruptBatchError):
        iter_records(batch[:-1], header)


def test_delta_horizon_and_retention_of_nothing() -> None:
    """An emptied batch keeps offsets, sequences and producer; unchanged ones are not rebuilt."""
    records = [Record(i, T0 + i, b"k%d" % i, b"v") for i in range(4)]
    for codec in Compression:
        buf = build_batch(
            records, base_offset=50, compression=codec, producer_id=4, base_sequence=9
        )
        header = parse_header(buf)
        assert retain_records(buf, header, lambda offset, record: True) is None
        empty = retain_records(buf, header, lambda offset, record: False)
        assert empty is not None
        after = parse_header(empty)
        verify_crc(empty, after)
        assert (len(empty), after.record_count, list(iter_records(empty, after))) == (61, 0, [])
        assert (after.last_offset, after.last_sequence, after.max_timestamp) == (53, 12, T0 + 3)
        some = retain_records(
            buf, header, lambda offset, record: offset == 51, delete_horizon=T0 + 10**6
        )
        assert some is not None
        after = parse_header(some)
        assert list(iter_records(some, after)) == [Record(51, T0 + 1, b"k1", b"v")]
        assert (after.last_offset, after.max_timestamp) == (53, T0 + 1)
        assert after.delete_horizon == T0 + 10**6
        assert retain_records(some, after, lambda offset, record: True, delete_horizon=1) is None


def test_retention_sees_tombstones() -> None:
    """Compaction gets the key and whether there is a value."""
    buf = build_batch(
        [Record(0, T0, b"a", None), Record(0, T0, None, b""), Record(0, T0, b"c", b"")]
    )
    seen: list[tuple[int, bytes | None, bool]] = []

    def keep(offset: int, record: RawRecord) -> bool:
        seen.append((offset, record.key, record.has_value))
        return True

    retain_records(buf, parse_header(buf), keep)
    assert seen == [(0, b"a", False), (1, None, True), (2, b"c", True)]


def test_large_batch_of_many_records() -> None:
    """Offset deltas and sizes of three bytes and more are written and read."""
    rng = random.Random(3)
    records = [
        Record(
            i, T0 + rng.randrange(10**9), b"%d" % i, rng.randbytes(rng.choice([0, 63, 64, 8200]))
        )
        for i in range(9000)
    ]
    buf = build_batch(records)
    header = parse_header(buf)
    assert list(iter_records(buf, header)) == records
    assert validate_records(buf, header).max_timestamp == max(r.timestamp for r in records)


def test_what_stands_in_a_batch_is_read_without_parsing_it() -> None:
    plain = build_batch([Record(0, T0, None, b"x")])
    zstd = build_batch([Record(0, T0, None, b"x")], compression=Compression.ZSTD)
    assert (stored_compression(plain), stored_compression(zstd)) == (0, Compression.ZSTD)
    assert not is_transactional(plain)
    transactional = bytearray(plain)
    transactional[22] |= 0x10
    assert is_transactional(transactional)
    for other in (b"", plain[:22], bytes(16) + b"\1" + bytes([0xFF]) * 20):
        assert stored_attributes(other) == 0


def test_the_producer_is_read_without_the_header() -> None:
    """Of an incomplete batch nothing is said."""
    data = build_batch([Record(0, 0, None, b"x")], producer_id=7, producer_epoch=3, base_sequence=1)
    assert stored_producer(data) == (7, 3)
    assert stored_producer(memoryview(data)[: BATCH_OVERHEAD - 1]) == (-1, -1)
