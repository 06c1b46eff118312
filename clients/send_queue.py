"""What waits to go out through one socket, sent with as few calls and copies as it takes.

Owns: the bytes that were queued and not taken by the socket yet, in order.

Called by: connections to nodes, and the broker's own connections to its clients.
"""

from __future__ import annotations

from collections import deque

from kraftrio.clients.transport import Socket
from kraftrio.wire.primitives import Buffer

_JOIN_BELOW_BYTES = 64 * 1024  # below this, one joined buffer is cheaper than a vectored send
_MAX_SEND_PARTS = 512  # well under IOV_MAX


class SendQueue:
    """Unsent bytes of one socket."""

    __slots__ = ("_parts", "_sock", "size_bytes")

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._parts: deque[Buffer] = deque()
        self.size_bytes = 0

    def append(self, parts: list[Buffer]) -> None:
        """Queue what shall be sent, in order; it must not change before it is."""
        for part in parts:
            self._parts.append(part)
            self.size_bytes += len(part)

    def push(self) -> bool:
        """Send as much as the socket takes now; True when nothing is left.

        Raises:
            OSError: the connection is gone.
        """
        parts = self._parts
        while parts:
            try:
                if len(parts) == 1:
                    sent = self._sock.send(parts[0])
                elif self.size_bytes <= _JOIN_BELOW_BYTES:
                    joined = b"".join(parts)
                    parts.clear()
                    parts.append(joined)
                    sent = self._sock.send(joined)
                else:
                    sent = self._sock.sendmsg(
                        [parts[i] for i in range(min(len(parts), _MAX_SEND_PARTS))]
                    )
            except BlockingIOError:
                return False
            self.size_bytes -= sent
            self._drop(sent)
        return True

    def _drop(self, sent: int) -> None:
        parts = self._parts
        while sent:
            first = parts[0]
            if sent < len(first):
                parts[0] = memoryview(first)[sent:]
                return
            sent -= len(first)
            parts.popleft()

    def clear(self) -> None:
        """Forget what was not sent."""
        self._parts.clear()
        self.size_bytes = 0
