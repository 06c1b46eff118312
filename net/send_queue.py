"""What waits to go out through one socket, sent with as few calls and copies as it takes.

Owns: the pieces that were queued and not taken by the socket yet, in order. A piece is bytes, or
`StoredBytes`: those are read when the socket takes them, in bounded portions that nobody keeps, or
go from their file to the socket without being read at all, where the network can do that.

Called by: connections to nodes, and the broker's own connections to its clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial

from kraftrio.net.transport import FileSender, Socket
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.stored_bytes import Piece, StoredBytes

_JOIN_BELOW_BYTES = 64 * 1024  # below this, one joined buffer is cheaper than a vectored send
_MAX_SEND_PARTS = 512  # well under IOV_MAX

# How much of stored bytes one call sends; that much has to be at hand. What is read for it is read
# again if the socket does not take it.
_PORTION_BYTES = 1 << 20
_READ_BYTES = 128 * 1024
# How much is brought into memory at a time for the next push.
_LOAD_BYTES = 1 << 20


class Push(Enum):
    """Why pushing has ended."""

    DONE = auto()  # nothing is left
    BLOCKED = auto()  # the socket is full
    COLD = auto()  # the next bytes must be loaded first (`SendQueue.loading`)
    PAUSED = auto()  # the limit of this push is reached


class SendQueue:
    """Unsent pieces of one socket.

    Attributes:
        size_bytes: of all that waits.
        held_bytes: of what waits in memory.
    """

    __slots__ = (
        "_ahead",
        "_file_sender",
        "_loaded_to",
        "_parts",
        "_sock",
        "_start",
        "held_bytes",
        "size_bytes",
    )

    def __init__(self, sock: Socket, file_sender: FileSender | None = None) -> None:
        """Send through `sock`; `file_sender` is of the same socket."""
        self._sock = sock
        self._file_sender = file_sender
        self._parts: deque[Piece] = deque()
        self._start = 0  # how much of a stored first piece is sent
        self._loaded_to = 0  # as far it was loaded: it is not asked again whether that was of use
        self._ahead: Callable[[], None] | None = None
        self.size_bytes = 0
        self.held_bytes = 0

    def append(self, parts: Iterable[Piece]) -> None:
        """Queue what is to be sent, in order; it must not change before it is."""
        for part in parts:
            self._parts.append(part)
            size = len(part)
            self.size_bytes += size
            if not isinstance(part, StoredBytes):
                self.held_bytes += size

    def push(self, limit_bytes: int = 1 << 62) -> Push:
        """Send as much as the socket takes now, and about `limit_bytes` at most.

        Raises:
            OSError: the connection is gone.
            StoredBytesGone: the rest of an announced answer cannot be sent.
        """
        parts = self._parts
        try:
            while parts:
                if limit_bytes <= 0:
                    return Push.PAUSED
                first = parts[0]
                if not isinstance(first, StoredBytes):
                    sent = self._send_held()
                else:
                    if self._ahead is None:
                        self._ahead = first.loading_ahead(self._start)
                    if not self._is_at_hand(first):
                        return Push.COLD
                    sent = self._send_stored(first)
                limit_bytes -= sent
        except BlockingIOError:
            return Push.BLOCKED
        return Push.DONE

    def _send_held(self) -> int:
        """Send from the pieces in memory that come first."""
        parts = self._parts
        if len(parts) == 1:
            sent = self._sock.send(parts[0])  # type: ignore[arg-type]  # it is not a stored piece
            self._drop_held(sent)
            return sent
        held = self._first_held()
        if len(held) > 1:
            if sum(map(len, held)) > _JOIN_BELOW_BYTES:
                sent = self._sock.sendmsg(held)
                self._drop_held(sent)
                return sent
            for _ in held:
                parts.popleft()
            held = [b"".join(held)]
            parts.appendleft(held[0])
        if len(parts) > 1 and self._file_sender is not None:
            sent = self._file_sender.send_before_file(held[0])
        else:
            sent = self._sock.send(held[0])
        self._drop_held(sent)
        return sent

    def _first_held(self) -> list[Buffer]:
        """The pieces in memory that come before the first stored one; not too many for a send."""
        held: list[Buffer] = []
        for part in self._parts:
            if isinstance(part, StoredBytes) or len(held) == _MAX_SEND_PARTS:
                break
            held.append(part)
        return held

    def _drop_held(self, sent: int) -> None:
        self.size_bytes -= sent
        self.held_bytes -= sent
        parts = self._parts
        while sent:
            first = parts[0]
            assert not isinstance(first, StoredBytes)
            if sent < len(first):
                parts[0] = memoryview(first)[sent:]
                return
            sent -= len(first)
            parts.popleft()

    # -- stored pieces --------------------------------------------------------------------------

    def _is_at_hand(self, piece: StoredBytes) -> bool:
        start, loaded_to = self._start, self._loaded_to
        return start < loaded_to or piece.is_at_hand(start, min(len(piece) - start, _PORTION_BYTES))

    def _send_stored(self, piece: StoredBytes) -> int:
        start = self._start
        end = self._loaded_to if start < self._loaded_to else len(piece)
        portion = min(end - start, _PORTION_BYTES)
        place = None if self._file_sender is None else piece.file_range(start)
        if place is None:
            sent = self._sock.send(piece.read(start, min(portion, _READ_BYTES)))
        else:
            assert self._file_sender is not None
            sent = self._file_sender.send_file(*place, portion)
        self._start = start + sent
        self.size_bytes -= sent
        if self._start == len(piece):
            self._parts.popleft()
            self._start = self._loaded_to = 0
        return sent

    def loading(self) -> Callable[[], None]:
        """What brings the next bytes into memory, after `Push.COLD`; for a worker thread."""
        piece, start = self._parts[0], self._start
        assert isinstance(piece, StoredBytes)
        size_bytes = min(len(piece) - start, _LOAD_BYTES)
        self._loaded_to = start + size_bytes
        return partial(piece.load, start, size_bytes)

    def take_loading_ahead(self) -> Callable[[], None] | None:
        """What should bring into memory what is sent later, in a worker thread, while more is sent.

        None: nothing should. Who does not take it is asked to load what is sent next all the same.
        """
        ahead, self._ahead = self._ahead, None
        return ahead

    def clear(self) -> None:
        """Forget what was not sent."""
        self._parts.clear()
        self._start = self._loaded_to = self.size_bytes = self.held_bytes = 0
