"""Which records a member acquires of those that were read: `Acquisition`.

Behaviour (Apache Kafka 4.3's)
- What was released, or whose lock ran out, comes first, in the order of offsets; then what nobody
  had before.
- batch_optimized: new records are acquired up to the end of the batch that reaches the limit, so
  that a client need not take batches apart; cut into pieces of about `batch_size` records, where
  batches begin. What was released is taken as it lies there, though it be more than the limit.
- record_limit (KIP-1206): at most the limit. The rest of the last batch becomes available.
- No more than the group's limit is in flight, from the first record that is not done with to the
  last one that was acquired; but what is released within may always be acquired again.
- Records that failed often are isolated: from half of the delivery limit on, no others are given
  with them, and of their batch a half, a quarter and so on; the last time each comes alone.
- read_committed: the batches of aborted transactions are archived as they are met.

Pure but for the runs in flight that it changes; called by `SharePartition.acquire`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from kraftrio.broker.share.state.records import InFlight, RecordState, Run

_LEAST_THROTTLED_COUNT = 2
_MOST_RUNS = 500  # at once, so that none takes long


class FetchedBatches(Protocol):
    """The batches that were read, at least one, by their headers."""

    @property
    def first_offset(self) -> int:
        """The base offset of the first batch."""
        ...

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch."""
        ...

    def end_of_batch_at(self, offset: int) -> int:
        """The last offset of the batch that has an offset; where none has, the offset itself."""
        ...

    def base_offsets(self, last_offset: int) -> Iterator[int]:
        """The base offsets of the batches that begin at or before an offset."""
        ...

    def aborted(self, last_offset: int) -> Iterable[tuple[int, int]]:
        """First and last offsets of aborted batches that begin at or before an offset."""
        ...


class Demand(NamedTuple):
    """What a member asks for.

    Attributes:
        max_records: at most so many, as far as the mode keeps to it.
        batch_size: about so many in each piece.
        is_record_limit: KIP-1206's mode; else batch_optimized.
    """

    member_id: str
    max_records: int
    batch_size: int
    is_record_limit: bool = False


def throttled_count(delivery_count_limit: int) -> int:
    """From how many deliveries on records are isolated."""
    return max(_LEAST_THROTTLED_COUNT, (delivery_count_limit + 1) // 2)


class Acquisition:
    """One acquisition while it is worked on.

    Args:
        limit: at most so many records, as far as the mode keeps to it.
        delivery_count_limit: of the group.
        locked_until_ms: how long the member has what it acquires.
    """

    __slots__ = (
        "_batches",
        "_delivery_count_limit",
        "_demand",
        "_in_flight",
        "_limit",
        "_locked_until_ms",
        "count",
        "is_isolating",
        "taken",
    )

    def __init__(
        self,
        in_flight: InFlight,
        batches: FetchedBatches,
        demand: Demand,
        limit: int,
        delivery_count_limit: int,
        locked_until_ms: float,
    ) -> None:
        self._in_flight = in_flight
        self._batches = batches
        self._demand = demand
        self._limit = limit
        self._delivery_count_limit = delivery_count_limit
        self._locked_until_ms = locked_until_ms
        self.count = 0
        self.taken: list[Run] = []
        self.is_isolating = False  # nothing else may come with what was taken

    @property
    def is_full(self) -> bool:
        return self.is_isolating or self.count >= self._limit or len(self.taken) >= _MOST_RUNS

    def take_again(self, run: Run, first: int, last: int) -> None:
        """Acquire what is available of a run, between two offsets, as far as it may be."""
        if run.state is not RecordState.AVAILABLE:
            return
        first, last = max(first, run.first), min(last, run.last)
        failed = run.delivery_count - throttled_count(self._delivery_count_limit)
        if failed >= 0:
            self.is_isolating = True
            if self.count:
                return
            last = min(last, first + self._isolated_size(run, failed) - 1)
        if self._demand.is_record_limit:
            last = min(last, first + self._limit - self.count - 1)
        for part in self._in_flight.isolate(first, last):
            self._acquire(part)

    def _isolated_size(self, run: Run, failed: int) -> int:
        if run.delivery_count >= self._delivery_count_limit - 1:
            return 1
        first, last = run.batch
        return max(1, (last - first + 1) >> (failed + 1))

    def take_new(self, first: int, last: int, *, up_to_batch_end: bool) -> int:
        """Acquire records that were never acquired before; return the last one now in flight.

        Args:
            up_to_batch_end: may it go beyond `last`, to the end of a batch?
        """
        wanted = self._limit - self.count
        if wanted < last - first + 1:
            end = self._batches.end_of_batch_at(first + wanted - 1)
            last = end if up_to_batch_end else min(end, last)
        if self._demand.is_record_limit:
            taken_last = min(last, first + wanted - 1)
            self._add(first, taken_last, batch=(first, last))
            if taken_last < last:
                rest = Run(taken_last + 1, last, RecordState.AVAILABLE, 0, (first, last))
                self._in_flight.add(rest)
            return last
        start, size = first, max(self._demand.batch_size, (last - first + 1) // _MOST_RUNS)
        if last - first + 1 > size:
            for base_offset in self._batches.base_offsets(last):
                if base_offset - start >= size:
                    self._add(start, base_offset - 1, batch=(start, base_offset - 1))
                    start = base_offset
        self._add(start, last, batch=(start, last))
        return last

    def _add(self, first: int, last: int, *, batch: tuple[int, int]) -> None:
        run = Run(first, last, RecordState.AVAILABLE, 0, batch)
        self._in_flight.add(run)
        self._acquire(run)

    def _acquire(self, run: Run) -> None:
        run.state = RecordState.ACQUIRED
        run.delivery_count += 1
        run.member_id = self._demand.member_id
        run.locked_until_ms = self._locked_until_ms
        self.taken.append(run)
        self.count += len(run)

    def archive_aborted(self) -> list[Run]:
        """Give up what aborted transactions wrote; return the runs of it."""
        archived: list[Run] = []
        if not self.taken:
            return archived
        taken = [(run.first, run.last) for run in self.taken]
        for first, last in self._batches.aborted(taken[-1][1]):
            for run in self._in_flight.between(first, last):
                if run.state is RecordState.ACQUIRED and run.change is None:
                    archived += self._in_flight.isolate(max(first, run.first), min(last, run.last))
        if archived:
            for run in archived:
                run.settle(RecordState.ARCHIVED, run.delivery_count)
            self.taken = [
                run
                for first, last in taken
                for run in self._in_flight.between(first, last)
                if run.state is RecordState.ACQUIRED
            ]
            self.count = sum(map(len, self.taken))
        return archived
