"""Frames of a Kafka connection, sans-IO: bytes in, whole frames out, answers in request order.

A frame is a four-byte big-endian length and that many bytes (protocol guide, "Network").
`FrameReader` owns the bytes of a frame that has not arrived whole.  `ServerConnection` is the
broker's half of one connection: it adds the order of responses.  `ClientConnection` is the other
half: it adds request headers and says which request a response answers.

Rules
- The caller reads into `receive_buffers()` and reports the count to `bytes_received()`, which
  returns every frame that is whole by then.  A frame larger than one read is received straight
  into its own buffer, without a further copy.
- A returned frame is a writable view of a buffer that nothing else uses as long as there is a view
  of it, so that offsets may be stamped in place.
- Every request but a Produce with acks=0 takes a `ResponseSlot`.  Slots leave in the order they
  were opened, however late they are filled.
- Responses come in the order of the requests; a correlation id out of turn is a
  RemoteProtocolError.
- A frame length that is negative or above the limit is a RemoteProtocolError, after the frames that
  came before it; after any such error the connection can only be closed.
- A large frame gets its memory in steps as it arrives; `growth_bytes` is the size of the next one,
  before it is taken.

Called by `broker/server/server.py` and `net/connection.py`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from mmap import mmap
from typing import Any, Generic, NamedTuple, TypeVar

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import Buffer, read_uvarint
from kraftrio.wire.stored_bytes import Piece

# A larger frame is not given all its memory at once: what a peer only announces costs little. A
# peer that has sent large frames before gets more at once, which saves copies; most of all one that
# we asked for them.
_FIRST_EAGER_BYTES = 64 << 10
_MAX_EAGER_BYTES = 1 << 20
_MAX_GROWTH_BYTES = 4 << 20
# From here on a request has memory of its own: it grows without moving, and all of it goes back.
_LEAST_MAPPED_BYTES = 4 << 20
_MAX_EAGER_RESPONSE_BYTES = 16 << 20
_MAX_CORRELATION_ID = 2**31 - 1
_TLS_HEADS = (0x1503, 0x1603)  # how an alert and a handshake begin

# Frames whose memory is worth being used again, and may be kept for that.
_LEAST_SPARE_BYTES = 256 << 10
_MAX_SPARE_BYTES = 4 << 20

_length = struct.Struct(">i")
_request_start = struct.Struct(">hhih")
_framed_request_start = struct.Struct(">ihhih")

T = TypeVar("T")


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


class FrameReader:
    """Cuts what a peer sends into frames.

    Args:
        max_frame_bytes: a longer frame is refused.
        scratch: buffer for whatever arrives; connections may share it, since nothing stays in it
            between two calls.
        max_eager_bytes: the most memory that a frame is given on its announcement alone.
    """

    __slots__ = (
        "_eager_bytes",
        "_error",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_granted",
        "_head",
        "_max_eager_bytes",
        "_max_frame_bytes",
        "_scratch",
    )

    def __init__(
        self, max_frame_bytes: int, scratch: bytearray, max_eager_bytes: int = _MAX_EAGER_BYTES
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._scratch = memoryview(scratch)
        self._max_eager_bytes = max_eager_bytes
        self._eager_bytes = _FIRST_EAGER_BYTES
        self._head = b""  # fewer than four bytes of a length prefix
        self._frame: bytearray | mmap | None = None  # a frame that is still arriving
        self._frame_bytes = 0  # its announced size
        self._granted = 0  # how much memory of it may be used
        self._filled = 0  # how much of it is here
        self._error: RemoteProtocolError | None = None  # raised once the frames before it are

    @property
    def unfinished_bytes(self) -> int:
        """The memory of a frame that has not arrived whole."""
        return 0 if self._frame is None else self._granted

    @property
    def growth_bytes(self) -> int:
        """How much more memory that frame needs before more of it can be received; 0: none."""
        if self._frame is None or self._filled < self._granted:
            return 0
        return min(self._granted, _MAX_GROWTH_BYTES, self._frame_bytes - self._granted)

    def _grow(self) -> None:
        growth_bytes = self.growth_bytes
        self._granted += growth_bytes
        if isinstance(self._frame, bytearray):
            self._frame.extend(bytes(growth_bytes))

    def discard(self) -> None:
        """Give the memory of an unfinished frame back: nothing more will be received."""
        self._frame = None

    @property
    def is_within_frame(self) -> bool:
        """True when a frame has begun to arrive and is not whole."""
        return self._frame is not None or bool(self._head)

    @property
    def is_between_frames(self) -> bool:
        """True when nothing has come after the last whole frame, be it a frame or not."""
        return self._frame is None and not self._head and self._error is None

    def receive_buffers(self, scratch_bytes: int | None = None) -> list[memoryview]:
        """Buffers to read into: the rest of an unfinished frame first, then scratch.

        Args:
            scratch_bytes: how much of scratch to use; None: all.

        Raises:
            RemoteProtocolError: what came after the last frames is not a frame.
        """
        if self._error is not None:
            raise self._error
        scratch = self._scratch[:scratch_bytes]
        if self._frame is None:
            return [scratch]
        if self._filled == self._granted:
            self._grow()
        rest = memoryview(self._frame)[self._filled : self._granted]
        # What is behind the frame may come along, once there is memory for all of it.
        return [rest, scratch] if self._granted == self._frame_bytes else [rest]

    def bytes_received(self, count: int, buffers: list[memoryview]) -> list[memoryview]:
        """Take note of `count` bytes read into `receive_buffers()`; return the whole frames.

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

    def _new_frame(self, size_bytes: int, frame_bytes: int) -> bytearray | mmap:
        """Return memory for the beginning of a frame; what lies in it does not matter.

        A bytearray grows as the frame arrives; other memory is of all its bytes.
        """
        return bytearray(size_bytes)

    def _continue_frame(self, data: memoryview, frames: list[memoryview]) -> memoryview:
        """Put `data` after what the unfinished frame has; return what is left of it."""
        frame = self._frame
        assert frame is not None
        while self._filled < self._frame_bytes:
            if not data:
                return data
            take = min(self._granted - self._filled, len(data))
            frame[self._filled : self._filled + take] = data[:take]
            self._filled += take
            data = data[take:]
        frames.append(memoryview(frame))
        self._frame = None
        self._eager_bytes = min(max(self._eager_bytes, len(frame)), self._max_eager_bytes)
        return data

    def _split(self, data: memoryview, frames: list[memoryview]) -> None:
        """Cut `data` into whole frames and keep what is left over."""
        if self._head:
            data = memoryview(self._head + bytes(data))
            self._head = b""
        position, size = 0, len(data)
        while size - position >= 4:
            (frame_bytes,) = _length.unpack_from(data, position)
            if frame_bytes < 0 or frame_bytes > self._max_frame_bytes:
                error = no_frame(frame_bytes, self._max_frame_bytes)
                if not frames:
                    raise error
                self._error = error
                return
            position += 4
            end = position + frame_bytes
            if end <= size:
                frames.append(memoryview(bytearray(data[position:end])))
                position = end
                continue
            self._granted = min(frame_bytes, max(self._eager_bytes, size - position))
            frame = self._new_frame(self._granted, frame_bytes)
            self._filled = size - position
            frame[: self._filled] = data[position:]
            self._frame, self._frame_bytes = frame, frame_bytes
            return
        if position < size:
            self._head = bytes(data[position:])


