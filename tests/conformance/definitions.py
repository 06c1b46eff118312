"""A slow codec that interprets Apache Kafka's own message definitions.

It shares no code with ours: it reads the JSON definitions out of Kafka's jars at test time and
encodes and decodes dicts by them, one primitive after the other. It follows the README of the
definitions and the protocol guide, so that a misreading in our codec shows.

Values are dicts by Kafka's field names; structs are dicts, records are bytes.
"""

from __future__ import annotations

import json
import random
import re
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True)
class Range:
    """An inclusive range of versions."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @staticmethod
    def parse(text: str | None) -> Range:
        if not text or text == "none":
            return Range(1, 0)
        if match := re.fullmatch(r"(\d+)\+", text):
            return Range(int(match[1]), 1 << 15)
        if match := re.fullmatch(r"(\d+)-(\d+)", text):
            return Range(int(match[1]), int(match[2]))
        return Range(int(text), int(text))


@dataclass
class FieldDef:
    """One field of a definition."""

    name: str
    type: str
    versions: Range
    nullable: Range
    tagged: Range
    tag: int | None
    flexible: Range | None
    ignorable: bool
    default: Any
    fields: list[FieldDef] = field(default_factory=list)

    @property
    def element(self) -> str:
        """The type without the array brackets."""
        return self.type.removeprefix("[]")

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def is_struct(self) -> bool:
        return self.element[0].isupper()


@dataclass
class Definition:
    """One message definition."""

    name: str
    type: str
    api_key: int | None
    valid: Range
    flexible: Range
    latest_unstable: bool
    listeners: frozenset[str]
    fields: list[FieldDef]


def load_definitions(jar: Path) -> dict[str, Definition]:
    """Read every definition in a jar."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                definition = parse_definition(archive.read(name).decode())
                found[definition.name] = definition
    return found


def parse_definition(text: str) -> Definition:
    """Parse one definition: JSON with comments."""
    lines = [re.sub(r'^\s*//.*$|(?<=[\s,\[{}\]"])//[^"]*$', "", line) for line in text.split("\n")]
    raw = json.loads("\n".join(lines))
    fields = raw.get("fields", [])  # a removed API has none
    structs = {item["name"]: item["fields"] for item in raw.get("commonStructs", [])}
    _collect_structs(fields, structs)
    return Definition(
        name=raw["name"],
        type=raw["type"],
        api_key=raw.get("apiKey"),
        valid=Range.parse(raw["validVersions"]),
        flexible=Range.parse(raw.get("flexibleVersions")),
        latest_unstable=raw.get("latestVersionUnstable", False),
        listeners=frozenset(raw.get("listeners", ())),
        fields=[_parse_field(item, structs) for item in fields],
    )


def _collect_structs(fields: list[dict[str, Any]], structs: dict[str, Any]) -> None:
    for item in fields:
        if "fields" in item:
            structs[item["type"].removeprefix("[]")] = item["fields"]
            _collect_structs(item["fields"], structs)


def _parse_field(raw: dict[str, Any], structs: dict[str, Any]) -> FieldDef:
    made = FieldDef(
        name=raw["name"],
        type=raw["type"],
        versions=Range.parse(raw.get("versions", raw.get("taggedVersions"))),
        nullable=Range.parse(raw.get("nullableVersions")),
        tagged=Range.parse(raw.get("taggedVersions")),
        tag=raw.get("tag"),
        flexible=Range.parse(raw["flexibleVersions"]) if "flexibleVersions" in raw else None,
        ignorable=bool(raw.get("ignorable", False)),
        default=None,
    )
    if made.is_struct:
        made.fields = [_parse_field(item, structs) for item in structs[made.element]]
    made.default = _default(made, raw.get("default"))
    return made


def _default(made: FieldDef, raw: Any) -> Any:
    if raw == "null" or made.type == "records":
        return None
    if made.is_array:
        return []
    if made.is_struct:
        return {item.name: item.default for item in made.fields}
    if made.type == "string":
        return raw or ""
    if made.type == "bytes":
        return b""
    if made.type == "uuid":
        return bytes(16)
    if made.type == "bool":
        return str(raw).lower() == "true"
    if made.type == "float64":
        return float(raw or 0)
    return int(str(raw), 0) if raw else 0


# Encoding


def encode_values(definition: Definition, version: int, values: dict[str, Any]) -> bytes:
    """Encode a dict by its definition."""
    out = bytearray()
    _put_struct(out, definition.fields, version, version in definition.flexible, values)
    return bytes(out)


def _put_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)


def _put_struct(
    out: bytearray, fields: list[FieldDef], version: int, flexible: bool, values: dict[str, Any]
) -> None:
    tagged = []
    for item in fields:
        if version not in item.versions:
            continue
        if item.tag is not None and version in item.tagged:
            if values[item.name] != item.default:
                tagged.append(item)
        else:
            _put_field(out, item, version, flexible, values[item.name])
    if flexible:
        _put_uvarint(out, len(tagged))
        for item in sorted(tagged, key=lambda item: item.tag or 0):
            content = bytearray()
            _put_field(content, item, version, flexible, values[item.name])
            assert item.tag is not None
            _put_uvarint(out, item.tag)
            _put_uvarint(out, len(content))
            out += content


def _put_field(out: bytearray, item: FieldDef, version: int, flexible: bool, value: Any) -> None:
    compact = flexible if item.flexible is None else version in item.flexible
    if item.is_array:
        if value is None:
            assert version in item.nullable, f"{item.name} is null"
            _put_length(out, "array", compact, None)
            return
        _put_length(out, "array", compact, len(value))
        for element in value:
            _put_value(out, item, version, flexible, compact, element)
    elif item.is_struct and version in item.nullable:
        null = b"\xff" if item.tag is None else b"\x00"
        out += null if value is None else b"\x01"
        if value is not None:
            _put_struct(out, item.fields, version, flexible, value)
    elif value is None:
        assert version in item.nullable or item.type == "records", f"{item.name} is null"
        _put_length(out, item.type, compact, None)
    else:
        _put_value(out, item, version, flexible, compact, value)


