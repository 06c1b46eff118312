"""The text that `consume` prints of records: values, templates, JSON, also of binary contents.

Owns `Renderer`, made by `make_renderer` from what the command's options say. A template is text
with {topic}, {partition}, {offset}, {timestamp} (milliseconds), {time} (UTC), {key}, {value},
{headers}, {key_size}, {value_size}; `\\n`, `\\t` and `\\\\` mean what they usually do.

Pure. Called by: `consuming`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from kraftrio.clients.cli.output import printable
from kraftrio.clients.cli.records.json_lines import record_fields
from kraftrio.clients.cli.times import moment_text
from kraftrio.clients.consumer.records import ConsumerRecord

Renderer = Callable[[Iterable[ConsumerRecord]], bytes]
"""Makes the bytes to be printed of records."""
Content = Callable[[bytes | None], bytes]

FORMATS = ("auto", "raw", "text", "json", "hex")
NULL = b"null"

_PLACE = re.compile(r"\{(\w*)\}|\\([nt\\])")
_ESCAPES = {"n": b"\n", "t": b"\t", "\\": b"\\"}


def make_renderer(*, as_json: bool, template: str | None, value_format: str) -> Renderer:
    """Return what prints records.

    Args:
        as_json: print one object a line.
        template: what to print of a record; None: the value.
        value_format: of FORMATS, but not "auto".

    Raises:
        ValueError: the template has an unknown name.
    """
    if as_json:
        nested = value_format == "json"

        def as_lines(records: Iterable[ConsumerRecord]) -> bytes:
            lines = [
                json.dumps(record_fields(record, value_as_json=nested), ensure_ascii=False)
                for record in records
            ]
            return "".join(f"{line}\n" for line in lines).encode()

        return as_lines
    show = content_format(value_format)
    parts = parse_template("{value}\\n" if template is None else template, show)
    return lambda records: b"".join([part(record) for record in records for part in parts])


def content_format(name: str) -> Content:
    """Return what makes a key or value printable."""
    return {"raw": raw, "text": readable, "json": pretty, "hex": hexadecimal}[name]


def raw(content: bytes | None) -> bytes:
    """The bytes as they are; null is nothing."""
    return content or b""


def readable(content: bytes | None) -> bytes:
    """Text with escapes for what controls a terminal; bytes that are not text in hexadecimal."""
    if content is None:
        return NULL
    try:
        return printable(content.decode()).encode()
    except UnicodeDecodeError:
        return hexadecimal(content)


def pretty(content: bytes | None) -> bytes:
    """JSON with indents; anything else as `readable`."""
    if content is None:
        return NULL
    try:
        return json.dumps(json.loads(content), indent=2, ensure_ascii=False).encode()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return readable(content)


def hexadecimal(content: bytes | None) -> bytes:
    """Two digits for each byte."""
    return NULL if content is None else content.hex(" ").encode()


def parse_template(template: str, show: Content) -> list[Callable[[ConsumerRecord], bytes]]:
    """Return what makes the parts of a record's text.

    Raises:
        ValueError: the template has an unknown name.
    """
    fields = _fields(show)
    parts: list[Callable[[ConsumerRecord], bytes]] = []
    end = 0
    for found in _PLACE.finditer(template):
        parts += _constant(template[end : found.start()].encode())
        end = found.end()
        if found[2]:
            parts += _constant(_ESCAPES[found[2]])
        elif found[1] in fields:
            parts.append(fields[found[1]])
        else:
            names = ", ".join(f"{{{name}}}" for name in fields)
            raise ValueError(f"a template has no {found[0]}; it may have {names}")
    return parts + _constant(template[end:].encode())


def _constant(text: bytes) -> list[Callable[[ConsumerRecord], bytes]]:
    return [lambda _: text] if text else []


def _fields(show: Content) -> dict[str, Callable[[ConsumerRecord], bytes]]:
    return {
        "topic": lambda record: record.topic.encode(),
        "partition": lambda record: b"%d" % record.partition,
        "offset": lambda record: b"%d" % record.offset,
        "timestamp": lambda record: b"%d" % record.timestamp,
        "time": lambda record: (moment_text(record.timestamp) or "-").encode(),
        "key": lambda record: show(record.key),
        "value": lambda record: show(record.value),
        "headers": lambda record: b",".join(
            name.encode() + b"=" + show(value) for name, value in record.headers
        ),
        "key_size": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "value_size": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    }