class ResponseSlot:
    """The place of one response in its connection's order, and how to encode it once known.

    Attributes:
        pieces: the response, once it is encoded.
        times: what its owner keeps with it.
    """

    __slots__ = ("encode", "pieces", "request", "times")

    def __init__(self, request: RequestStart) -> None:
        self.request = request
        self.encode: Callable[[], list[Piece]] | None = None
        self.pieces: list[Piece] | None = None
        self.times: Any = None


def no_frame(size_bytes: int, max_bytes: int) -> RemoteProtocolError:
    """Return what is wrong with a peer that announces a frame of a size which is not accepted."""
    if size_bytes >> 16 in _TLS_HEADS:
        return RemoteProtocolError("the peer speaks TLS, and this side does not")
    return RemoteProtocolError(f"a frame of {size_bytes} bytes is outside 0..{max_bytes}")


class ServerConnection(FrameReader):
    """The broker's half of one connection.

    Attributes:
        slots: the responses that have not left, in their order; `open_slot` and `take_ready` alone
            change it.

    Args:
        max_request_bytes: `socket.request.max.bytes`; a longer frame is refused.
        scratch: see `FrameReader`.
    """

    __slots__ = ("slots",)

    def __init__(self, max_request_bytes: int, scratch: bytearray) -> None:
        super().__init__(max_request_bytes, scratch)
        self.slots: deque[ResponseSlot] = deque()

    def _new_frame(self, size_bytes: int, frame_bytes: int) -> bytearray | mmap:
        """Large requests are mapped: only what has arrived of them takes memory."""
        if frame_bytes < _LEAST_MAPPED_BYTES:
            return bytearray(size_bytes)
        return mmap(-1, frame_bytes)

    @property
    def has_ready_response(self) -> bool:
        """True when the oldest response can be sent."""
        return bool(self.slots) and self.slots[0].encode is not None

    def open_slot(self, request: RequestStart) -> ResponseSlot:
        """Take the next place in the order of responses."""
        slot = ResponseSlot(request)
        self.slots.append(slot)
        return slot

    def take_ready(self) -> ResponseSlot | None:
        """The oldest slot, if it is filled; it leaves the order."""
        if self.slots and self.slots[0].encode is not None:
            return self.slots.popleft()
        return None


