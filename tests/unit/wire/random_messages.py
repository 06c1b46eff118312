"""Random messages of any declared class, made from its description."""

from __future__ import annotations

import importlib
import pkgutil
import random
from typing import Any

import kraftrio.wire.messages
from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.codec.schema import (
    ARRAY,
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    SPECS,
    STRING,
    STRUCT,
    UUID,
    Field,
    WireType,
)

for _module in pkgutil.walk_packages(
    kraftrio.wire.messages.__path__, f"{kraftrio.wire.messages.__name__}."
):
    importlib.import_module(_module.name)

MESSAGES = sorted(
    (
        cls
        for cls, spec in SPECS.items()
        if spec.versions is not None and cls.__module__.startswith("kraftrio.wire.messages.")
    ),
    key=lambda cls: cls.__name__,
)


def versions_of(cls: type[Any]) -> range:
    """Return the versions of a message."""
    versions = spec_of(cls).versions
    assert versions is not None
    return range(versions.first, versions.last + 1)


def random_message(cls: type[Any], version: int, rng: random.Random) -> Any:
    """Make a message whose fields of that version have random values."""
    message = cls()
    for field in spec_of(cls).fields:
        if version in field.versions:
            setattr(message, field.name, _random_field(field, version, rng))
    return message


def _random_field(field: Field, version: int, rng: random.Random) -> Any:
    if (version in field.nullable or field.is_absent_by_default) and rng.random() < 0.2:
        return None
    if field.kind is ARRAY:
        assert field.element is not None
        return [_random_value(field.element, version, rng) for _ in range(rng.randint(0, 3))]
    return _random_value(field.element if field.kind is STRUCT else field.kind, version, rng)


def _random_value(kind: WireType | type[Any] | None, version: int, rng: random.Random) -> Any:
    if isinstance(kind, type):
        return random_message(kind, version, rng)
    if kind is BOOL:
        return rng.random() < 0.5
    if kind is FLOAT64:
        return rng.uniform(-1e6, 1e6)
    if kind is UUID:
        return rng.randbytes(16)
    if kind is STRING:
        return "".join(rng.choice("abcé漢😀") for _ in range(rng.choice((0, 1, 8, 40, 130))))
    if kind is BYTES:
        return rng.randbytes(rng.choice((0, 1, 8, 150)))
    if kind is RECORDS:
        return memoryview(rng.randbytes(rng.choice((0, 1, 70, 9000))))
    assert kind is not None
    bits = 8 * kind.size_bytes
    value = rng.getrandbits(rng.randint(1, bits))
    if kind.code.islower() and value >= 1 << (bits - 1):
        value -= 1 << bits
    return value
