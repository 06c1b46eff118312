"""Values of records of `__consumer_offsets` that have one version so far, of any kind of group.

A value is an int16 version and then its fields. All groups but the classic ones are kept in records
whose only version is 0; what Kafka adds to them comes as tagged fields.
"""

from __future__ import annotations

from typing import Any, TypeVar

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import Buffer

V = TypeVar("V")

_VERSION = 0
_VERSION_BYTES = _VERSION.to_bytes(2, "big")


def encode_value(value: Any) -> bytes:
    """Encode a value, its version first."""
    return _VERSION_BYTES + encode(value, _VERSION)


def decode_value(value_class: type[V], value: Buffer) -> V:
    """Read a value.

    Raises:
        RemoteProtocolError: it is of another version, or ends too early.
    """
    if bytes(value[:2]) != _VERSION_BYTES:
        raise RemoteProtocolError(f"{value_class.__name__} of an unknown version")
    return decode(value_class, _VERSION, value, 2)[0]
