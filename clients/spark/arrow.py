"""Arrow batches from record batches, without a Python object for each key and value.

Owns `RecordColumns`, which collects record batches of one partition until there are enough for an
Arrow batch with the columns of Spark's `kafka` format, and `arrow_schema`, their types. Rules:
1. What is per record in Python is one step along the records' lengths, and not even that where
   records in a row have one size. Everything else is read column by column, by Arrow's kernels: the
   first byte of each record's length, then of each timestamp, and so on. Only headers, if they are
   asked for, are read one by one.
2. It decides as `wire.record_walk` does: a record whose fields do not end where its length says is
   INVALID_RECORD. Headers that were not asked for are not looked into.
3. Keys and values are one copy away from the fetched bytes: they are named by where they lie in
   them, then gathered at once.

Called by: the Spark data sources. KIP-98; protocol guide, "Record".
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer, read_uvarint
from kraftrio.wire.records.batch import BATCH_OVERHEAD, BatchHeader, Compression, TimestampType
from kraftrio.wire.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, decompress

DEFAULT_MAX_ROWS: Final = 100_000
DEFAULT_MAX_BYTES: Final = 16 << 20

_US = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _US),
    pa.field("timestampType", pa.int32()),
]
_HEADERS = pa.field("headers", pa.list_(pa.field("element", _HEADER)))

# Numbers as Arrow's kernels take them: with Python's, each call would have to convert them.
_INT64 = pa.int64()
_UINT64 = pa.uint64()
_ZERO = pa.scalar(0, _INT64)
_ONE = pa.scalar(1, _INT64)
_THOUSAND = pa.scalar(1000, _INT64)
_HIGH_HALF = pa.scalar(32, _INT64)
_NO_INDEX = pa.scalar(None, _INT64)
_LOG_APPEND_TIME = pa.scalar(int(TimestampType.LOG_APPEND_TIME), pa.int32())

# Positions are looked up without a check of each first: what is read behind the last record is 0.
_PADDING = bytes(16)
_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10
_MIN_RUN_RECORDS = 8


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Return the columns' types, as Spark expects them from a Python data source."""
    return pa.schema([*_FIELDS, _HEADERS] if include_headers else _FIELDS)


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Which records are wanted: offsets from `start` to before `end`, timestamps in between, too.

    Timestamps are in microseconds, as Spark knows them; both ends are included.
    """

    start: int
    end: int
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None


class RecordColumns:
    """Batches of one partition, on their way to being an Arrow batch."""

    def __init__(
        self,
        topic: str,
        partition: int,
        bounds: RowBounds,
        *,
        include_headers: bool = False,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.schema = arrow_schema(include_headers=include_headers)
        self._topic = topic
        self._partition = partition
        self._bounds = bounds
        self._include_headers = include_headers
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_decompressed_bytes = max_decompressed_bytes
        self._batches: list[BatchHeader] = []
        self._pieces: list[Buffer] = []
        self._row_count = self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to `take`."""
        return self._row_count >= self._max_rows or self._size_bytes >= self._max_bytes

    def skip_to(self, offset: int) -> None:
        """Leave out what lies before an offset from now on; nothing waits to be taken."""
        assert not self._batches, "take first"
        self._bounds = replace(self._bounds, start=max(self._bounds.start, offset))

    def add(self, buf: Buffer, header: BatchHeader) -> None:
        """Add a batch of data; its bytes must not change until `take`.

        Raises:
            KafkaError: it does not decompress.
        """
        if not header.record_count or self._is_out_of_bounds(header):
            return
        start = header.position + BATCH_OVERHEAD
        data: Buffer = memoryview(buf)[start : header.position + header.size_bytes]
        if header.compression is not Compression.NONE:
            data = decompress(header.compression, data, self._max_decompressed_bytes)
        self._batches.append(header)
        self._pieces.append(data)
        self._row_count += header.record_count
        self._size_bytes += len(data)

    def _is_out_of_bounds(self, header: BatchHeader) -> bool:
        bounds = self._bounds
        if header.last_offset < bounds.start or header.base_offset >= bounds.end:
            return True
        oldest_us = bounds.min_timestamp_us
        return oldest_us is not None and header.max_timestamp * 1000 < oldest_us

    def take(self) -> pa.RecordBatch | None:
        """Return what was added as one Arrow batch; None if no record of it is wanted.

        Raises:
            KafkaError: INVALID_RECORD, as `wire.record_batch.iter_records`.
        """
        if not self._batches:
            return None
        batches, self._batches = self._batches, []
        pieces, self._pieces = self._pieces, []
        self._row_count = self._size_bytes = 0
        data = b"".join([*pieces, _PADDING])
        starts = array("q")
        pos = 0
        for header, piece in zip(batches, pieces, strict=True):
            _walk(data, pos, pos + len(piece), header.record_count, starts)
            pos += len(piece)
        try:
            layout = _ArrowLayout(data, starts)
        except pa.ArrowIndexError:
            _invalid("a record's fields lie outside of it")
        columns = self._columns(layout, batches)
        return self._within_bounds(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def _columns(self, layout: _ArrowLayout, batches: list[BatchHeader]) -> list[pa.Array]:
        count = layout.record_count
        offsets = pc.add(
            _per_record(batches, lambda batch: batch.base_offset), _unzigzag(layout.offset_delta)
        )
        appended = [batch.timestamp_type is TimestampType.LOG_APPEND_TIME for batch in batches]
        if not any(appended):
            kinds = pa.repeat(pa.scalar(0, pa.int32()), count)
            timestamps = pc.add(
                _per_record(batches, lambda batch: batch.base_timestamp),
                _unzigzag(layout.timestamp_delta),
            )
        else:
            kinds = _per_record(batches, lambda batch: int(batch.timestamp_type)).cast(pa.int32())
            timestamps = pc.if_else(
                pc.equal(kinds, _LOG_APPEND_TIME),
                _per_record(batches, lambda batch: batch.max_timestamp),
                pc.add(
                    _per_record(batches, lambda batch: batch.base_timestamp),
                    _unzigzag(layout.timestamp_delta),
                ),
            )
        columns = [
            layout.gather(layout.key_start, layout.key_end, layout.key_null),
            layout.gather(layout.value_start, layout.value_end, layout.value_null),
            pa.repeat(pa.scalar(self._topic, pa.string()), count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), count),
            offsets,
            pc.multiply_checked(timestamps, _THOUSAND).view(_US),
            kinds,
        ]
        if self._include_headers:
            columns.append(layout.headers())
        return columns

    def _within_bounds(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        bounds = self._bounds
        offsets = batch.column(4)
        wanted = None
        if offsets[0].as_py() < bounds.start or offsets[-1].as_py() >= bounds.end:
            wanted = pc.and_(
                pc.greater_equal(offsets, _int64(bounds.start)),
                pc.less(offsets, _int64(bounds.end)),
            )
        if bounds.min_timestamp_us is not None or bounds.max_timestamp_us is not None:
            timestamps = batch.column(5).view(_INT64)
            for limit, compare in (
                (bounds.min_timestamp_us, pc.greater_equal),
                (bounds.max_timestamp_us, pc.less_equal),
            ):
                if limit is not None:
                    fits = compare(timestamps, _int64(limit))
                    wanted = fits if wanted is None else pc.and_(wanted, fits)
        if wanted is not None:
            batch = batch.filter(wanted)
        return batch if batch.num_rows else None


class _ArrowLayout:
    """Where the fields of each record lie in `data`, as columns of positions."""

    def __init__(self, data: bytes, starts: array[int]) -> None:
        self.record_count = len(starts)
        self._data = data
        self._body = pa.py_buffer(data)
        self._octets = pa.Array.from_buffers(pa.uint8(), len(data), [None, self._body])
        start = pa.Array.from_buffers(_INT64, len(starts), [None, pa.py_buffer(starts)])
        length, pos = self._varint(start)
        end = pc.add(pos, pc.shift_right(length, _ONE))
        # One byte of attributes, which nothing is in, lies before the timestamp.
        self.timestamp_delta, pos = self._varint(pc.add(pos, _ONE), _UINT64, _MAX_VARLONG_BYTES)
        self.offset_delta, pos = self._varint(pos)
        self.key_start, self.key_end, self.key_null = self._slice(pos)
        self.value_start, self.value_end, self.value_null = self._slice(self.key_end)
        self._header_count, self._headers_start = self._varint(self.value_end)
        self._has_headers = pc.not_equal(self._header_count, _ZERO)
        if pc.any(self._has_headers).as_py():
            is_even = pc.equal(pc.bit_wise_and(self._header_count, _ONE), _ZERO)
            well_formed = pc.if_else(
                self._has_headers,
                pc.and_(pc.less(self._headers_start, end), is_even),
                pc.equal(self._headers_start, end),
            )
        else:
            well_formed = pc.equal(self._headers_start, end)
        if not pc.all(well_formed).as_py():
            _invalid("a record does not end where its size says")
        self._end = end

    def _varint(
        self, pos: pa.Array, kind: Any = _INT64, max_bytes: int = _MAX_VARINT_BYTES
    ) -> tuple[pa.Array, pa.Array]:
        """Read a varint, still zigzag, at each position; also return the positions after them."""
        value = self._octets.take(pos).cast(kind)
        more = pc.greater_equal(value, pa.scalar(0x80, kind))
        pos = pc.add(pos, _ONE)
        if not pc.any(more).as_py():
            return value, pos
        low = pa.scalar(0x7F, kind)
        value = pc.bit_wise_and(value, low)
        for shift in range(7, 7 * max_bytes, 7):
            octet = self._octets.take(pos).cast(kind)
            part = pc.shift_left(pc.bit_wise_and(octet, low), pa.scalar(shift, kind))
            value = pc.if_else(more, pc.bit_wise_or(value, part), value)
            pos = pc.add(pos, more.cast(_INT64))
            more = pc.and_(more, pc.greater_equal(octet, pa.scalar(0x80, kind)))
            if not pc.any(more).as_py():
                return value, pos
        return _invalid("a number has too many bytes")

    def _slice(self, pos: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
        """Read lengths; return where the bytes after them start and end, and which are null."""
        length, start = self._varint(pos)
        is_null = pc.bit_wise_and(length, _ONE).cast(pa.bool_())
        size = pc.shift_right(length, _ONE)
        if not pc.any(is_null).as_py():
            return start, pc.add(start, size), None
        size = pc.if_else(is_null, _ZERO, size)
        return start, pc.add(start, size), is_null

    def gather(self, start: pa.Array, end: pa.Array, is_null: pa.Array | None) -> pa.Array:
        """Return the bytes between two columns of positions as a column."""
        # As a column of twice as many items, what lies between them included: Arrow's offsets
        # are pairs of int32, start and end, which is what a little-endian int64 holds.
        pairs = pc.bit_wise_or(start, pc.shift_left(end, _HIGH_HALF))
        every = pa.Array.from_buffers(
            pa.binary(), 2 * self.record_count - 1, [None, pairs.buffers()[1], self._body]
        )
        chosen = _even_numbers(self.record_count)
        if is_null is not None:
            chosen = pc.if_else(is_null, _NO_INDEX, chosen)
        return every.take(chosen)

    def headers(self) -> pa.Array:
        """Return the headers; null where a record has none, as Spark has it."""
        counts = pc.shift_right(self._header_count, _ONE).to_pylist()
        names: list[str] = []
        values: list[bytes | None] = []
        ends = array("i", [0])
        rows = zip(counts, self._headers_start.to_pylist(), self._end.to_pylist(), strict=True)
        for count, pos, end in rows:
            if count:
                _read_headers(self._data, pos, end, count, names, values)
            ends.append(len(names))
        items = pa.StructArray.from_arrays(
            [pa.array(names, pa.string()), pa.array(values, pa.binary())],
            fields=[_HEADER.field(0), _HEADER.field(1)],
        )
        offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
        mask = pc.invert(self._has_headers)
        return pa.ListArray.from_arrays(offsets, items, type=_HEADERS.type, mask=mask)


def _read_headers(
    data: bytes, pos: int, end: int, count: int, names: list[str], values: list[bytes | None]
) -> None:
    if count > end - pos:  # a header has two bytes at least
        _invalid(f"impossible number of headers: {count}")
    try:
        for _ in range(count):
            raw, pos = read_uvarint(data, pos)
            if raw & 1:
                _invalid("negative size of a header's key")
            names.append(data[pos : pos + (raw >> 1)].decode("utf-8", "replace"))
            raw, pos = read_uvarint(data, pos + (raw >> 1))
            if raw & 1:
                values.append(None)
            else:
                values.append(data[pos : (pos := pos + (raw >> 1))])
    except (IndexError, RemoteProtocolError):
        _invalid("a record's headers do not end")
    if pos != end:
        _invalid("a record does not end where its size says")


def _walk(data: bytes, pos: int, end: int, count: int, starts: array[int]) -> None:
    """Append where each of the records between two positions starts."""
    index = 0
    stretch = 2 * _MIN_RUN_RECORDS  # walked record by record before equal sizes are tried again
    while index < count and pos < end:
        size, run = _equal_sizes(data, pos, end, count - index)
        if run >= _MIN_RUN_RECORDS:
            starts.extend(range(pos, pos + run * size, size))
            pos += run * size
            index += run
            continue
        steps = min(stretch, count - index)
        pos = _walk_each(data, pos, end, steps, starts.append)
        index += steps
        stretch *= 2
    if index != count or pos != end:
        _invalid("the records' sizes do not fit that of the batch")


def _walk_each(data: bytes, pos: int, end: int, steps: int, append: Callable[[int], None]) -> int:
    for _ in range(steps):
        if pos >= end:
            _invalid("fewer records than the header says")
        append(pos)
        if (raw := data[pos]) < 0x80:
            pos += 1 + (raw >> 1)
        elif (high := data[pos + 1]) < 0x80:
            raw += (high << 7) - 0x80
            pos += 2 + (raw >> 1)
        else:
            try:
                raw, pos = read_uvarint(data, pos)
            except (IndexError, RemoteProtocolError):
                _invalid("a record's size does not end")
            pos += raw >> 1
        if raw & 1:
            _invalid("negative record size")
    return pos


def _equal_sizes(data: bytes, pos: int, end: int, count: int) -> tuple[int, int]:
    """Return the size of the record at `pos` and how many from there on say that size."""
    raw = data[pos]
    width = 1
    if raw >= 0x80:
        high = data[pos + 1]
        if high >= 0x80:
            return 0, 0
        raw += (high << 7) - 0x80
        width = 2
    if raw & 1:
        return 0, 0
    size = width + (raw >> 1)
    run = min(count, (end - pos) // size)
    for position in range(pos, pos + width):
        if run < _MIN_RUN_RECORDS:
            return size, 0
        column = data[position : position + run * size : size]
        run -= len(column.lstrip(column[:1]))
    return size, run


def _per_record(batches: list[BatchHeader], field: Callable[[BatchHeader], int]) -> pa.Array:
    """Repeat a number of each batch as often as the batch has records."""
    ends = array("i")
    end = 0
    for batch in batches:
        end += batch.record_count
        ends.append(end)
    values = pa.array([field(batch) for batch in batches], _INT64)
    if len(batches) == 1:
        return pa.repeat(values[0], end)
    run_ends = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(run_ends, values))


def _unzigzag(raw: pa.Array) -> pa.Array:
    """Return the signed numbers that a column of zigzag ones stands for."""
    one = pa.scalar(1, raw.type)
    sign = pc.bit_wise_and(raw, one).view(_INT64)
    return pc.bit_wise_xor(pc.shift_right(raw, one).view(_INT64), pc.negate(sign))


_evens = pa.array(range(0, 2048, 2), _INT64)


def _even_numbers(count: int) -> pa.Array:
    global _evens
    while len(_evens) < count:
        _evens = pa.concat_arrays([_evens, pc.add(_evens, _int64(2 * len(_evens)))])
    return _evens.slice(0, count)


def _int64(number: int) -> pa.Scalar:
    return pa.scalar(number, _INT64)


def _invalid(reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, reason)
