"""The values of a batch's records alone, for readers that need nothing else of them.

Keys, timestamps and headers are passed over, and no object is made but the values; records that are
laid out alike are cut out with one slice each. What `walk.decode_records` refuses is refused, but
for deltas that are out of range.

Called by the clients. Protocol guide, "Record".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer, read_uvarint
from kraftrio.wire.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    records_data,
)
from kraftrio.wire.records.columns import MIN_RUN_RECORDS, uniform_run
from kraftrio.wire.records.inlining import inlined
from kraftrio.wire.records.walk import skip_headers

_FIRST_STRETCH = 64


def batch_values(
    buf: Buffer,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[bytes | None]:
    """Return the values of a batch's records, in order.

    Raises:
        KafkaError: the records do not decompress, or a record is malformed.
    """
    return decode_values(records_data(buf, header, max_decompressed_bytes), header.record_count)


def decode_values(data: bytes, count: int) -> list[bytes | None]:
    """Return the values of `count` records that fill `data`.

    Raises:
        KafkaError: INVALID_RECORD.
    """
    values: list[bytes | None] = []
    pos = 0
    # Where a batch is not uniform it is tried again in longer and longer steps.
    stretch = _FIRST_STRETCH
    walk: Callable[[bytes, int, int, list[bytes | None]], int] = inlined(_walk)
    try:
        while (left := count - len(values)) > 0:
            run = None
            if left >= MIN_RUN_RECORDS:
                run = uniform_run(data, pos, len(values), left)
            if run is None:
                pos = walk(data, pos, min(stretch, left), values)
                stretch *= 2
                continue
            first: list[bytes | None] = []
            end = walk(data, pos, 1, first)
            value, size = first[0], run.size_bytes
            if value is None:
                values += [None] * run.record_count
            else:
                # Without headers a value ends right before the byte that says so.
                start, length = end - 1 - len(value), len(value)
                stop = start + run.record_count * size
                values += [data[at : at + length] for at in range(start, stop, size)]
            pos += run.record_count * size
    except (IndexError, RemoteProtocolError):
        _invalid("the batch ends before its last record")
    if pos != len(data):
        _invalid("the batch goes on after its last record")
    return values


def _walk(data: bytes, pos: int, count: int, values: list[bytes | None]) -> int:
    """Add the values of the next records; return where these end."""
    add = values.append
    for _ in range(count):
        raw, pos = read_uvarint(data, pos)
        twice_end = pos + pos + raw  # odd, so never reached, if the size is negative
        pos += 1  # the attributes
        while data[pos] >= 0x80:  # of the deltas nothing is wanted but where they end
            pos += 1
        pos += 1
        while data[pos] >= 0x80:
            pos += 1
        raw, pos = read_uvarint(data, pos + 1)
        if not raw & 1:
            pos += raw >> 1
        raw, pos = read_uvarint(data, pos)
        if raw & 1:
            add(None)
        else:
            add(data[pos : (pos := pos + (raw >> 1))])
        if data[pos]:
            pos = skip_headers(data, pos)
        else:
            pos += 1
        if pos + pos != twice_end:
            _invalid("a record does not end where its size says")
    return pos


def _invalid(reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, f"malformed records: {reason}")
