"""A share partition over batches of a made-up log, with the words to speak of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kraftrio.broker.share.state.acknowledgement import AcknowledgedBatch
from kraftrio.broker.share.state.acquisition import Demand
from kraftrio.broker.share.state.share_partition import ShareLimits, SharePartition, StateWrite
from kraftrio.broker.share_state import ShareStateBatch

LOCK_MS = 1000
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Batches:
    """Batches by (first, last), some of them aborted."""

    def __init__(
        self, batches: Sequence[tuple[int, int]], aborted: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._batches = batches
        self._aborted = aborted

    @property
    def first_offset(self) -> int:
        return self._batches[0][0]

    @property
    def last_offset(self) -> int:
        return self._batches[-1][1]

    def end_of_batch_at(self, offset: int) -> int:
        return next((last for first, last in self._batches if first <= offset <= last), offset)

    def base_offsets(self, last_offset: int) -> Iterator[int]:
        return (first for first, _ in self._batches if first <= last_offset)

    def aborted(self, last_offset: int) -> Iterable[tuple[int, int]]:
        return [one for one in self._aborted if one[0] <= last_offset]


class ShareContext:
    """See the module; times are given, and stand still."""

    def __init__(
        self,
        log: Sequence[tuple[int, int]],
        *,
        delivery_count: int = 5,
        record_locks: int = 200,
        may_renew: bool = True,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.log = list(log)
        self.aborted = aborted
        self.limits = ShareLimits(delivery_count, record_locks, LOCK_MS, may_renew)
        self.now_ms = 0.0
        self.partition = SharePartition(lambda: self.limits)
        self.partition.load(0, [])

    def load(self, start_offset: int, *batches: tuple[int, int, int, int]) -> None:
        """What another leader kept: (first, last, state, delivery count)."""
        self.partition = SharePartition(lambda: self.limits)
        self.partition.load(start_offset, [ShareStateBatch(*batch) for batch in batches])

    def acquire(
        self,
        member_id: str = "m1",
        max_records: int = 500,
        *,
        batch_size: int = 500,
        record_limit: bool = False,
        batches: int = 100,
    ) -> list[tuple[int, int, int]]:
        """Read up to so many batches, and acquire what may be of them."""
        partition = self.partition
        if not partition.can_acquire():
            return []
        offset = partition.next_fetch_offset()
        read = [(first, last) for first, last in self.log if last >= offset][:batches]
        if not read:
            return []
        demand = Demand(member_id, max_records, batch_size, record_limit)
        found = partition.acquire(demand, offset, Batches(read, self.aborted), self.now_ms)
        return [(first, last, count) for first, last, count in found]

    def acknowledge(
        self, first: int, last: int, *types: int, member_id: str = "m1", written: bool | None = True
    ) -> bool:
        """Acknowledge some offsets; `written` None: leave the write to the test."""
        batch = AcknowledgedBatch(first, last, types or (ACCEPT,))
        changed = self.partition.acknowledge(member_id, [batch], self.now_ms)
        if written is not None:
            self.write(succeeded=written)
        return changed

    def write(self, *, succeeded: bool = True) -> StateWrite | None:
        """Write what there is to write."""
        write = self.partition.next_write()
        if write is not None:
            self.partition.on_written(write, self.now_ms, succeeded=succeeded)
        return write

    def time_out(self) -> None:
        """Let all locks end."""
        self.now_ms += LOCK_MS
        self.partition.end_locks(self.now_ms)

    @property
    def states(self) -> str:
        """The runs in flight: `0-4 ACQUIRED x1, ...`."""
        return ", ".join(str(run)[5:-1] for run in self.partition.in_flight)

    @property
    def span(self) -> tuple[int, int]:
        return self.partition.start_offset, self.partition.end_offset
