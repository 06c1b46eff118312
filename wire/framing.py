"""Frames of a Kafka connection, sans-IO: bytes in, requests out, responses out in request order.

A frame is a four-byte big-endian length and that many bytes (protocol guide, "Network").
`ServerConnection` is the broker's half of one connection: it owns the bytes of a request that has
not arrived whole, and the order of responses.

Rules
- The caller reads into `receive_buffers()` and reports the count to `bytes_received()`, which
  returns every request that is whole by then.  A request larger than one read is received straight
  into its own buffer, without a further copy.
- A returned frame is a writable view of a buffer that nobody else holds, so that offsets may be
  stamped in place.
- Every request but a Produce with acks=0 takes a `ResponseSlot`.  Slots leave in the order they
  were opened, however late they are filled.
- A frame length that is negative or above the limit is a RemoteProtocolError; after it the
  connection can only be closed.

Called by `broker/server.py`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import Buffer, read_uvarint

# A larger request is not given all its memory at once: what a peer only announces costs little. A
# peer that has sent large requests before gets more at once, which saves copies.
_FIRST_EAGER_BYTES = 64 << 10
_MAX_EAGER_BYTES = 1 << 20

_length = struct.Struct(">i")
_request_start = struct.Struct(">hhih")


class RequestStart(NamedTuple):
    """The request header (v1, or v2 with its tagged fields skipped) and where the body begins in
    the frame.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def parse_request_start(
    frame: memoryview, flexible_from: Callable[[int], int | None]
) -> RequestStart:
    """Read a request's header.

    Args:
        frame: the whole request without its length prefix.
        flexible_from: api_key -> first version whose header carries tagged fields (None: no
        version does).

    Raises:
        RemoteProtocolError: the frame ends within the header, or the client id is no UTF-8.
    """
    size = len(frame)
    try:
        api_key, version, correlation_id, id_length = _request_start.unpack_from(frame)
        position = 10
        client_id: str | None = None
        if id_length >= 0:
            position += id_length
            if position > size:
                raise RemoteProtocolError("the client id is longer than the frame")
            client_id = str(frame[10:position], "utf-8")
        flexible = flexible_from(api_key)
        if flexible is not None and version >= flexible:
            position = _skip_tagged_fields(frame, position)
    except (struct.error, IndexError) as error:
        raise RemoteProtocolError("the frame ends within the request header") from error
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("the client id is not UTF-8") from error
    return RequestStart(api_key, version, correlation_id, client_id, position)


def _skip_tagged_fields(frame: memoryview, position: int) -> int:
    if frame[position] == 0:  # no tagged field: every client so far
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        field_bytes, position = read_uvarint(frame, position)
        position += field_bytes
        if position > len(frame):
            raise RemoteProtocolError("a tagged field of the header is longer than the frame")
    return position


class ResponseSlot:
    """The place of one response in its connection's order, and how to encode it once known."""

    __slots__ = ("encode", "request")

    def __init__(self, request: RequestStart) -> None:
        self.request = request
        self.encode: Callable[[], list[Buffer]] | None = None


class ServerConnection:
    """The broker's half of one connection.

    Args:
        max_request_bytes: `socket.request.max.bytes`; a longer frame is refused.
        scratch: buffer for whatever arrives; connections may share it, since nothing stays in it
            between two calls.
    """

    __slots__ = (
        "_eager_bytes",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_head",
        "_max_request_bytes",
        "_scratch",
        "_slots",
    )

    def __init__(self, max_request_bytes: int, scratch: bytearray) -> None:
        self._max_request_bytes = max_request_bytes
        self._scratch = memoryview(scratch)
        self._eager_bytes = _FIRST_EAGER_BYTES
        self._head = b""  # fewer than four bytes of a length prefix
        self._frame: bytearray | None = None  # a request that is still arriving
        self._frame_bytes = 0  # its announced size
        self._filled = 0  # how much of it is here
        self._slots: deque[ResponseSlot] = deque()

    # -- requests -------------------------------------------------------------------------------

    def receive_buffers(self) -> list[memoryview]:
        """Buffers to read into: the rest of an unfinished request first, then scratch."""
        if self._frame is None:
            return [self._scratch]
        return [memoryview(self._frame)[self._filled :], self._scratch]

    def bytes_received(self, count: int, buffers: list[memoryview]) -> list[memoryview]:
        """Take note of `count` bytes read into `receive_buffers()`; return the whole requests.

        Raises:
            RemoteProtocolError: a frame length is negative or too large.
        """
        frames: list[memoryview] = []
        direct = 0
        if self._frame is not None:
            direct = min(len(buffers[0]), count)
            buffers[0].release()  # an exported view would forbid growing the frame
            self._filled += direct
        data = self._scratch[: count - direct]
        if self._frame is not None:
            data = self._continue_frame(data, frames)
        if data:
            self._split(data, frames)
        return frames

    def _continue_frame(self, data: memoryview, frames: list[memoryview]) -> memoryview:
        """Put `data` behind what the unfinished request has; return what is left of it."""
        frame = self._frame
        assert frame is not None
        while self._filled < self._frame_bytes:
            if self._filled == len(frame):
                frame.extend(bytes(min(len(frame), self._frame_bytes - len(frame))))
            if not data:
                return data
            take = min(len(frame) - self._filled, len(data))
            frame[self._filled : self._filled + take] = data[:take]
            self._filled += take
            data = data[take:]
        frames.append(memoryview(frame))
        self._frame = None
        self._eager_bytes = min(max(self._eager_bytes, len(frame)), _MAX_EAGER_BYTES)
        return data

    def _split(self, data: memoryview, frames: list[memoryview]) -> None:
        """Cut `data` into whole requests and keep what is left over."""
        if self._head:
            data = memoryview(self._head + bytes(data))
            self._head = b""
        position, size = 0, len(data)
        while size - position >= 4:
            (frame_bytes,) = _length.unpack_from(data, position)
            if frame_bytes < 0 or frame_bytes > self._max_request_bytes:
                raise RemoteProtocolError(
                    f"a frame of {frame_bytes} bytes is outside 0..{self._max_request_bytes}"
                )
            position += 4
            end = position + frame_bytes
            if end <= size:
                frames.append(memoryview(bytearray(data[position:end])))
                position = end
                continue
            frame = bytearray(min(frame_bytes, max(self._eager_bytes, size - position)))
            self._filled = size - position
            frame[: self._filled] = data[position:]
            self._frame, self._frame_bytes = frame, frame_bytes
            self._continue_frame(data[:0], frames)  # grows it if what is here fills it
            return
        if position < size:
            self._head = bytes(data[position:])

    # -- responses ------------------------------------------------------------------------------

    @property
    def slots_in_flight(self) -> int:
        """How many requests wait for their response to leave."""
        return len(self._slots)

    @property
    def has_ready_response(self) -> bool:
        """True when the oldest response can be sent."""
        return bool(self._slots) and self._slots[0].encode is not None

    def open_slot(self, request: RequestStart) -> ResponseSlot:
        """Take the next place in the order of responses."""
        slot = ResponseSlot(request)
        self._slots.append(slot)
        return slot

    def take_ready(self) -> ResponseSlot | None:
        """The oldest slot, if it is filled; it leaves the order."""
        if self._slots and self._slots[0].encode is not None:
            return self._slots.popleft()
        return None
