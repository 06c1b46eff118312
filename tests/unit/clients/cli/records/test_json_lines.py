"""Records as lines of JSON: what is taken, what is refused, and that what is printed comes back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftrio.clients.cli.records.json_lines import InputRecord, parse_record, record_fields
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.wire.records.batch import TimestampType

NOW_MS = 1_796_000_000_000


def parsed(line: str) -> InputRecord:
    return parse_record(line.encode(), NOW_MS)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"value": "a"}', InputRecord(b"a")),
        ("{}", InputRecord(None)),
        ('{"value": null, "key": "k"}', InputRecord(None, b"k")),
        ('{"value": {"a": [1, "ü"]}}', InputRecord('{"a": [1, "ü"]}'.encode())),
        ('{"value": 5, "partition": 3}', InputRecord(b"5", partition=3)),
        ('{"value_base64": "AP8=", "key_base64": ""}', InputRecord(b"\0\xff", b"")),
        ('{"headers": {"a": "1", "b": null}}', InputRecord(None, None, (("a", b"1"), ("b", None)))),
        ('{"headers": [["a", "1"], ["a", {"base64": "/w=="}]]}',
         InputRecord(None, None, (("a", b"1"), ("a", b"\xff")))),
        ('{"timestamp": 12}', InputRecord(None, timestamp_ms=12)),
        ('{"timestamp": "5m ago"}', InputRecord(None, timestamp_ms=NOW_MS - 300_000)),
    ],
)  # fmt: skip
def test_lines(line: str, record: InputRecord) -> None:
    assert parsed(line) == record


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no json", "not JSON"),
        ("[1]", "expected an object"),
        ('{"valeu": 1}', "there is no field 'valeu'; the fields are "),
        ('{"partition": "1"}', "partition must be a whole number"),
        ('{"partition": -1}', "partition must be a whole number"),
        ('{"headers": 1}', "headers must be an object"),
        ('{"headers": [["a"]]}', "a header must be a pair"),
        ('{"timestamp": "soon"}', "'soon' is not a moment"),
        ('{"timestamp": true}', "timestamp must be milliseconds"),
        ('{"value_base64": "*"}', "value_base64 is not base64"),
        ('{"key_base64": 1}', "key_base64 is not base64"),
    ],
)
def test_what_is_no_record(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parsed(line)


BYTES = st.none() | st.binary(max_size=20)


@given(BYTES, BYTES, st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3))
def test_what_is_printed_comes_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = ConsumerRecord(
        "t", 2, 0, TimestampType.CREATE_TIME, 7, 1_000, key, value, tuple(headers)
    )
    line = json.dumps(record_fields(record)).encode()
    assert parse_record(line, NOW_MS) == InputRecord(value, key, tuple(headers), 1_000, 2)


def test_values_as_json() -> None:
    record = ConsumerRecord("t", 2, 0, TimestampType.CREATE_TIME, 7, -1, None, b'{"a": 1}')
    assert record_fields(record)["value"] == '{"a": 1}'
    fields = record_fields(record, value_as_json=True)
    assert fields == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": None,
        "key": None,
        "value": {"a": 1},
        "headers": [],
    }
    text = record._replace(value=b"no json")
    assert record_fields(text, value_as_json=True)["value"] == "no json"
