"""The producer's batches that have no result yet, by age.

Sans-IO. Called by: `accumulator`; `producer` waits for all of them when it flushes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from kraftrio.clients.producer.batch import Batch


class IncompleteBatches:
    """From the first record of a batch until it was delivered or given up."""

    def __init__(self) -> None:
        self._batches: dict[Batch, None] = {}  # by age, but for parts
        self._parts: dict[Batch, None] = {}  # of split batches: as old as the whole

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Batch) -> None:
        """Add a batch, the newest one."""
        self._batches[batch] = None

    def remove(self, batch: Batch) -> None:
        """Remove a batch that has ended."""
        del self._batches[batch]
        self._parts.pop(batch, None)

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """Replace a batch by the parts that it was split into."""
        self.remove(batch)
        for part in parts:
            self._batches[part] = None
            self._parts[part] = None

    def older_than(self, limit_ms: float) -> list[Batch]:
        """Return the batches that began at that time or before."""
        old = [part for part in self._parts if part.created_ms <= limit_ms]
        for batch in self._batches:
            if batch.created_ms > limit_ms:
                break
            if batch not in self._parts:
                old.append(batch)
        return old

    @property
    def oldest_ms(self) -> float:
        """When the oldest batch began; infinite if there is none."""
        first_ms = next((batch.created_ms for batch in self._batches), inf)
        return min([first_ms, *(part.created_ms for part in self._parts)])
