"""Writes records that have neither keys nor headers, many at once, whatever their sizes are.

What surrounds a value is looked up by its size, in tables that remember what they were asked for,
so that a record costs a few steps of C; joining all pieces is one call.

Called by `walk` only, for what `columns` finds not to be uniform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

from kraftrio.wire.primitives import Buffer, encode_varint

MIN_RECORDS = 8

_RECORDS_PER_RUN = 8  # on average: shorter runs of one timestamp are made faster one by one
_PIECES = 5  # of a record: head, timestamp delta, offset delta, length of the value, value
_KEPT_SIZES = 8192  # one is made faster than so many bytes are copied
# Where the zigzag of an offset delta becomes longer.
_WIDTH_BOUNDS = (64, 8192, 1 << 20, 1 << 27)
_PLACES = [encode_varint(delta) for delta in range(8192)]


class _BySize(dict[int, bytes]):
    """What `make` makes of the size of a value, remembered for all but long values."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    def __missing__(self, size: int) -> bytes:
        made = self._make(size)
        if size < _KEPT_SIZES:
            self[size] = made
        return made


def encode_keyless(
    timestamps: Sequence[int], values: Sequence[bytes | None], base_timestamp: int
) -> list[Buffer] | None:
    """Return the pieces of the records' bytes; None if it would not be faster, or a value is null.

    The keys are null, and there are no headers.
    """
    count = len(values)
    try:
        sizes = list(map(len, values))  # type: ignore[arg-type]  # a null raises TypeError
    except TypeError:
        return None
    runs = list(_runs(timestamps, count))
    if len(runs) * _RECORDS_PER_RUN > count:
        return None
    while len(_PLACES) < count:
        _PLACES.append(encode_varint(len(_PLACES)))
    parts: list[bytes] = [b"\0"] * (_PIECES * count + 1)  # the last is the last header count
    parts[2::_PIECES] = _PLACES[:count]
    parts[3::_PIECES] = map(_LENGTHS.__getitem__, sizes)
    parts[4::_PIECES] = values  # type: ignore[assignment]  # none is null
    for start, end in runs:
        stamp = encode_varint(timestamps[start] - base_timestamp)
        heads = _heads(len(stamp) + len(_PLACES[start]))
        first, stop = _PIECES * start, _PIECES * end
        parts[first:stop:_PIECES] = map(heads.__getitem__, sizes[start:end])
        parts[first + 1 : stop : _PIECES] = [stamp] * (end - start)
    parts[0] = parts[0][1:]
    return [*parts]


def _length(size: int) -> bytes:
    """What comes before a value: that there is no key, and its size."""
    return b"\1" + encode_varint(size)


def _head(delta_bytes: int, size: int) -> bytes:
    """What begins a record: its length and no attributes, after the last one's header count.

    Args:
        delta_bytes: how long both its deltas are together.
        size: of its value.
    """
    return b"\0%b\0" % encode_varint(2 + delta_bytes + len(_LENGTHS[size]) + size)


_LENGTHS = _BySize(_length)


@lru_cache(maxsize=16)
def _heads(delta_bytes: int) -> _BySize:
    return _BySize(partial(_head, delta_bytes))


def _runs(timestamps: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """Yield where runs of one timestamp and one width of offset deltas begin and end."""
    start = 0
    bounds = iter(_WIDTH_BOUNDS)
    bound = next(bounds)
    while start < count:
        if start == bound:
            bound = next(bounds)
        end = min(bound, count)
        stamp = timestamps[start]
        if timestamps[end - 1] != stamp or timestamps[start:end].count(stamp) != end - start:
            end = next(at for at in range(start + 1, end) if timestamps[at] != stamp)
        yield start, end
        start = end
