"""Checks or writes a run of equally laid out records at once, column by column.

Producers of fixed-size data fill a batch with records that differ only in offset delta, timestamp
delta and content.  The same byte of each such record, taken with one strided slice, is a column:
lengths must be constant columns, offset deltas a known one.  That is some twenty times faster than
walking record by record, and decides exactly what ``record_walk.check_records`` would.

Rules
- A run never claims a record that the walk would refuse; what is not clearly uniform is left to the
  walk, which also words the refusals.
- ``encode_uniform`` writes such records the other way round: what is the same in all of them is
  joined between the values, then the deltas are put in as columns.
- Called by ``records/walk`` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftrio.wire.primitives import Buffer, encode_varint

MIN_RUN_RECORDS = 8

# Zigzag offset deltas from 0 on: one byte up to 63, two bytes up to 8191.
_ONE_BYTE_DELTAS = 64
_TWO_BYTE_DELTAS = 8192
_LOW_BYTES = bytes(
    (index << 1) & 0x7F | (0x80 if index >= _ONE_BYTE_DELTAS else 0)
    for index in range(_TWO_BYTE_DELTAS)
)
_HIGH_BYTES = bytes(index << 1 >> 7 for index in range(_TWO_BYTE_DELTAS))

_LONGER = -1  # odd, as negative lengths are

# Timestamp deltas 0 to 63 as one zigzag byte.
_SMALL_DELTAS = bytes(range(0, 128, 2))


class UniformRun(NamedTuple):
    """Well-formed records in a row that have one size and layout."""

    record_count: int
    size_bytes: int  # of each
    max_timestamp_raw: int  # zigzag
    index_of_max_timestamp: int  # the first one, counted from the start of the run
    has_null_keys: bool


def uniform_run(data: bytes, pos: int, first: int, count: int) -> UniformRun | None:
    """Find the records from `pos` on that are laid out like the one there.

    Args:
        first: the offset delta that the record at `pos` must have.
        count: how many records may follow at most, that one included.

    Raises:
        IndexError: the data ends in the first record.
    """
    if first >= _TWO_BYTE_DELTAS:
        return None
    delta_bytes = 1 if first < _ONE_BYTE_DELTAS else 2
    length, at = _read_length(data, pos)
    if length & 1:
        return None
    size = at - pos + (length >> 1)
    timestamp_at = at + 1
    delta_at = timestamp_at + 1
    key_at = delta_at + delta_bytes
    # The next fields lie there only if both deltas have the expected widths.
    if data[timestamp_at] not in _SMALL_DELTAS or data[delta_at] != _LOW_BYTES[first]:
        return None
    key_length, value_at = _read_length(data, key_at)
    if key_length == _LONGER:
        return None
    key_end = value_at
    if not key_length & 1:
        value_at += key_length >> 1
    value_length, headers_at = _read_length(data, value_at)
    if value_length == _LONGER:
        return None
    value_end = headers_at
    if not value_length & 1:
        headers_at += value_length >> 1
    if data[headers_at] or headers_at + 1 - pos != size:
        return None
    limit = (_ONE_BYTE_DELTAS if delta_bytes == 1 else _TWO_BYTE_DELTAS) - first
    run = min(count, limit, (len(data) - pos) // size)
    constant = (
        *range(pos, at),
        *range(key_at, key_end),
        *range(value_at, value_end),
        headers_at,
    )
    for position in constant:
        if run < MIN_RUN_RECORDS:
            return None
        column = data[position : position + run * size : size]
        run -= len(column.lstrip(column[:1]))
    timestamps = data[timestamp_at : timestamp_at + run * size : size]
    run -= len(timestamps.lstrip(_SMALL_DELTAS))
    if run < MIN_RUN_RECORDS:
        return None
    if data[delta_at : delta_at + run * size : size] != _LOW_BYTES[first : first + run]:
        return None
    if delta_bytes == 2:
        high = data[delta_at + 1 : delta_at + 1 + run * size : size]
        if high != _HIGH_BYTES[first : first + run]:
            return None
    timestamps = timestamps[:run]
    newest = max(timestamps)
    return UniformRun(run, size, newest, timestamps.index(newest), bool(key_length & 1))


def encode_uniform(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    base_timestamp: int,
) -> list[Buffer] | None:
    """Return the pieces of the bytes of records without headers; None if they are not uniform.

    They are if values have one size and keys, too (or all are null), and the timestamps are close.
    """
    count = len(values)
    if not MIN_RUN_RECORDS <= count <= _TWO_BYTE_DELTAS or _clearly_differ(values):
        return None
    key_sizes: set[int] = set()
    try:
        value_sizes = set(map(len, values))  # type: ignore[arg-type]  # a null raises TypeError
        if keys[0] is not None:
            key_sizes = set(map(len, keys))  # type: ignore[arg-type]
        elif keys.count(None) != count:
            return None
    except TypeError:
        return None
    first, last = min(timestamps), max(timestamps)
    if len(value_sizes) > 1 or len(key_sizes) > 1:
        return None
    if first < base_timestamp or last - base_timestamp >= _ONE_BYTE_DELTAS:
        return None
    stamps = None
    if last != base_timestamp:
        stamps = bytes([timestamp - base_timestamp << 1 for timestamp in timestamps])
    key_size = key_sizes.pop() if key_sizes else None
    value_size = value_sizes.pop()
    pieces: list[Buffer] = []
    for start, end in ((0, _ONE_BYTE_DELTAS), (_ONE_BYTE_DELTAS, _TWO_BYTE_DELTAS)):
        if start < count:
            part = slice(start, min(end, count))
            run = _encode_run(keys[part], values[part], key_size, value_size, start, stamps)
            pieces += (run, b"\0")
    return pieces


def _clearly_differ(values: Sequence[bytes | None]) -> bool:
    """Whether the first and the last few show already that the sizes are not one."""
    return len({len(value) for value in (*values[:4], *values[-4:]) if value is not None}) > 1


def _encode_run(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    key_size: int | None,
    value_size: int,
    start: int,
    stamps: bytes | None,
) -> memoryview:
    """Return the bytes of records whose offset deltas have one width, but for the last byte."""
    delta_bytes = 1 if start < _ONE_BYTE_DELTAS else 2
    key_length = b"\1" if key_size is None else encode_varint(key_size)
    value_length = encode_varint(value_size)
    size = 3 + delta_bytes + len(key_length) + (key_size or 0) + len(value_length) + value_size
    length = encode_varint(size)
    stride = len(length) + size
    # The header count that ends a record comes with the head of the next one.
    head = b"\0" + length + bytes(2 + delta_bytes) + key_length
    run: bytearray
    if key_size is None:
        run = bytearray(head + value_length).join([b"", *values])  # type: ignore[list-item]
    else:
        parts: list[bytes | None] = [head] * (4 * len(values))
        parts[1::4] = keys
        parts[2::4] = [value_length] * len(values)
        parts[3::4] = values
        run = bytearray().join(parts)  # type: ignore[arg-type]  # no null is left here
    stop = start + len(values)
    stamp_at = 2 + len(length)
    if stamps is not None:
        run[stamp_at::stride] = stamps[start:stop]
    run[stamp_at + 1 :: stride] = _LOW_BYTES[start:stop]
    if delta_bytes == 2:
        run[stamp_at + 2 :: stride] = _HIGH_BYTES[start:stop]
    return memoryview(run)[1:]


def _read_length(data: bytes, pos: int) -> tuple[int, int]:
    """Read a varint of one or two bytes, still zigzag; _LONGER for any other."""
    raw = data[pos]
    if raw < 0x80:
        return raw, pos + 1
    high = data[pos + 1]
    if high < 0x80:
        return raw + (high << 7) - 0x80, pos + 2
    return _LONGER, pos + 2
