"""Which partition of a coordinator's topic a group or transactional id belongs to, as in Kafka."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=8192)
def java_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a group or transactional id belongs to."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
