"""Writes records that have neither keys nor headers, many at once, whatever their sizes are.

What differs from one record to the next is its offset delta, its value and the lengths of both. So
in a run of one timestamp, and of offset deltas of one width, everything but the value is one of a
few texts, which are looked up by the size of the value; joining them all is one call.

Called by `walk` only, for what `columns` finds not to be uniform.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraftrio.wire.primitives import Buffer, encode_varint

MIN_RECORDS = 8

_RECORDS_PER_TEXT = 4  # on average: texts that are used less are made faster one by one
# Where the zigzag of an offset delta becomes longer.
_WIDTH_BOUNDS = (64, 8192, 1 << 20, 1 << 27)
_PLACES = [encode_varint(delta) for delta in range(8192)]


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
    distinct = set(sizes)
    if len(runs) * len(distinct) > count // _RECORDS_PER_TEXT:
        return None
    while len(_PLACES) < count:
        _PLACES.append(encode_varint(len(_PLACES)))
    lengths = {size: b"\1" + encode_varint(size) for size in distinct}
    parts: list[bytes] = [b"\0"] * (4 * count + 1)  # the last is the last header count
    parts[1::4] = _PLACES[:count]
    parts[2::4] = map(lengths.__getitem__, sizes)
    parts[3::4] = values  # type: ignore[assignment]  # none is null
    for start, end in runs:
        stamp = encode_varint(timestamps[start] - base_timestamp)
        fixed = 2 + len(stamp) + len(_PLACES[start])  # attributes and header count, too
        # The header count that ends a record comes with the head of the next one.
        heads = {
            size: b"\0" + encode_varint(fixed + len(length) + size) + b"\0" + stamp
            for size, length in lengths.items()
        }
        parts[4 * start : 4 * end : 4] = map(heads.__getitem__, sizes[start:end])
    parts[0] = parts[0][1:]
    return [*parts]


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