class _Expected(NamedTuple, Generic[T]):
    """A request that was sent and not answered yet."""

    correlation_id: int
    flexible_response: bool
    waiting: T


class ClientConnection(FrameReader, Generic[T]):
    """The client's half of one connection; a T is what waits for a response.

    Args:
        max_response_bytes: a longer frame is refused.
        scratch: see `FrameReader`.
        client_id: what every request header says.
        spare_frames: how many large frames to keep, so that their memory is used again once nobody
            has a view of them any more.
    """

    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "_expected",
        "_next_correlation_id",
        "_spares",
    )

    def __init__(
        self,
        max_response_bytes: int,
        scratch: bytearray,
        client_id: str | None,
        *,
        spare_frames: int = 0,
    ) -> None:
        super().__init__(max_response_bytes, scratch, _MAX_EAGER_RESPONSE_BYTES)
        self._spares: deque[bytearray] = deque(maxlen=spare_frames)
        self._client_id = b"" if client_id is None else client_id.encode()
        self._client_id_bytes = -1 if client_id is None else len(self._client_id)
        self._next_correlation_id = 0
        self._expected: deque[_Expected[T]] = deque()

    def _new_frame(self, size_bytes: int, frame_bytes: int) -> bytearray:
        """Return an earlier frame of about this size that is out of use, or a new one.

        Fresh memory costs more than all that is done with the bytes of a Fetch response.
        """
        if not _LEAST_SPARE_BYTES <= size_bytes <= _MAX_SPARE_BYTES:
            return bytearray(size_bytes)
        for spare in self._spares:
            if size_bytes <= 2 * len(spare):
                try:
                    spare.pop()  # refused as long as there is a view
                except BufferError:
                    continue
                if size_bytes <= len(spare):
                    del spare[size_bytes:]
                else:
                    spare.extend(bytes(size_bytes - len(spare)))
                return spare
        frame = bytearray(size_bytes)
        self._spares.append(frame)
        return frame

    @property
    def requests_in_flight(self) -> int:
        """How many requests wait for their response."""
        return len(self._expected)

    def waiting(self) -> list[T]:
        """What waits for responses, in the order of the requests."""
        return [expected.waiting for expected in self._expected]

    def frame_request(
        self, api_key: int, api_version: int, body: list[Buffer], *, flexible: bool
    ) -> tuple[int, list[Buffer]]:
        """Put the length and the header before a request's body.

        Args:
            flexible: the request's header has tagged fields.

        Returns:
            its correlation id, and what to send.
        """
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _MAX_CORRELATION_ID
        size = 10 + len(self._client_id) + flexible + sum(map(len, body))
        head = _framed_request_start.pack(
            size, api_key, api_version, correlation_id, self._client_id_bytes
        )
        head += self._client_id
        if flexible:
            head += b"\0"  # no tagged fields in the header
        if len(body) == 1 and len(body[0]) < _FIRST_EAGER_BYTES:
            return correlation_id, [head + body[0]]
        return correlation_id, [head, *body]

    def expect_response(self, correlation_id: int, waiting: T, *, flexible: bool) -> None:
        """Note that a request will be answered, after all that were noted before.

        Args:
            flexible: the response's header has tagged fields.
        """
        self._expected.append(_Expected(correlation_id, flexible, waiting))

    def match_response(self, frame: memoryview) -> tuple[T, int]:
        """Say which request a frame answers; it is no longer expected then.

        Returns:
            what waited for it, and where the body begins in the frame.

        Raises:
            RemoteProtocolError: nothing or something else was asked, or the header is cut short.
        """
        if len(frame) < 4:
            raise RemoteProtocolError("the frame ends within the response header")
        (correlation_id,) = _length.unpack_from(frame)
        if not self._expected:
            raise RemoteProtocolError(f"a response {correlation_id} that nothing asked for")
        expected = self._expected[0]
        if expected.correlation_id != correlation_id:
            raise RemoteProtocolError(
                f"the response to {correlation_id} instead of {expected.correlation_id}"
            )
        position = 4
        if expected.flexible_response:
            try:
                position = _skip_tagged_fields(frame, position)
            except IndexError as error:
                raise RemoteProtocolError("the frame ends within the response header") from error
        self._expected.popleft()
        return expected.waiting, position
