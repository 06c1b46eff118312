"""Where a bit may be flipped so that somebody can tell, and disks whose reads flip bits.

Owns: `place_of`, which chooses a bit of a file, and `BadReads`. Fairness: what no checksum and no
format of Kafka's protects, nobody can know to be wrong, so it is left alone. That is the base
offset and the leader epoch of a record batch, and the numbers in quorum-state and in the
checkpoint files; of the files of text a bit is flipped that makes letters of numbers.
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


def place_of(
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
    # What looks like a batch without its end is cut from a metadata log, as after a power cut.
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
    """Some reads of logs give a flipped bit; a read that is repeated is right."""

    def __init__(self, rng: random.Random, chance: float) -> None:
        self._rng = rng
        self._chance = chance
        self.count = 0

    def place(
        self, path: str, data: bytes | bytearray, position: int, size_bytes: int
    ) -> FlippedBit | None:
        """Choose what a read of a file gives wrong, if anything."""
        if not size_bytes or not path.endswith(".log") or self._rng.random() >= self._chance:
            return None
        place = place_of(path, data, self._rng, position, position + size_bytes)
        self.count += place is not None
        return place


def flipped(found: bytes, position: int, masks: dict[int, int]) -> bytes:
    """Flip the bits of some positions of a file in what was read of it."""
    end = position + len(found)
    inside = [place for place in masks if position <= place < end]
    if not inside:
        return found
    result = bytearray(found)
    for place in inside:
        result[place - position] ^= masks[place]
    return bytes(result)
