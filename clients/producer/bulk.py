"""Many values at once: how many of them fit into an open batch, without Python code for each.

Owns `Values`, a list of values with the running total of their sizes in a batch. Records that have
nothing but a value, and share a timestamp, are put into a batch's columns by slices.

Sans-IO. Called by: `producer`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat

from kraftrio.clients.producer.batch import (
    LONG_BYTES,
    RECORD_OVERHEAD_BYTES,
    SHORT_BYTES,
    Batch,
)


class Values:
    """Values to be put into batches, in order.

    Args:
        values: at least one, all of them bytes.
        timestamp_ms: of all of them, in wall time.

    Attributes:
        next: the index of the first that is in no batch yet.
    """

    def __init__(self, values: Sequence[bytes], timestamp_ms: int) -> None:
        sizes = list(map(len, values))
        # An upper bound for all: each counts as much as the longest.
        self._overhead = RECORD_OVERHEAD_BYTES + (LONG_BYTES if max(sizes) > SHORT_BYTES else 0)
        self._ends = [*accumulate(sizes, initial=0)]  # where each would begin if they were joined
        self._values = values
        self.timestamp_ms = timestamp_ms
        self.next = 0

    @property
    def is_empty(self) -> bool:
        """Whether all are in batches."""
        return self.next == len(self._values)

    def take(self) -> bytes:
        """Take the next value off."""
        value = self._values[self.next]
        self.next += 1
        return value

    def fill(self, batch: Batch) -> int:
        """Put as many values as fit into an open batch; return how many."""
        start = self.next
        limit = self._size_before(start) + batch.limit_bytes - batch.size_bytes
        candidates = range(start, len(self._values) + 1)
        stop = start + bisect_right(candidates, limit, key=self._size_before) - 1
        count = stop - start
        if count <= 0:
            return 0
        batch.size_bytes += self._size_before(stop) - self._size_before(start)
        batch.values += self._values[start:stop]
        batch.keys += repeat(None, count)
        batch.timestamps += repeat(self.timestamp_ms, count)
        self.next = stop
        return count

    def _size_before(self, index: int) -> int:
        """Return how many bytes the values before an index take in batches."""
        return self._ends[index] + index * self._overhead
