"""The records inside a v2 batch: decoding, checking and encoding their bytes.

Owns the layout of one record (KIP-98; protocol guide, "Record"): varint length, attributes byte,
varlong timestamp delta, varint offset delta, key, value and headers, each with a varint length.
It knows nothing of batch headers; ``records/batch`` calls it with the uncompressed records of one
batch as ``bytes``.

Rules:
- These are the hottest loops of the broker: they read short varints in place (`inlining`).
- A record is well formed only if its fields end exactly where its length says. Since positions
  only grow, that one comparison also proves that no slice ran over the end.
- Malformed bytes are ``KafkaError(INVALID_RECORD)``, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple, NoReturn

from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer, encode_varint, read_uvarint, read_uvarlong
from kraftrio.wire.records.columns import MIN_RUN_RECORDS, encode_uniform, uniform_run
from kraftrio.wire.records.inlining import inlined
from kraftrio.wire.records.keyless import MIN_RECORDS, encode_keyless

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record; ``timestamp`` is -1 when the producer gave none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordCheck(NamedTuple):
    """What one walk over a batch's records found."""

    max_timestamp_delta: int
    index_of_max_timestamp: int
    null_key_indexes: list[int]


class RawRecord(NamedTuple):
    """A record whose bytes stay as they are: what compaction decides on and copies."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool
    data: bytes  # with its length in front


def walk_lengths(data: bytes, count: int) -> None:
    """Check that ``data`` is exactly ``count`` records by their lengths, without looking inside."""
    pos = 0
    try:
        for _ in range(count):
            raw = data[pos]
            if raw < 0x80:
                pos += 1 + (raw >> 1)
            elif (high := data[pos + 1]) < 0x80:
                raw += (high << 7) - 0x80
                pos += 2 + (raw >> 1)
            else:
                raw, pos = read_uvarint(data, pos)
                pos += raw >> 1
            if raw & 1:
                _invalid("negative record size")
    except (IndexError, RemoteProtocolError):
        _invalid("fewer records than the header says")
    if pos != len(data):
        _invalid("the records' sizes do not fit that of the batch")


def check_records(data: bytes, count: int) -> RecordCheck:
    """Check every field of ``count`` records that fill ``data`` with offset deltas 0, 1, 2..."""
    found = _Found()
    pos = index = 0
    # Where a batch is not uniform it is tried again in longer and longer steps.
    stretch = 2 * MIN_RUN_RECORDS
    check_each = inlined(_check_each)
    try:
        while index < count:
            run = None
            if count - index >= MIN_RUN_RECORDS:
                run = uniform_run(data, pos, index, count - index)
            if run is None:
                pos = check_each(data, pos, index, min(index + stretch, count), found)
                index += stretch
                stretch *= 2
                continue
            if run.max_timestamp_raw > found.max_raw:
                found.max_raw = run.max_timestamp_raw
                found.index_of_max = index + run.index_of_max_timestamp
            if run.has_null_keys:
                found.null_keys.extend(range(index, index + run.record_count))
            pos += run.record_count * run.size_bytes
            index += run.record_count
    except (IndexError, RemoteProtocolError):
        _invalid("the batch ends before its last record")
    if pos != len(data):
        _invalid("the batch goes on after its last record")
    raw = found.max_raw if found.max_raw >= 0 else found.negative_raw
    return RecordCheck((raw >> 1) ^ -(raw & 1), found.index_of_max, found.null_keys)


class _Found:
    """What the records so far have shown.

    Zigzag keeps the order of timestamp deltas from 0 on and reverses that of the negative ones,
    which only count until the first other delta comes.
    """

    __slots__ = ("index_of_max", "max_raw", "negative_raw", "null_keys")

    def __init__(self) -> None:
        self.max_raw = self.index_of_max = -1
        self.negative_raw = 0
        self.null_keys: list[int] = []


def _check_each(data: bytes, pos: int, first: int, end: int, found: _Found) -> int:
    """Walk the records with offset deltas from `first` to before `end`; return where they end."""
    max_raw, index_of_max = found.max_raw, found.index_of_max
    negative_raw, null_keys = found.negative_raw, found.null_keys
    for expected in range(first, end):
        raw, pos = read_uvarint(data, pos)
        twice_end = pos + pos + raw  # odd, so never reached, if the size is negative
        raw, pos = read_uvarlong(data, pos + 1)  # after the attributes
        if raw > max_raw:
            if not raw & 1:
                max_raw = raw
                index_of_max = expected
            elif max_raw < 0 and (index_of_max < 0 or raw < negative_raw):
                negative_raw = raw
                index_of_max = expected
        raw, pos = read_uvarint(data, pos)
        if raw != expected << 1:
            _invalid(f"record {expected}: offset delta {raw >> 1} is not consecutive")
        raw, pos = read_uvarint(data, pos)
        if raw & 1:
            null_keys.append(expected)
        else:
            pos += raw >> 1
        raw, pos = read_uvarint(data, pos)
        if not raw & 1:
            pos += raw >> 1
        pos = skip_headers(data, pos) if data[pos] else pos + 1
        if pos + pos != twice_end:
            _invalid(f"record {expected} does not end where its size says")
    found.max_raw, found.index_of_max, found.negative_raw = max_raw, index_of_max, negative_raw
    return pos


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_timestamp: int | None
) -> Iterator[Record]:
    """Yield ``count`` records; ``append_timestamp`` replaces the timestamp of every record."""
    decode_each: Callable[..., Iterator[Record]] = inlined(_decode_each)
    return decode_each(data, count, base_offset, base_timestamp, append_timestamp)


def _decode_each(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_timestamp: int | None
) -> Iterator[Record]:
    pos = 0
    new = tuple.__new__
    try:
        for _ in range(count):
            raw, pos = read_uvarint(data, pos)
            twice_end = pos + pos + raw  # odd, so never reached, if the size is negative
            raw, pos = read_uvarlong(data, pos + 1)  # after the attributes
            timestamp = append_timestamp
            if timestamp is None:
                timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
            raw, pos = read_uvarint(data, pos)
            offset = base_offset + ((raw >> 1) ^ -(raw & 1))
            raw, pos = read_uvarint(data, pos)
            key = None
            if not raw & 1:
                key = data[pos : (pos := pos + (raw >> 1))]
            raw, pos = read_uvarint(data, pos)
            value = None
            if not raw & 1:
                value = data[pos : (pos := pos + (raw >> 1))]
            headers: Headers = ()
            if data[pos]:
                headers, pos = _decode_headers(data, pos)
            else:
                pos += 1
            if pos + pos != twice_end:
                _invalid("a record does not end where its size says")
            yield new(Record, (offset, timestamp, key, value, headers))
    except (IndexError, RemoteProtocolError):
        _invalid("the batch ends before its last record")
    if pos != len(data):
        _invalid("the batch goes on after its last record")


def iter_raw_records(data: bytes, count: int) -> Iterator[RawRecord]:
    """Yield the records as raw bytes with what compaction looks at."""
    pos = 0
    try:
        for _ in range(count):
            start = pos
            raw, pos = read_uvarint(data, pos)
            end = pos + (raw >> 1)
            if raw & 1 or not pos < end <= len(data):
                _invalid("impossible record size")
            timestamp, pos = read_uvarlong(data, pos + 1)
            offset, pos = read_uvarint(data, pos)
            raw, pos = read_uvarint(data, pos)
            key = None
            if not raw & 1:
                key = data[pos : (pos := pos + (raw >> 1))]
            has_value = not read_uvarint(data, pos)[0] & 1
            if pos >= end:
                _invalid("a record does not end where its size says")
            pos = end
            yield RawRecord(
                (offset >> 1) ^ -(offset & 1),
                (timestamp >> 1) ^ -(timestamp & 1),
                key,
                has_value,
                data[start:end],
            )
    except (IndexError, RemoteProtocolError):
        _invalid("the batch ends before its last record")
    if pos != len(data):
        _invalid("the batch goes on after its last record")


def rebase_timestamp(record: RawRecord, timestamp_delta: int) -> bytes:
    """Return the bytes of ``record`` with another timestamp delta."""
    _, pos = read_uvarint(record.data, 0)
    _, after_timestamp = read_uvarlong(record.data, pos + 1)
    body = (
        record.data[pos : pos + 1] + encode_varint(timestamp_delta) + record.data[after_timestamp:]
    )
    return encode_varint(len(body)) + body


def encode_columns(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Mapping[int, Headers],
    base_timestamp: int,
) -> list[Buffer]:
    """As ``encode_records``, for records given as columns; headers by index."""
    if not headers:
        uniform = encode_uniform(timestamps, keys, values, base_timestamp)
        if uniform is not None:
            return uniform
        if len(values) >= MIN_RECORDS and keys.count(None) == len(keys):
            keyless = encode_keyless(timestamps, values, base_timestamp)
            if keyless is not None:
                return keyless
        every: Iterable[Headers] = repeat(())
    else:
        every = [headers.get(index, ()) for index in range(len(values))]
    return list(encode_records(zip(repeat(0), timestamps, keys, values, every), base_timestamp))


def encode_records(
    records: Iterable[tuple[int, int, bytes | None, bytes | None, Headers]],
    base_timestamp: int,
    first_delta: int = 0,
) -> list[bytes]:
    """Return the pieces of the records' bytes, to be joined.

    Args:
        first_delta: the offset delta of the first of them; each has the next one.
    """
    pieces: list[bytes] = []
    extend = pieces.extend
    table = _VARINTS
    limit = len(table)
    for offset_delta, (_, timestamp, key, value, headers) in enumerate(records, first_delta):
        delta = timestamp - base_timestamp
        stamp = table[delta] if 0 <= delta < limit else encode_varint(delta)
        place = table[offset_delta] if offset_delta < limit else encode_varint(offset_delta)
        if key is None:
            key_size = _NULL
            key = b""
        else:
            size = len(key)
            key_size = table[size] if size < limit else encode_varint(size)
        if value is None:
            value_size = _NULL
            value = b""
        else:
            size = len(value)
            value_size = table[size] if size < limit else encode_varint(size)
        tail = _encode_headers(headers) if headers else _ZERO
        size = (
            1
            + len(stamp)
            + len(place)
            + len(key_size)
            + len(key)
            + len(value_size)
            + len(value)
            + len(tail)
        )
        length = table[size] if size < limit else encode_varint(size)
        extend((length, _ZERO, stamp, place, key_size, key, value_size, value, tail))
    return pieces


def _encode_headers(headers: Headers) -> bytes:
    pieces = [encode_varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        pieces += (encode_varint(len(key)), key)
        if value is None:
            pieces.append(_NULL)
        else:
            pieces += (encode_varint(len(value)), value)
    return b"".join(pieces)


def _decode_headers(data: bytes, pos: int) -> tuple[Headers, int]:
    raw, pos = read_uvarint(data, pos)
    _check_header_count(raw, len(data) - pos)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(raw >> 1):
        raw, pos = read_uvarint(data, pos)
        if raw & 1:
            _invalid("negative size of a header's key")
        name = data[pos : (pos := pos + (raw >> 1))]
        raw, pos = read_uvarint(data, pos)
        value = None
        if not raw & 1:
            value = data[pos : (pos := pos + (raw >> 1))]
        # Kafka decodes names leniently too: a bad byte must not make the record unreadable.
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), pos


def skip_headers(data: bytes, pos: int) -> int:
    raw, pos = read_uvarint(data, pos)
    _check_header_count(raw, len(data) - pos)
    for _ in range(raw >> 1):
        raw, pos = read_uvarint(data, pos)
        if raw & 1:
            _invalid("negative size of a header's key")
        raw, pos = read_uvarint(data, pos + (raw >> 1))
        if not raw & 1:
            pos += raw >> 1
    return pos


def _check_header_count(raw: int, left: int) -> None:
    """A header has two bytes at least, so a higher count cannot be true."""
    if raw & 1 or raw > left:
        _invalid(f"impossible number of headers: {(raw >> 1) ^ -(raw & 1)}")


def _invalid(reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, reason)


_ZERO = b"\x00"
_NULL = b"\x01"  # the length -1
_VARINTS = tuple(encode_varint(value) for value in range(4096))
