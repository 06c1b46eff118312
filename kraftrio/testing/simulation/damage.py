"""Which bits of files may be flipped, and reads that flip bits.

Owns: `bit_to_flip`, which chooses a bit of a file, and `BadReads`. Only damage that a broker can
notice is done. What neither a checksum nor a format of Kafka's protects is left alone: the base
offset and the leader epoch of a record batch, and the numbers in quorum-state and in the
checkpoint files. In text files a bit is flipped that turns digits into letters.
"""

from __future__ import annotations

import random
from struct import Struct
from typing import NamedTuple

_METADATA = "__cluster_metadata"
_BATCHES = (".log", ".checkpoint")
_LENGTH = Struct(">i")
_LENGTH_AT, _EPOCH_AT, _MAGIC_AT, _CRC_AT = 8, 12, 16, 17
_LOG_OVERHEAD = 12


class FlippedBit(NamedTuple):
    """A bit of a file."""

    position: int
    mask: int


def is_metadata(path: str) -> bool:
    """Whether a file is one of the metadata quorum's."""
    return _METADATA in path


def bit_to_flip(
    path: str, data: bytes | bytearray, rng: random.Random, start: int, end: int
) -> FlippedBit | None:
    """Choose a bit of a file between two positions; None: there is none that may be flipped."""
    if start >= end:
        return None
    position = rng.randrange(start, end)
    mask = 1 << rng.randrange(8)
    if not path.endswith(_BATCHES):
        return FlippedBit(position, mask if path.endswith((".index", ".snapshot")) else 0x40)
    batch = _batch_around(data, position)
    if batch is None:
        return None
    # An incomplete batch at the end is truncated from a metadata log, as after a power cut.
    protected = _CRC_AT if is_metadata(path) else _LENGTH_AT
    at = position - batch
    if at < protected or _EPOCH_AT <= at < _MAGIC_AT:
        position = batch + _CRC_AT
    return FlippedBit(position, mask) if start <= position < end else None


def _batch_around(data: bytes | bytearray, position: int) -> int | None:
    """Where the batch begins that holds a position."""
    start = 0
    while start + _CRC_AT <= len(data):
        size = _LOG_OVERHEAD + _LENGTH.unpack_from(data, start + _LENGTH_AT)[0]
        if size <= _LOG_OVERHEAD or start + size > len(data):
            return None
        if position < start + size:
            return start
        start += size
    return None


class BadReads:
    """Some reads of logs return a flipped bit; when they are repeated, they return the right one.

    Args:
        chance: of each read.
    """

    def __init__(self, rng: random.Random, chance: float) -> None:
        self._rng = rng
        self._chance = chance
        self.count = 0

    def choose(
        self, path: str, data: bytes | bytearray, position: int, size_bytes: int
    ) -> FlippedBit | None:
        """Choose the bit that a read of a file returns wrong, if any."""
        if not size_bytes or not path.endswith(".log") or self._rng.random() >= self._chance:
            return None
        bit = bit_to_flip(path, data, self._rng, position, position + size_bytes)
        self.count += bit is not None
        return bit


def flipped(found: bytes, position: int, masks: dict[int, int]) -> bytes:
    """Return what was read of a file at a position, with these bits of the file flipped."""
    end = position + len(found)
    inside = [each for each in masks if position <= each < end]
    if not inside:
        return found
    result = bytearray(found)
    for each in inside:
        result[each - position] ^= masks[each]
    return bytes(result)
