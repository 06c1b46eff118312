"""Many values at once: how many of them an open batch takes, without running Python code for each.

Owns `Values`, a list of values with what they take in a batch, summed up from the first on. Records
that are nothing but a value and share a time become columns by slices.

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
        timestamp_ms: of all of them.

    Attributes:
        next: the first that is in no batch yet.
    """

    def __init__(self, values: Sequence[bytes], timestamp_ms: int) -> None:
        sizes = list(map(len, values))
        # Every one may count as the longest do.
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
        """Put into an open batch what it takes; return how many values that is."""
        start = self.next
        most = self._taken_before(start) + batch.limit_bytes - batch.size_bytes
        candidates = range(start, len(self._values) + 1)
        stop = start + bisect_right(candidates, most, key=self._taken_before) - 1
        count = stop - start
        if count <= 0:
            return 0
        batch.size_bytes += self._taken_before(stop) - self._taken_before(start)
        batch.values += self._values[start:stop]
        batch.keys += repeat(None, count)
        batch.timestamps += repeat(self.timestamp_ms, count)
        self.next = stop
        return count

    def _taken_before(self, index: int) -> int:
        """Return what the values before an index take in a batch."""
        return self._ends[index] + index * self._overhead
