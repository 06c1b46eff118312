"""Records decoded many at once: the same as one by one, whatever their layout."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records import rows as record_rows
from kraftrio.wire.records.batch import (
    Compression,
    Record,
    TimestampType,
    build_batch,
    iter_records,
    parse_header,
    set_log_append_time,
)
from kraftrio.wire.records.rows import batch_rows, decode_rows
from kraftrio.wire.records.walk import decode_records, encode_records

SHARED_FIXTURE = [HealthCheck.function_scoped_fixture]  # it is the same for all examples


class Row(NamedTuple):
    """A record and where it comes from."""

    where: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any = ()


@pytest.fixture(autouse=True, params=["common", "rare"])
def _commonness(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts count as met often at once, or never."""
    limit = 0 if request.param == "common" else 1 << 60
    if request.param == "rare":
        record_rows._guesses.clear()
    monkeypatch.setattr(record_rows, "COMMON_RECORDS", limit)


def both(records: list[Record], **build: Any) -> tuple[list[Row], list[Record]]:
    batch = build_batch(records, base_offset=100, **build)
    header = parse_header(batch)
    rows = batch_rows(memoryview(batch), header, Row, ("here",))
    return rows, list(iter_records(batch, header))


def check(records: list[Record], **build: Any) -> None:
    rows, walked = both(records, **build)
    assert all(type(row) is Row and row.where == "here" for row in rows)
    assert [Record(*row[1:]) for row in rows] == walked


def alike(count: int, **changes: Any) -> list[Record]:
    return [Record(0, 1_000, b"key-%04d" % i, b"value-%07d" % i, **changes) for i in range(count)]


@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 100, 8191, 8192, 8193, 9000])
def test_records_that_are_alike(count: int) -> None:
    """Over all widths of offset deltas."""
    check(alike(count))


@pytest.mark.parametrize("key", [None, b"", b"k" * 63, b"k" * 64])
@pytest.mark.parametrize("value", [None, b"", b"v" * 63, b"v" * 64, b"v" * 9000])
def test_empty_and_null(key: bytes | None, value: bytes | None) -> None:
    """Null is not empty, and lengths of one, two and three bytes are read."""
    check([Record(0, 5, key, value) for _ in range(20)])


def test_timestamps() -> None:
    """Within a run, beyond what a run can have, and before the first."""
    check([Record(0, 1_000 + i // 3, b"k", b"v") for i in range(300)])
    check([Record(0, 1_000 + 50 * i, b"k", b"v") for i in range(300)])
    check([Record(0, 1_000 - i, b"k", b"v") for i in range(100)])
    check([Record(0, -1, b"k", b"v") for i in range(100)])


def test_log_append_time_stands_for_all() -> None:
    """The records' own timestamps do not count."""
    batch = build_batch(alike(50))
    header = parse_header(batch)
    set_log_append_time(batch, header, 77)
    assert {row.timestamp for row in batch_rows(batch, header, Row, ("here",))} == {77}
    check(alike(50), timestamp_type=TimestampType.LOG_APPEND_TIME)


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed(compression: Compression) -> None:
    """Of every codec."""
    check(alike(100), compression=compression)


def test_a_layout_counts_as_common_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then nothing is compiled for it; the records are the same."""
    monkeypatch.setattr(record_rows, "COMMON_RECORDS", 250)
    record_rows._layout.cache_clear()
    record_rows._guesses.clear()
    for _ in range(4):
        check(alike(100))
    layouts = record_rows._layout.cache_info().currsize
    assert layouts == 2  # offset deltas of one byte, and of two
    check([Record(0, 1_000, None, b"%0*d" % (i, i)) for i in range(1, 60)])
    assert record_rows._layout.cache_info().currsize <= layouts + 2


def test_batches_of_one_size_with_other_layouts() -> None:
    """One is taken for laid out like the one before, until that proves wrong."""
    for key, value in ((b"k" * 4, b"v" * 10), (b"k" * 10, b"v" * 4), (None, b"v" * 14), (b"", b"")):
        for _ in range(2):
            check([Record(0, 1_000, key, value) for _ in range(50)])
    check([Record(0, 1_000, b"k" * (i % 2), b"v" * (1 - i % 2)) for i in range(50)])


def test_mixed_layouts() -> None:
    """Runs, single records between them, and headers."""
    check([*alike(40), Record(0, 1_000, b"x", None, (("h", b"1"), ("h", None))), *alike(40)])


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.integers(-50, 200),
            st.sampled_from([None, b"", b"kk", b"k" * 70]),
            st.sampled_from([None, b"", b"vvv", b"v" * 200]),
            st.sampled_from([(), (("h", b"x"),)]),
            st.integers(1, 40),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_records(groups: list[tuple[int, bytes | None, bytes | None, Any, int]]) -> None:
    """Groups of like records in any order."""
    check(
        [
            Record(0, 10_000 + delta, key, value, headers)
            for delta, key, value, headers, count in groups
            for _ in range(count)
        ]
    )


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_damaged_records_are_refused_alike(data: st.DataObject) -> None:
    """What one way refuses the other refuses, and both read the same otherwise."""
    good = bytearray(b"".join(encode_records(alike(30), 1_000)))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(good[: data.draw(st.sampled_from([len(good), len(good) - 1, 17]))])
    try:
        wanted: Any = list(decode_records(damaged, 30, 0, 1_000, None))
    except KafkaError as error:
        assert error.code == ErrorCode.INVALID_RECORD
        with pytest.raises(KafkaError) as raised:
            decode_rows(damaged, 30, 0, 1_000, None, Record, ())
        assert raised.value.code == ErrorCode.INVALID_RECORD
    else:
        assert decode_rows(damaged, 30, 0, 1_000, None, Record, ()) == wanted
