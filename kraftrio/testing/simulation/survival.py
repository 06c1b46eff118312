"""What a power cut leaves of a file whose newest changes were not synced.

Owns: `Change`, `apply_change` and `survived`. Changes are written in order, but what reaches the
disk is one of these, drawn for each file:
- a prefix of the changes, the last one torn at any byte;
- the same, but of the torn change only the length, with zeros for its bytes;
- with holes: any of the sectors that were written. The others hold what was there before, or zeros
  beyond the old end, and the file ends with the last sector that reached the disk.

A file system writes back the pages of a file in any order, so a hole may come before whole batches.
"""

from __future__ import annotations

import random
from typing import TypeAlias

SECTOR_BYTES = 512  # what a disk writes as a whole

Change: TypeAlias = tuple[int, bytes | None]
"""(position, data), or (size, None): the file was truncated, or extended, to that size."""


def apply_change(target: bytearray, position: int, data: bytes | None) -> None:
    """Apply one change."""
    if data is None:
        if position < len(target):
            del target[position:]
        else:
            target.extend(bytes(position - len(target)))
        return
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def survived(
    durable: bytes | bytearray, changes: list[Change], rng: random.Random, *, holes: bool
) -> bytes:
    """Return what is left of a file, chosen at random.

    Args:
        holes: sectors may reach the disk out of order.
    """
    data = bytearray(durable)
    if not changes:
        return bytes(data)
    if holes and rng.random() < 0.5:
        return _with_holes(data, changes, rng)
    kept = rng.choice((0, len(changes), rng.randrange(len(changes) + 1)))
    for position, content in changes[:kept]:
        apply_change(data, position, content)
    if kept < len(changes):
        position, content = changes[kept]
        if content is not None:
            torn = content[: rng.randrange(len(content) + 1)]
            if rng.random() < 0.3:
                torn = bytes(len(torn))  # the length reached the disk, the bytes did not
            apply_change(data, position, torn)
    return bytes(data)


def _with_holes(data: bytearray, changes: list[Change], rng: random.Random) -> bytes:
    """Let each of the sectors that the newest changes wrote reach the disk or not.

    A truncation is journalled: what came before it is on the disk with it, or lost with it.
    """
    first = rng.randrange(len(changes) + 1)
    for number, (_, content) in enumerate(changes):
        if content is None and number >= first:
            first = number + 1 if rng.random() < 0.5 else first
    settled = bytearray(data)
    for position, content in changes[:first]:
        apply_change(settled, position, content)
    wanted = bytearray(settled)
    for position, content in changes[first:]:
        if content is None:
            break  # it did not reach the disk, nor did what was written after it
        apply_change(wanted, position, content)
    result = bytearray(settled)
    end = len(settled)
    for start in range(0, len(wanted), SECTOR_BYTES):
        sector = wanted[start : start + SECTOR_BYTES]
        if settled[start : start + SECTOR_BYTES] == sector or rng.random() < 0.4:
            continue
        apply_change(result, start, bytes(sector))
        end = start + len(sector)
    return bytes(result[: max(end, len(settled))])
