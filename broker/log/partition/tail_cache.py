"""The newest batches of a log in memory, so that consumers at its end cost no file reads.

Rules:
1. It fills on demand: nothing is kept until a read reaches the end of the log, and all of it is
   dropped once more bytes than its limit were appended without a read that it served.
2. It holds the batches just before the log end without a gap; a truncation clears it, and so does
   the cleaner's swap of segments.
3. Batches are copied in: the buffer of a request is used again for the next one.
4. All logs share one `TailBudget`; when that is used up, the caches that have been filling longest
   are emptied.

`partition_log` owns one for each log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from kraftrio.wire.primitives import Buffer

DEFAULT_LOG_LIMIT_BYTES = 1 << 20
DEFAULT_TOTAL_LIMIT_BYTES = 32 << 20
_COMPACT_PIECES = 256


class TailBudget:
    """The memory that all tail caches of a process may use together."""

    def __init__(self, limit_bytes: int = DEFAULT_TOTAL_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.caches: dict[TailCache, None] = {}

    def shrink(self) -> None:
        """Empty the caches that have been in use longest until the limit is kept."""
        while self.used_bytes > self.limit_bytes and self.caches:
            next(iter(self.caches)).clear()


class TailCache:
    """Pieces (one per append) in offset order; all look-ups are bisections."""

    __slots__ = (
        "_budget",
        "_ends",
        "_first",
        "_last_offsets",
        "_limit_bytes",
        "_pieces",
        "_start_offset",
        "_unread_bytes",
        "size_bytes",
        "wanted",
    )

    def __init__(self, budget: TailBudget, limit_bytes: int = DEFAULT_LOG_LIMIT_BYTES) -> None:
        self._budget = budget
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._last_offsets: list[int] = []
        self._ends: list[int] = []  # bytes from some origin to the end of the piece
        self._first = 0  # index of the oldest piece that is kept
        self._start_offset = -1
        self._unread_bytes = 0
        self.size_bytes = 0
        self.wanted = False  # a reader reached the end of the log lately

    def append(self, data: Buffer, base_offset: int, last_offset: int) -> None:
        """Keep a copy of what was just appended to the log."""
        size = len(data)
        pieces = self._pieces
        if not pieces:
            self._start_offset = base_offset
            self._budget.caches[self] = None
        pieces.append(bytes(data))
        ends = self._ends
        ends.append((ends[-1] if ends else 0) + size)
        self._last_offsets.append(last_offset)
        self.size_bytes += size
        self._budget.used_bytes += size
        self._unread_bytes += size
        if self._unread_bytes > self._limit_bytes:
            self.clear()
            return
        if self.size_bytes > self._limit_bytes:
            self._drop_oldest()
        if self._budget.used_bytes > self._budget.limit_bytes:
            self._budget.shrink()

    def _drop_oldest(self) -> None:
        first, pieces, dropped = self._first, self._pieces, 0
        while self.size_bytes - dropped > self._limit_bytes:
            dropped += len(pieces[first])
            pieces[first] = b""
            first += 1
        self._start_offset = self._last_offsets[first - 1] + 1
        self.size_bytes -= dropped
        self._budget.used_bytes -= dropped
        if first > _COMPACT_PIECES:
            del pieces[:first], self._last_offsets[:first], self._ends[:first]
            first = 0
        self._first = first

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        max_offset: int,
        min_one_batch: bool,
        hold_bytes: int = DEFAULT_LOG_LIMIT_BYTES,
    ) -> tuple[bytes, int] | None:
        """Whole pieces from `start_offset` on and the next offset.

        None if they are not held here, or are more than `hold_bytes`.
        """
        pieces = self._pieces
        if not pieces or start_offset < self._start_offset:
            return None
        last_offsets = self._last_offsets
        start = bisect_left(last_offsets, start_offset, self._first)
        stop = bisect_left(last_offsets, max_offset, start)
        if start >= len(pieces):
            return None
        if start >= stop:
            self._unread_bytes = 0
            return b"", start_offset
        ends = self._ends
        begin = ends[start] - len(pieces[start])
        stop = min(stop, bisect_right(ends, begin + max_bytes, start))
        if ends[max(stop - 1, start)] - begin > hold_bytes:
            return None
        self._unread_bytes = 0
        if stop <= start:
            if not min_one_batch:
                return b"", start_offset
            stop = start + 1
        next_offset = last_offsets[stop - 1] + 1
        if stop == start + 1:
            return pieces[start], next_offset
        return b"".join(pieces[start:stop]), next_offset

    def clear(self) -> None:
        """Forget everything, and wait for the next reader at the end."""
        self.wanted = False
        if self._pieces:
            self._budget.used_bytes -= self.size_bytes
            self._budget.caches.pop(self, None)
            self._pieces.clear()
            self._last_offsets.clear()
            self._ends.clear()
            self.size_bytes = 0
            self._first = 0
        self._unread_bytes = 0
