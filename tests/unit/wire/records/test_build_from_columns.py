"""Batches built from columns are those built from records, byte by byte."""

from __future__ import annotations

import random

import pytest

from kraftrio.wire.records.batch import (
    Compression,
    Record,
    build_batch,
    build_from_columns,
    iter_records,
    parse_header,
    verify_crc,
    with_producer,
)
from kraftrio.wire.records.columns import encode_uniform
from kraftrio.wire.records.walk import encode_records

BASE = 1_700_000_000_000


@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 100, 8191, 8192, 8193])
@pytest.mark.parametrize("key_size", [None, 0, 5, 70])
@pytest.mark.parametrize("value_size", [0, 1, 63, 64, 200])
def test_uniform_records(count: int, key_size: int | None, value_size: int) -> None:
    """Records of one size take the short way, where offset deltas have one or two bytes."""
    rng = random.Random(count)
    values: list[bytes | None] = [rng.randbytes(value_size) for _ in range(count)]
    keys = [None if key_size is None else rng.randbytes(key_size) for _ in range(count)]
    stamps = [BASE + (rng.randrange(64) if index else 0) for index in range(count)]
    records = [
        Record(0, stamp, key, value) for stamp, key, value in zip(stamps, keys, values, strict=True)
    ]
    pieces = encode_uniform(stamps, keys, values, BASE)
    assert (pieces is not None) == (8 <= count <= 8192)
    if pieces is not None:
        assert b"".join(pieces) == b"".join(encode_records(records, BASE))
    assert build_from_columns(stamps, keys, values, {}) == build_batch(records)


@pytest.mark.parametrize(
    "change",
    [
        "a null value",
        "a null key",
        "a longer value",
        "a longer key",
        "a late record",
        "an early one",
    ],
)
def test_one_record_that_differs(change: str) -> None:
    """Whatever breaks the pattern makes the batch take the long way, with the same result."""
    keys: list[bytes | None] = [b"k"] * 20
    values: list[bytes | None] = [b"value"] * 20
    stamps = [BASE] * 20
    if change == "a null value":
        values[13] = None
    elif change == "a null key":
        keys[13] = None
    elif change == "a longer value":
        values[13] = b"values"
    elif change == "a longer key":
        keys[13] = b"ke"
    else:
        stamps[13] += 64 if change == "a late record" else -1
    assert encode_uniform(stamps, keys, values, BASE) is None
    records = [
        Record(0, stamp, key, value) for stamp, key, value in zip(stamps, keys, values, strict=True)
    ]
    assert build_from_columns(stamps, keys, values, {}) == build_batch(records)


@pytest.mark.parametrize("compression", list(Compression))
def test_headers_and_compression(compression: Compression) -> None:
    """Headers come by index; every codec gives the records back."""
    headers = {3: (("a", b"1"), ("b", None)), 8: (("ключ", b""),)}
    values: list[bytes | None] = [b"%d" % index for index in range(12)]
    batch = build_from_columns(
        list(range(BASE, BASE + 12)), [None] * 12, values, headers, compression=compression
    )
    header = parse_header(batch)
    verify_crc(batch, header)
    assert header.compression is compression
    assert list(iter_records(batch, header)) == [
        Record(index, BASE + index, None, values[index], headers.get(index, ()))
        for index in range(12)
    ]


def test_another_place_in_the_producers_order() -> None:
    """The copy differs in producer, epoch, sequence and checksum alone."""
    before = build_from_columns([BASE], [None], [b"v"], {})
    after = with_producer(before, 7, 2, 40)
    assert after == build_from_columns(
        [BASE], [None], [b"v"], {}, producer_id=7, producer_epoch=2, base_sequence=40
    )
    verify_crc(after, parse_header(after))
    assert parse_header(before).producer_id == -1
