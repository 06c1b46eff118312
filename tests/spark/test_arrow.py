"""Arrow columns from batches: the rows that the record walk finds, and its refusals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.wire.errors import KafkaError
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    Compression,
    Record,
    TimestampType,
    build_batch,
    iter_headers,
    iter_records,
    parse_header,
)

EVERYTHING = (0, 1 << 62)

contents = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
some_records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(-1, 1 << 41),
        key=contents,
        value=contents,
        headers=st.just(()) | headers.map(tuple),
    ),
    min_size=1,
    max_size=90,
)


def columns(batches: Sequence[bytes], *, start: int, end: int, **options: Any) -> list[tuple]:  # type: ignore[type-arg]
    """Return (offset, timestamp_us, type, key, value, headers) of what RecordColumns makes."""
    from kraftrio.clients.spark.arrow import RecordColumns, RowBounds, arrow_schema

    found = RecordColumns("t", 7, RowBounds(start, end, **options), include_headers=True)
    data = b"".join(batches)
    for header in iter_headers(data):
        found.add(data, header)
    table = found.take()
    assert found.take() is None
    if table is None:
        return []
    table.validate(full=True)
    assert table.schema == arrow_schema(include_headers=True)
    assert set(table["topic"].to_pylist()) == {"t"}
    assert set(table["partition"].to_pylist()) == {7}
    headers = (
        None if row is None else tuple((item["key"], item["value"]) for item in row)
        for row in table["headers"].to_pylist()
    )
    names = ("offset", "timestamp", "timestampType", "key", "value")
    numbers = [table[name].cast("int64") if name == "timestamp" else table[name] for name in names]
    return list(zip(*(column.to_pylist() for column in numbers), headers, strict=True))


def walked(batches: Sequence[bytes], *, start: int, end: int) -> list[tuple]:  # type: ignore[type-arg]
    """Return the same by the walk."""
    data = b"".join(batches)
    return [
        (
            record.offset,
            record.timestamp * 1000,
            int(header.timestamp_type),
            record.key,
            record.value,
            record.headers or None,
        )
        for header in iter_headers(data)
        for record in iter_records(data, header)
        if start <= record.offset < end
    ]


@settings(max_examples=150, deadline=None)
@given(
    many=st.lists(some_records, min_size=1, max_size=4),
    compression=st.sampled_from(Compression),
    kinds=st.randoms(use_true_random=False),
    start=st.integers(0, 150),
    length=st.integers(0, 300),
)
def test_same_rows_as_the_walk(
    many: list[list[Record]],
    compression: Compression,
    kinds: random.Random,
    start: int,
    length: int,
) -> None:
    """Whatever batches hold, the columns hold it too, within the offsets asked for."""
    batches = []
    base = 0
    for records in many:
        base += kinds.choice((0, 0, 5))  # compaction leaves gaps
        kind = kinds.choice(list(TimestampType))
        batches.append(
            bytes(
                build_batch(records, base_offset=base, compression=compression, timestamp_type=kind)
            )
        )
        base += len(records)
    for begin, end in (EVERYTHING, (start, start + length)):
        assert columns(batches, start=begin, end=end) == walked(batches, start=begin, end=end)


@pytest.mark.parametrize("size", [0, 1, 50, 57, 58, 59, 60, 100, 8000, 20_000])
def test_equal_sizes(size: int) -> None:
    """Records of one size are found without a step for each, also where numbers grow longer."""
    many = [
        [Record(0, n // 3, None, bytes([n & 0xFF]) * size) for n in range(200)],
        [Record(0, n, b"%05d" % n, b"x" * size) for n in range(8300)] if size < 100 else [],
    ]
    batches = [bytes(build_batch(records, base_offset=9)) for records in many if records]
    assert columns(batches, start=0, end=1 << 40) == walked(batches, start=0, end=1 << 40)


def test_bounds_of_time() -> None:
    """Records out of the bounds of time are left out, to the microsecond."""
    records = [Record(0, n, None, b"%d" % n) for n in (5, 3, 9, 7)]
    batch = bytes(build_batch(records))
    found = columns([batch], start=0, end=9, min_timestamp_us=5000, max_timestamp_us=8999)
    assert [row[0] for row in found] == [0, 3]
    assert columns([batch], start=0, end=9, min_timestamp_us=9001) == []


def test_negative_number_of_headers() -> None:
    """A record that says it has -1 headers is refused, whether headers are asked for or not."""
    from kraftrio.clients.spark.arrow import RecordColumns, RowBounds

    batch = build_batch([Record(0, 0, None, b"x")])
    batch[-1] = 1
    for include_headers in (False, True):
        found = RecordColumns("t", 0, RowBounds(0, 9), include_headers=include_headers)
        found.add(batch, parse_header(batch))
        with pytest.raises(KafkaError):
            found.take()


@settings(max_examples=300, deadline=None)
@given(records=some_records, choices=st.data())
def test_same_refusals_as_the_walk(records: list[Record], choices: st.DataObject) -> None:
    """Damaged records are refused where the walk refuses them, and else read as it reads them."""
    batch = build_batch(records)
    for _ in range(choices.draw(st.integers(1, 3))):
        position = choices.draw(st.integers(BATCH_OVERHEAD, len(batch) - 1))
        batch[position] = choices.draw(st.integers(0, 255))
    whole = [bytes(batch)]
    wide = {"start": -(1 << 62), "end": 1 << 62}
    try:
        expected = walked(whole, **wide)
    except KafkaError:
        expected = None
    try:
        found = columns(whole, **wide)
    except KafkaError:
        found = None
    except Exception as error:  # a timestamp beyond what microseconds can say
        assert "overflow" in str(error), error
        return
    if expected is not None:
        assert found == expected
    else:
        assert found is None


def test_full() -> None:
    """It says when there is enough for a batch, by rows and by bytes."""
    from kraftrio.clients.spark.arrow import RecordColumns, RowBounds

    batch = bytes(build_batch([Record(0, 0, None, b"x" * 100)] * 10))
    cases: list[tuple[dict[str, Any], int]] = [({"max_rows": 25}, 3), ({"max_bytes": 1500}, 2)]
    for limits, count in cases:
        found = RecordColumns("t", 0, RowBounds(0, 100), **limits)
        added = 0
        while not found.is_full:
            found.add(batch, parse_header(batch))
            added += 1
        assert added == count


def test_skip_to() -> None:
    """After a skip, records before it are left out though their batch holds later ones."""
    from kraftrio.clients.spark.arrow import RecordColumns, RowBounds

    batch = bytes(build_batch([Record(0, 0, None, b"x")] * 10))
    found = RecordColumns("t", 0, RowBounds(0, 100))
    found.skip_to(7)
    found.add(batch, parse_header(batch))
    table = found.take()
    assert table is not None
    assert table["offset"].to_pylist() == [7, 8, 9]


def test_schema_is_sparks() -> None:
    """The columns have the types that Spark demands of a data source."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from kraftrio.clients.spark.arrow import arrow_schema
    from kraftrio.clients.spark.schema import table_schema

    for include_headers in (False, True):
        expected = to_arrow_schema(table_schema(include_headers=include_headers), timezone="UTC")
        assert arrow_schema(include_headers=include_headers).equals(expected)
