"""Records as text: templates, formats, and bytes that are no text."""

from __future__ import annotations

import json

import pytest

from kraftrio.clients.cli.records.rendering import make_renderer
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.wire.records.batch import TimestampType

RECORD = ConsumerRecord(
    "t", 2, 0, TimestampType.CREATE_TIME, 7, 1_000, b"k", b"value", (("h", b"1"), ("i", None))
)


def rendered(record: ConsumerRecord, template: str | None = None, value_format: str = "raw") -> str:
    render = make_renderer(as_json=False, template=template, value_format=value_format)
    return render([record]).decode(errors="surrogateescape")


def test_values_are_lines() -> None:
    assert rendered(RECORD) == "value\n"
    assert rendered(RECORD._replace(value=None)) == "\n"
    assert rendered(RECORD._replace(value=None), value_format="text") == "null\n"


def test_templates() -> None:
    everything = "{topic}-{partition}:{offset} {timestamp} {time} {key}={value} {headers}"
    assert rendered(RECORD, everything) == ("t-2:7 1000 1970-01-01T00:00:01.000Z k=value h=1,i=")
    assert rendered(RECORD, r"{key}\t{value_size}\n\\") == "k\t5\n\\"
    assert rendered(RECORD._replace(key=None), "{key_size}") == "-1"


def test_names_that_there_are_none_of() -> None:
    with pytest.raises(ValueError, match=r"a template has no \{valeu\}; it may have \{topic\}"):
        rendered(RECORD, "{valeu}")


@pytest.mark.parametrize(
    ("value", "value_format", "text"),
    [
        (b"a\x1b[2J", "text", "a\\x1b[2J\n"),
        (b"\xff\x00", "text", "ff 00\n"),
        ("ü".encode(), "text", "ü\n"),
        (b"ab", "hex", "61 62\n"),
        (b'{"a":[1]}', "json", '{\n  "a": [\n    1\n  ]\n}\n'),
        (b"no json", "json", "no json\n"),
    ],
)
def test_formats(value: bytes, value_format: str, text: str) -> None:
    assert rendered(RECORD._replace(value=value), value_format=value_format) == text


def test_json_lines() -> None:
    render = make_renderer(as_json=True, template=None, value_format="text")
    lines = render([RECORD, RECORD._replace(value=b"\xff", offset=8)]).decode().splitlines()
    assert json.loads(lines[0])["headers"] == [["h", "1"], ["i", None]]
    assert json.loads(lines[1])["value"] is None
    assert json.loads(lines[1])["value_base64"] == "/w=="
