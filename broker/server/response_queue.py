"""The responses of one connection, from the slots that keep their order to its socket.

Owns: `ResponseQueue`. Rules
1. Responses leave in the order of their requests. One that is complete before its turn is encoded
   and waits in its slot.
2. Ready responses leave their slots only as far as the socket is about to take them.
3. What is encoded and held in memory counts in the memory that all connections share, until the
   socket has taken it.
4. A request is counted (`request_figures`) once the socket has taken all of its response.

Waits for nothing: `push` says why it ended. Called by: `client_connection`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.dispatch import Encoder
from kraftrio.broker.server.memory_budget import MemoryShare
from kraftrio.broker.server.resources import ServerResources
from kraftrio.broker.server.usage.request_figures import RequestTimes
from kraftrio.net.send_queue import Push, SendQueue
from kraftrio.wire.protocol.framing import RequestStart, ResponseSlot, ServerConnection
from kraftrio.wire.stored_bytes import Piece, StoredBytes

AHEAD_BYTES: Final = 256 * 1024
"""So much is encoded for the socket to take."""

_PUSH_BYTES = 1024 * 1024  # what one push sends at most


class ResponseQueue:
    """See the module.

    Attributes:
        unsent: what waits for the socket alone.
        encoded_bytes: of responses that are encoded and wait for their turn.
        encoded_held_bytes: of these, what is held in memory.
        current: the request whose response is being encoded; names a failure.
    """

    __slots__ = (
        "_filled",
        "_memory",
        "_protocol",
        "_resources",
        "_times",
        "current",
        "encoded_bytes",
        "encoded_held_bytes",
        "unsent",
    )

    def __init__(
        self,
        protocol: ServerConnection,
        unsent: SendQueue,
        memory: MemoryShare,
        resources: ServerResources,
    ) -> None:
        self._protocol = protocol
        self._memory = memory
        self._resources = resources
        self._filled: list[ResponseSlot] = []  # complete, and not encoded yet
        self._times: deque[RequestTimes] = deque()  # of the responses that are being sent
        self.unsent = unsent
        self.encoded_bytes = 0
        self.encoded_held_bytes = 0
        self.current: RequestStart | None = None

    def put_next(self, encoder: Encoder, times: RequestTimes) -> None:
        """Encode a response whose turn it is."""
        self.unsent.append(encoder())
        self._note_end(times)

    def _note_end(self, times: RequestTimes) -> None:
        times.end_position = self._memory.moved_bytes + self.unsent.size_bytes
        self._times.append(times)

    def put(self, slot: ResponseSlot, encoder: Encoder) -> None:
        """Encode a response at once, to wait in its slot."""
        slot.encode = encoder
        self._encode(slot)

    def put_later(self, slot: ResponseSlot, encoder: Deferred[Encoder]) -> None:
        """Note a response that is complete; an error in it is raised by the next push."""
        slot.encode = lambda: encoder.value()
        self._filled.append(slot)

    def _encode(self, slot: ResponseSlot) -> None:
        assert slot.encode is not None
        self.current = slot.request
        slot.pieces = slot.encode()
        self._count_encoded(slot.pieces, 1)

    def _count_encoded(self, pieces: list[Piece], sign: int) -> None:
        for piece in pieces:
            size_bytes = sign * len(piece)
            self.encoded_bytes += size_bytes
            if not isinstance(piece, StoredBytes):
                self.encoded_held_bytes += size_bytes

    def push(self) -> Push:
        """Push ready responses into the socket; say why that has ended.

        Raises:
            OSError: the socket failed.
        """
        unsent, left = self.unsent, _PUSH_BYTES
        try:
            while True:
                if self._filled or self._protocol.slots:
                    self._take_ready()
                size_bytes = unsent.size_bytes
                if not size_bytes:
                    return Push.DONE
                end = unsent.push(left)
                sent_bytes = size_bytes - unsent.size_bytes
                self._memory.moved_bytes += sent_bytes
                left -= sent_bytes
                if end is not Push.DONE:
                    return end
        finally:
            self._count_held()
            if self._times:
                self._count_sent()

    def _count_sent(self) -> None:
        """Count the requests whose responses the socket has taken."""
        resources, waiting = self._resources, self._times
        sent_bytes, now = self._memory.moved_bytes, resources.ticks_ns()
        slow = resources.slow_requests
        while waiting and waiting[0].end_position <= sent_bytes:
            times = waiting.popleft()
            if resources.requests.note(times, now) >= slow.nanoseconds:
                slow.report(times, now)

    def _take_ready(self) -> None:
        """Take what is next to be sent out of its slots, not much more than the socket takes."""
        protocol, unsent = self._protocol, self.unsent
        for slot in self._filled:
            self._encode(slot)
        self._filled.clear()
        while unsent.size_bytes < AHEAD_BYTES:
            slot_or_none = protocol.take_ready()
            if slot_or_none is None:
                return
            pieces = slot_or_none.pieces
            assert pieces is not None
            self._count_encoded(pieces, -1)
            unsent.append(pieces)
            if slot_or_none.times is not None:
                slot_or_none.times.turn = self._resources.ticks_ns()
                self._note_end(slot_or_none.times)

    def _count_held(self) -> None:
        held_bytes = self.encoded_held_bytes + self.unsent.held_bytes
        if held_bytes != self._memory.held_bytes:
            self._memory.hold(held_bytes)

    def clear(self) -> None:
        """Forget what was not sent: the connection has ended."""
        self.unsent.clear()
        self._times.clear()
