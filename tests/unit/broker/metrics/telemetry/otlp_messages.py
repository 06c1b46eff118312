"""OTLP messages as clients push them, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(field: int, data: bytes) -> bytes:
    """A field with a length."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def signed(field: int, value: int) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<q", value)


def attribute(name: str, text: str) -> bytes:
    return part(1, name.encode()) + part(2, part(1, text.encode()))


def point(value: float | int, labels: Mapping[str, str] | None = None) -> bytes:
    attributes = b"".join(part(7, attribute(*pair)) for pair in (labels or {}).items())
    return attributes + (double(4, value) if isinstance(value, float) else signed(6, value))


def gauge(name: str, *points: bytes) -> bytes:
    return part(1, name.encode()) + part(5, b"".join(part(1, one) for one in points))


def counter(name: str, *points: bytes, temporality: int = 1) -> bytes:
    data = b"".join(part(1, one) for one in points) + number(2, temporality) + number(3, 1)
    return part(1, name.encode()) + part(7, data)


def pushed(*metrics: bytes) -> bytes:
    """The whole message."""
    scope = part(1, b"") + b"".join(part(2, metric) for metric in metrics)
    return part(1, part(1, b"") + part(2, scope))