def _put_length(out: bytearray, kind: str, compact: bool, length: int | None) -> None:
    if compact:
        _put_uvarint(out, 0 if length is None else length + 1)
    else:
        out += struct.pack(">h" if kind == "string" else ">i", -1 if length is None else length)


def _put_value(
    out: bytearray, item: FieldDef, version: int, flexible: bool, compact: bool, value: Any
) -> None:
    if item.is_struct:
        _put_struct(out, item.fields, version, flexible, value)
    elif item.element in FIXED:
        out += struct.pack(">" + FIXED[item.element], value)
    elif item.element == "uuid":
        assert len(value) == 16
        out += value
    else:
        content = value.encode() if item.element == "string" else value
        _put_length(out, item.element, compact, len(content))
        out += content


# Decoding


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def take(self, count: int) -> bytes:
        assert 0 <= count <= len(self.data) - self.pos, "truncated"
        self.pos += count
        return self.data[self.pos - count : self.pos]

    def number(self, code: str) -> Any:
        return struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def length(self, kind: str, compact: bool) -> int | None:
        if compact:
            size = self.uvarint()
            return size - 1 if size else None
        length: int = self.number("h" if kind == "string" else "i")
        return None if length < 0 else length


def decode_values(
    definition: Definition, version: int, data: bytes, pos: int = 0
) -> tuple[dict[str, Any], int]:
    """Decode bytes by their definition; return the dict and the position after it."""
    reader = _Reader(data)
    reader.pos = pos
    values = _take_struct(reader, definition.fields, version, version in definition.flexible)
    return values, reader.pos


def _take_struct(
    reader: _Reader, fields: list[FieldDef], version: int, flexible: bool
) -> dict[str, Any]:
    values = {item.name: item.default for item in fields}
    tagged = {}
    for item in fields:
        if version not in item.versions:
            continue
        if item.tag is not None and version in item.tagged:
            tagged[item.tag] = item
        else:
            values[item.name] = _take_field(reader, item, version, flexible)
    if flexible:
        for _ in range(reader.uvarint()):
            tag = reader.uvarint()
            size = reader.uvarint()
            end = reader.pos + size
            if tag in tagged:
                item = tagged[tag]
                values[item.name] = _take_field(reader, item, version, flexible)
                assert reader.pos == end, "a tagged field of the wrong size"
            else:
                reader.take(size)
    return values


def _take_field(reader: _Reader, item: FieldDef, version: int, flexible: bool) -> Any:
    compact = flexible if item.flexible is None else version in item.flexible
    if item.is_array:
        count = reader.length("array", compact)
        if count is None:
            return None
        return [_take_value(reader, item, version, flexible, compact) for _ in range(count)]
    # Null is -1, but 0 in a tagged field, which counts lengths from there.
    present = 0 if item.tag is None else 1
    if item.is_struct and version in item.nullable and reader.number("b") < present:
        return None
    return _take_value(reader, item, version, flexible, compact)


def _take_value(
    reader: _Reader, item: FieldDef, version: int, flexible: bool, compact: bool
) -> Any:
    if item.is_struct:
        return _take_struct(reader, item.fields, version, flexible)
    if item.element in FIXED:
        return reader.number(FIXED[item.element])
    if item.element == "uuid":
        return reader.take(16)
    length = reader.length(item.element, compact)
    if length is None:
        return None
    content = reader.take(length)
    return content.decode() if item.element == "string" else content


# Random values


def random_values(definition: Definition, version: int, rng: random.Random) -> dict[str, Any]:
    """Return values for a version: mostly not the defaults, sometimes null, empty or default."""
    return _random_struct(definition.fields, version, rng)


def _random_struct(fields: list[FieldDef], version: int, rng: random.Random) -> dict[str, Any]:
    values = {}
    for item in fields:
        value = item.default
        if version in item.versions:
            cannot_stay = value is None and version not in item.nullable
            if cannot_stay or rng.random() > 0.08:
                value = _random_field(item, version, rng)
        values[item.name] = value
    return values


def _random_field(item: FieldDef, version: int, rng: random.Random) -> Any:
    nullable = version in item.nullable
    if nullable and rng.random() < 0.15:
        return None
    if item.is_array:
        # Now and then more than 127 elements of a primitive, for lengths of two varint bytes.
        most = 3 if item.is_struct else rng.choice((3, 3, 3, 3, 200))
        return [_random_value(item, version, rng) for _ in range(rng.randint(0, most))]
    return _random_value(item, version, rng)


def _random_value(item: FieldDef, version: int, rng: random.Random) -> Any:
    kind = item.element
    if item.is_struct:
        return _random_struct(item.fields, version, rng)
    if kind in INTEGER_BITS:
        bits = rng.randint(1, INTEGER_BITS[kind] - 1)
        return rng.choice((1, -1)) * rng.getrandbits(bits)
    if kind in ("uint16", "uint32"):
        return rng.getrandbits(int(kind[4:]))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.uniform(-1e9, 1e9)
    if kind == "uuid":
        return rng.randbytes(16)
    size = rng.choice((0, 1, 5, 20, 130, 300)) if rng.random() < 0.4 else rng.randint(1, 12)
    if kind == "string":
        return "".join(rng.choice("abcXYZ-._019é漢😀") for _ in range(size))
    return rng.randbytes(size)
