"""A record as one line of JSON: what `produce --format json` takes and `consume --json` prints.

    {"key": "a", "value": "text", "headers": [["name", "text"]], "timestamp": 1796000000000}

Rules:
1. Text is a string. Bytes that are not UTF-8 are in a field of their own, `key_base64` or
   `value_base64`, and in a header {"base64": ...}. A value that is neither string nor null is
   produced as its JSON.
2. `headers` may be an object, too, if no name comes twice; `timestamp` may be a moment as people
   write it. `produce` ignores `topic` and `offset`, which `consume` prints.

Pure. Called by: `producing` and `rendering`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kraftrio.clients.cli.times import parse_moment_ms
from kraftrio.clients.consumer.records import ConsumerRecord

Headers = tuple[tuple[str, bytes | None], ...]

_FIELDS = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition"}
    | {"topic", "offset", "timestamp_type", "leader_epoch"}
)


class InputRecord(NamedTuple):
    """A record to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def parse_record(line: bytes, now_ms: int) -> InputRecord:
    """Read a line.

    Raises:
        ValueError: it is no such record; it says why.
    """
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object such as {{'value': 'text'}}, not {fields!r:.40}")
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        known = ", ".join(sorted(_FIELDS))
        raise ValueError(f"there is no field {unknown[0]!r}; the fields are {known}")
    partition = fields.get("partition")
    if partition is not None and (not isinstance(partition, int) or partition < 0):
        raise ValueError(f"partition must be a whole number, not {partition!r}")
    return InputRecord(
        _content(fields, "value"),
        _content(fields, "key"),
        tuple(_headers(fields.get("headers"))),
        _timestamp(fields.get("timestamp"), now_ms),
        partition,
    )


def record_fields(record: ConsumerRecord, *, value_as_json: bool = False) -> dict[str, Any]:
    """Return a record as the fields of its line.

    Args:
        value_as_json: a value that is JSON is nested, not quoted.
    """
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
    }
    for name, content in (("key", record.key), ("value", record.value)):
        text = _text(content)
        fields[name] = text
        if text is None and content is not None:
            fields[f"{name}_base64"] = base64.b64encode(content).decode()
    if value_as_json and fields["value"] is not None:
        with contextlib.suppress(json.JSONDecodeError):  # then it is text
            fields["value"] = json.loads(fields["value"])
    fields["headers"] = [[name, _header_value(content)] for name, content in record.headers]
    return fields


def _header_value(content: bytes | None) -> object:
    text = _text(content)
    if text is None and content is not None:
        return {"base64": base64.b64encode(content).decode()}
    return text


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _content(fields: Mapping[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return _decoded(f"{name}_base64", encoded)
    value = fields.get(name)
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _decoded(name: str, encoded: object) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)  # type: ignore[arg-type]  # or refused
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{name} is not base64: {encoded!r:.40}") from None


def _headers(given: object) -> Iterable[tuple[str, bytes | None]]:
    if given is None:
        return
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list):
        raise ValueError("headers must be an object, or a list of pairs")
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f"a header must be a pair of a name and a text, not {pair!r:.40}")
        name, value = pair
        if isinstance(value, dict) and set(value) == {"base64"}:
            yield name, _decoded(f"header {name!r}", value["base64"])
        else:
            yield name, _content({"value": value}, "value")


def _timestamp(given: object, now_ms: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, str):
        return parse_moment_ms(given, now_ms)
    if not isinstance(given, int) or isinstance(given, bool):
        raise ValueError(f"timestamp must be milliseconds or a moment, not {given!r}")
    return given
