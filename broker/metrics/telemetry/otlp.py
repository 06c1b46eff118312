"""Reads the metrics that a client pushes: OTLP's MetricsData, a protocol buffer.

Owns: `read_metrics`. A reader of our own: a dozen of the format's fields are wanted, for which the
library would bring the runtime of protocol buffers into every broker. Numbers of fields are those
of opentelemetry/proto/metrics/v1/metrics.proto. What is not known is passed over.

Rules: the bytes are a stranger's. Each length is checked against what is there, nesting is as deep
as the format's own, and a reader stops where it has enough.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kraftrio.wire.errors import RemoteProtocolError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _SIGNED64 = struct.Struct("<d"), struct.Struct("<q")
_DELTA: Final = 1
_MAX_VARINT_BYTES = 10

# metric.data, by field
_GAUGE, _SUM, _HISTOGRAM = 5, 7, 9


class PushedPoint(NamedTuple):
    """One value of a metric.

    Attributes:
        is_counter: it only grows.
        is_delta: it is what was added since the last push.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    is_delta: bool


def read_metrics(data: bytes) -> Iterator[PushedPoint]:
    """Read the points one by one.

    Raises:
        RemoteProtocolError: the bytes are no such message.
    """
    view = memoryview(data)
    for resource_metrics in _messages(view, 1):
        for scope_metrics in _messages(resource_metrics, 2):
            for metric in _messages(scope_metrics, 2):
                yield from _points(metric)


def _points(metric: memoryview) -> Iterator[PushedPoint]:
    name = ""
    for field, value in _fields(metric):
        if field == 1:
            name = _text(value)
    for field, value in _fields(metric):
        if field not in (_GAUGE, _SUM, _HISTOGRAM):
            continue
        data = _message(value)
        is_delta = is_monotonic = False
        for inner, part in _fields(data):
            is_delta = is_delta or (inner == 2 and field != _GAUGE and part == _DELTA)
            is_monotonic = is_monotonic or (inner == 3 and field == _SUM and bool(part))
        for point in _messages(data, 1):
            if field == _HISTOGRAM:
                yield from _of_histogram(name, point, is_delta=is_delta)
            else:
                labels, number = _of_number(point)
                yield PushedPoint(name, labels, number, is_monotonic, is_delta)


def _of_number(point: memoryview) -> tuple[tuple[tuple[str, str], ...], float]:
    labels, number = [], 0.0
    for field, value in _fields(point):
        if field == 7:
            labels.append(_label(_message(value)))
        elif field == 4:
            number = float(_DOUBLE.unpack(_eight(value))[0])
        elif field == 6:
            number = float(_SIGNED64.unpack(_eight(value))[0])
    return tuple(sorted(labels)), number


def _of_histogram(name: str, point: memoryview, *, is_delta: bool) -> Iterator[PushedPoint]:
    """Its count and sum: the buckets are of another form than ours."""
    labels, count, total = [], 0.0, 0.0
    for field, value in _fields(point):
        if field == 9:
            labels.append(_label(_message(value)))
        elif field == 4:
            count = float(_SIGNED64.unpack(_eight(value))[0])
        elif field == 5:
            total = float(_DOUBLE.unpack(_eight(value))[0])
    key = tuple(sorted(labels))
    yield PushedPoint(f"{name}.count", key, count, True, is_delta)
    yield PushedPoint(f"{name}.sum", key, total, True, is_delta)


def _label(attribute: memoryview) -> tuple[str, str]:
    key = text = ""
    for field, value in _fields(attribute):
        if field == 1:
            key = _text(value)
        elif field == 2:
            for kind, inner in _fields(_message(value)):
                if kind == 1:
                    text = _text(inner)
                elif kind == 4:
                    text = str(_DOUBLE.unpack(_eight(inner))[0])
                elif kind in (2, 3):
                    text = str(inner) if isinstance(inner, int) else ""
    return key, text


# -- the format ----------------------------------------------------------------------------------


def _fields(view: memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers for varints, views for what has a length or eight bytes."""
    position, size = 0, len(view)
    while position < size:
        tag, position = _varint(view, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(view, position)
            yield tag >> 3, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            length, position = _varint(view, position)
        if length is None or position + length > size:
            raise RemoteProtocolError("the pushed metrics are no OTLP message")
        yield tag >> 3, view[position : position + length]
        position += length


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if position >= len(view):
            break
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position
    raise RemoteProtocolError("the pushed metrics are incomplete")


def _messages(view: memoryview, wanted: int) -> Iterator[memoryview]:
    for field, value in _fields(view):
        if field == wanted:
            yield _message(value)


def _message(value: Any) -> memoryview:
    if not isinstance(value, memoryview):
        raise RemoteProtocolError("the pushed metrics have a number where a message is expected")
    return value


def _eight(value: Any) -> memoryview:
    if not isinstance(value, memoryview) or len(value) != 8:
        raise RemoteProtocolError("the pushed metrics have a number of another size")
    return value


def _text(value: Any) -> str:
    try:
        return str(_message(value), "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("the pushed metrics have a text that is no UTF-8") from error
