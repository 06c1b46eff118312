"""What the fields of a page mean, and which records pass."""

from __future__ import annotations

import pytest

from kraftrio.clients.console.records.query import (
    DEFAULT_LIMIT,
    EVERYTHING,
    Begin,
    QueryError,
    RecordFilter,
    read_query,
)
from kraftrio.clients.console.records.shown import Form
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.wire.records.batch import TimestampType

NOW_MS = 1_796_000_000_000


def test_without_fields_the_newest_are_wanted() -> None:
    query = read_query({"topic": "t"}, NOW_MS)
    assert (query.begin, query.limit, query.form) == (Begin.NEWEST, DEFAULT_LIMIT, Form.AUTO)
    assert query.wanted.is_everything
    assert query.partition is None


def test_fields() -> None:
    fields = {"begin": "time", "at": "5m ago", "until": "now", "partition": "3"}
    fields |= {"key": "k", "text": "0x00fF", "limit": "7", "form": "hex"}
    query = read_query(fields, NOW_MS)
    assert (query.at_ms, query.until_ms) == (NOW_MS - 300_000, NOW_MS)
    assert (query.partition, query.limit, query.form) == (3, 7, Form.HEX)
    assert query.wanted == RecordFilter(b"k", b"\x00\xff")
    assert read_query({"begin": "offset", "at": " 12 "}, NOW_MS).offset == 12


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"begin": "sideways"}, "begin must be one of newest, oldest, offset, time"),
        ({"begin": "offset"}, "an offset such as 1200"),
        ({"begin": "offset", "at": "-1"}, "at must be a whole number"),
        ({"begin": "time", "at": "soon"}, "'soon' is not a moment"),
        ({"until": "x"}, "'x' is not a moment"),
        ({"partition": "٣"}, "partition must be a whole number"),
        ({"limit": "0"}, "limit must be a whole number from 1 to 200"),
        ({"limit": "9" * 400}, "limit must be"),
        ({"text": "0x1"}, "pairs of hexadecimal digits"),
        ({"form": "xml"}, "form must be one of auto, json, text, hex"),
    ],
)
def test_wrong_fields(fields: dict[str, str], complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        read_query(fields, NOW_MS)


def record(key: bytes | None, value: bytes | None, **headers: bytes | None) -> ConsumerRecord:
    return ConsumerRecord(
        "t", 0, 0, TimestampType.CREATE_TIME, 0, 0, key, value, tuple(headers.items())
    )


def test_which_records_are_wanted() -> None:
    assert EVERYTHING(record(None, None))
    by_key = RecordFilter(key=b"k")
    assert by_key(record(b"k", None))
    assert not by_key(record(b"kk", b"k"))
    by_part = RecordFilter(part=b"ab")
    assert by_part(record(b"xab", None))
    assert by_part(record(None, b"abx"))
    assert by_part(record(None, None, h=b"xabx"))
    assert by_part(record(None, None, cabin=None))
    assert not by_part(record(b"a", b"b", h=b"ba"))
    assert not RecordFilter(key=b"k", part=b"v")(record(b"k", b"w"))
