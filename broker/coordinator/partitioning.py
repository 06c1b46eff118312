"""Which partition of a coordinator's topic a group or transactional id belongs to, as in Kafka."""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import mul

_BLOCK = 64
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_BLOCK, -1, -1))


_KEPT = 8192  # texts, of each function


@lru_cache(maxsize=_KEPT)
def java_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit integer."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    units = struct.unpack(f"<{len(encoded) // 2}H", encoded)
    value = 0
    for start in range(0, len(units), _BLOCK):  # a loop in C: ten times as fast as one over units
        block = units[start : start + _BLOCK]
        value *= _POWERS[-len(block) - 1]
        value = (value + sum(map(mul, block, _POWERS[-len(block) :]))) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


@lru_cache(maxsize=_KEPT)
def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a group or transactional id belongs to."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
