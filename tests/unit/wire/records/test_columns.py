"""Checking records by columns decides exactly what walking them one by one decides."""

from __future__ import annotations

import random

import pytest

from kraftrio.wire.errors import KafkaError, RemoteProtocolError
from kraftrio.wire.records.batch import BATCH_OVERHEAD, Record, build_batch
from kraftrio.wire.records.columns import uniform_run
from kraftrio.wire.records.walk import RecordCheck, _check_each, _Found, check_records

BASE_MS = 1_700_000_000_000


def records_data(records: list[Record]) -> bytes:
    return bytes(build_batch(records)[BATCH_OVERHEAD:])


def walked(data: bytes, count: int) -> RecordCheck | None:
    """What the record by record walk says; None for a refusal."""
    found = _Found()
    try:
        if _check_each(data, 0, 0, count, found) != len(data):
            return None
    except (IndexError, KafkaError, RemoteProtocolError):
        return None
    raw = found.max_raw if found.max_raw >= 0 else found.negative_raw
    return RecordCheck((raw >> 1) ^ -(raw & 1), found.index_of_max, found.null_keys)


def checked(data: bytes, count: int) -> RecordCheck | None:
    try:
        return check_records(data, count)
    except KafkaError:
        return None


def some_records(rng: random.Random) -> list[Record]:
    """Stretches of records of one layout, with other ones between."""
    records: list[Record] = []
    while len(records) < rng.choice([1, 7, 8, 20, 70, 150, 400]):
        value_bytes = rng.choice([0, 1, 50, 63, 64, 100, 300, 9000])
        key: bytes | None = rng.choice([None, b"", b"k" * 8, b"k" * 70])
        spread_ms = rng.choice([0, 1, 63, 64, 5000])
        headers = rng.choice([(), (), (("h", b"v"),)])
        for _ in range(rng.choice([1, 2, 9, 60, 130])):
            timestamp = BASE_MS + rng.randint(-1 if rng.random() < 0.1 else 0, spread_ms)
            value = rng.choice([rng.randbytes(value_bytes), None if not value_bytes else b"x"])
            if rng.random() < 0.9:
                value = rng.randbytes(value_bytes)
            records.append(Record(0, timestamp, key, value, headers))
    return records


@pytest.mark.parametrize("seed", range(60))
def test_columns_and_walk_agree_on_good_batches(seed: int) -> None:
    records = some_records(random.Random(seed))
    data = records_data(records)
    result = checked(data, len(records))
    assert result is not None
    assert result == walked(data, len(records))


@pytest.mark.parametrize("seed", range(60))
def test_columns_and_walk_agree_on_damaged_batches(seed: int) -> None:
    rng = random.Random(1000 + seed)
    records = some_records(rng)
    good = records_data(records)
    for _ in range(30):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(
                [0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        count = max(0, len(records) + rng.choice([0, 0, 0, -1, 1]))
        assert checked(bytes(data), count) == walked(bytes(data), count)


@pytest.mark.parametrize("seed", range(20))
def test_a_wrong_byte_of_any_field_in_a_uniform_run_is_found(seed: int) -> None:
    """Each structural byte of a record in the middle, changed in turn."""
    rng = random.Random(seed)
    records = [Record(0, BASE_MS + i // 10, b"key", rng.randbytes(80)) for i in range(100)]
    data = records_data(records)
    size = len(records_data(records[:1]))
    at = size * 40
    assert check_records(data, 100).index_of_max_timestamp == 90
    for position in (at, at + 1, at + 4, at + 5, at + 9, at + 10, at + size - 1):
        damaged = bytearray(data)
        damaged[position] ^= rng.randint(1, 255)
        assert checked(bytes(damaged), 100) == walked(bytes(damaged), 100)


def test_uniform_batches_are_taken_in_few_runs() -> None:
    """The point of it all: 580 records of 100 bytes are two runs, as offset deltas get wider."""
    data = records_data([Record(0, BASE_MS, None, b"x" * 100)] * 580)
    first = uniform_run(data, 0, 0, 580)
    assert first is not None
    assert first.record_count == 64
    second = uniform_run(data, 64 * first.size_bytes, 64, 516)
    assert second is not None
    assert second.record_count == 516
    assert first.has_null_keys
