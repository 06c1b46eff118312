"""A partition as a share group sees it: which records may be given to its members, who has which,
and what is to be kept of that (KIP-932): `SharePartition`.

Rules
1. Records before `start_offset` are done with. Those from there to `end_offset` are in flight, each
   in one of the states of `records`; those after it were never given to anybody.
2. What a member acknowledges or gives back changes once a write has said so: until then the
   records stay acquired, and nobody else may touch them. If the write fails, they are as if nothing
   had been asked; the member may ask again while its lock lasts.
3. A lock that runs out needs no write: the records are available at once (or archived, when they
   were delivered as often as the limit allows). That is written as soon as may be, and again with
   the next write if it fails.
4. One write is under way at a time (`next_write`, `on_written`); it has the state that everything
   changed since the last one is in then.
5. A record is delivered at most as often as the group's limit, as far as its deliveries were kept:
   those that no write was made for are forgotten with the leader.
6. Offsets between two runs were never given to a member. After a load (`load`) they may be, up to
   the end of what was loaded (`gap_start_offset`); later such gaps have no records.

Sans-IO: times come in. Owned by `LedSharePartition`. The states are Kafka's, but that a failed
release has not changed the state meanwhile, and that all that a member has is given back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kraftrio.broker.share.state.acknowledgement import (
    STATE_BY_TYPE,
    AcknowledgeCode,
    AcknowledgedBatch,
    check_acknowledgement,
)
from kraftrio.broker.share.state.acquisition import Acquisition, Demand, FetchedBatches
from kraftrio.broker.share.state.records import InFlight, RecordState, Run, StateChange
from kraftrio.broker.share_state import ShareStateBatch

_NOWHERE: Final = 2**63
_SPARE_LOCKS: Final = 64


class ShareLimits(NamedTuple):
    """The settings of a group that share partitions go by."""

    delivery_count: int
    record_locks: int
    lock_duration_ms: int
    may_renew: bool = True


class AcquiredRange(NamedTuple):
    """Records that a member has got."""

    first_offset: int
    last_offset: int
    delivery_count: int


class StateWrite(NamedTuple):
    """What is to be kept; `on_written` finds by `write_id` and the offsets what it was about."""

    write_id: int
    first_offset: int
    last_offset: int
    start_offset: int
    delivery_complete_count: int
    batches: list[ShareStateBatch]


class SharePartition:
    """See the module.

    Args:
        limits: the group's settings, as they are now.

    Attributes:
        start_offset: the first record that is not done with.
        end_offset: the last record in flight; without any, the next one to fetch.
        gap_start_offset: from where on gaps may have records (rule 6); None: there are none.
    """

    __slots__ = (
        "_available_from",
        "_is_writing",
        "_limits",
        "_locks",
        "_unwritten",
        "_write_ids",
        "end_offset",
        "gap_start_offset",
        "in_flight",
        "start_offset",
    )

    def __init__(self, limits: Callable[[], ShareLimits]) -> None:
        self._limits = limits
        self.in_flight = InFlight()
        self.start_offset = 0
        self.end_offset = 0
        self.gap_start_offset: int | None = None
        self._available_from = _NOWHERE  # nothing before it is available
        self._locks: list[tuple[float, int, int]] = []  # heap of (until, first, last)
        self._unwritten = (_NOWHERE, -1)  # offsets between which something is to be written
        self._write_ids = 0
        self._is_writing = False

    # -- what is kept -----------------------------------------------------------------------------

    def load(self, start_offset: int, batches: Sequence[ShareStateBatch]) -> None:
        """Take what was kept of it.

        Raises:
            ValueError: that cannot be.
        """
        self.start_offset = self.end_offset = start_offset
        expected = start_offset
        for first, last, state, delivery_count in batches:
            if not expected <= first <= last:
                raise ValueError(f"a state batch {first}-{last} where {expected} was expected")
            if first > expected and self.gap_start_offset is None:
                self.gap_start_offset = expected
            self.in_flight.add(Run(first, last, RecordState(state), delivery_count, (first, last)))
            self.end_offset = last
            expected = last + 1
        self._available_from = start_offset
        self._advance_start()

    def next_write(self) -> StateWrite | None:
        """What is to be written now; None: nothing, or a write is under way."""
        first, last = self._unwritten
        if self._is_writing or first > last:
            return None
        self._unwritten = (_NOWHERE, -1)
        self._is_writing = True
        self._write_ids += 1
        batches: list[ShareStateBatch] = []
        for run in self.in_flight.between(first, last):
            if not run.is_unwritten:
                continue
            run.is_unwritten = False
            run.write_id = self._write_ids
            state, delivery_count = run.change or (run.state, run.delivery_count)
            if state is RecordState.ACQUIRED:  # it was available before, and will be if we fail
                state, delivery_count = RecordState.AVAILABLE, delivery_count - 1
            before = batches[-1] if batches else None
            if before is not None and before[1:] == (run.first - 1, state, delivery_count):
                batches[-1] = before._replace(last_offset=run.last)
            else:
                batches.append(ShareStateBatch(run.first, run.last, int(state), delivery_count))
        return StateWrite(
            self._write_ids,
            first,
            last,
            self.start_offset,
            self._delivery_complete_count(),
            batches,
        )

    def on_written(self, write: StateWrite, now_ms: float, *, succeeded: bool) -> None:
        """A write has ended."""
        self._is_writing = False
        for run in self.in_flight.between(write.first_offset, write.last_offset):
            if run.write_id != write.write_id:
                continue
            run.write_id = 0
            change = run.change
            if change is not None and succeeded:
                run.settle(*change)
                self._note_available(run)
            elif change is not None:
                run.change = None
                if run.locked_until_ms <= now_ms:
                    self._unlock(run)
            elif not succeeded:
                self._mark_unwritten(run)
        self._advance_start()

    def _delivery_complete_count(self) -> int:
        return sum(
            len(run)
            for run in self.in_flight
            if (run.state if run.change is None else run.change.state).is_terminal
        )

    def _mark_unwritten(self, run: Run) -> None:
        run.is_unwritten, run.write_id = True, 0
        first, last = self._unwritten
        self._unwritten = (min(first, run.first), max(last, run.last))

    # -- what may be acquired ---------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """The offsets from the start to the end, as the limit counts them."""
        return self.end_offset - self.start_offset + 1 if len(self.in_flight) else 0

    @property
    def is_at_rest(self) -> bool:
        """Whether no record is acquired, and all is written."""
        is_written = self._unwritten[1] < 0 and not self._is_writing
        return is_written and not any(run.state is RecordState.ACQUIRED for run in self.in_flight)

    def next_fetch_offset(self) -> int:
        """From where on to read what may be acquired."""
        if not len(self.in_flight):
            return self.end_offset
        gap = self.gap_start_offset
        first = self._available_from if gap is None else min(gap, self._available_from)
        for run in self.in_flight.between(first, self.end_offset):
            if gap is not None:
                if run.first > gap:
                    return gap
                gap = max(gap, run.last + 1)
            if run.state is RecordState.AVAILABLE:
                self._available_from = run.first
                return run.first
        self._available_from = _NOWHERE
        return self.end_offset + 1

    def can_acquire(self) -> bool:
        """May anything be acquired, if there is a record at `next_fetch_offset`?"""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.in_flight_count < self._limits().record_locks

    def acquire(
        self, demand: Demand, fetch_offset: int, batches: FetchedBatches, now_ms: float
    ) -> list[AcquiredRange]:
        """Give a member what it may have of the batches that were read from `fetch_offset` on."""
        limits = self._limits()
        last = batches.last_offset
        limit = min(demand.max_records, limits.record_locks - self.in_flight_count)
        if demand.max_records > 0 >= limit and fetch_offset <= self.end_offset:
            # No more may be in flight, but what was given back within may be acquired again.
            limit = min(demand.max_records, self.end_offset - fetch_offset + 1)
            last = min(last, self.end_offset)
        if limit <= 0:
            return []
        self._archive_compacted(fetch_offset, batches.first_offset - 1)
        first = max(batches.first_offset, self.start_offset)
        until_ms = now_ms + limits.lock_duration_ms
        acquisition = Acquisition(
            self.in_flight, batches, demand, limit, limits.delivery_count, until_ms
        )
        if first <= last:
            self._take(acquisition, first, last)
            self._look_at_gaps(acquisition.taken[-1].last if acquisition.is_full else last)
        for run in acquisition.archive_aborted():
            self._mark_unwritten(run)
        taken = acquisition.taken
        if taken:
            self._lock(until_ms, taken[0].first, taken[-1].last)
        self._advance_start()
        return _ranges(taken)

    def _take(self, acquisition: Acquisition, first: int, last: int) -> None:
        """Take what is available between two offsets, in their order."""
        known = self.in_flight.between(first, last)
        known_last = known[-1].last if known else first - 1
        gap = self.gap_start_offset
        for run in known:
            if gap is not None:
                gap = max(gap, first)
                if gap < run.first:
                    self._take_new(acquisition, gap, run.first - 1)
                gap = max(gap, run.last + 1)
            if acquisition.is_full:
                return
            acquisition.take_again(run, first, last)
        if acquisition.is_full:
            return
        if gap is not None:
            beyond = max(gap, first, known_last + 1)
        elif len(self.in_flight):
            beyond = max(first, self.end_offset + 1)
        else:
            beyond = first
        if beyond <= last:
            self._take_new(acquisition, beyond, last)

    def _take_new(self, acquisition: Acquisition, first: int, last: int) -> None:
        if acquisition.is_full:
            return
        end = acquisition.take_new(first, last, up_to_batch_end=self.gap_start_offset is None)
        if self.in_flight.first.first == first:
            self.start_offset = first  # there is nothing before
        self.end_offset = max(self.end_offset, end)
        self._available_from = min(self._available_from, first)

    def _look_at_gaps(self, last: int) -> None:
        """Whatever there was up to an offset has been taken."""
        if self.gap_start_offset is None:
            return
        gap = max(self.gap_start_offset, last + 1)
        for run in self.in_flight.between(gap, self.end_offset):
            if run.first > gap:
                break
            gap = run.last + 1
        self.gap_start_offset = gap if gap <= self.end_offset else None

    def _archive_compacted(self, first: int, last: int) -> None:
        """Give up what is available, but not in the log any more."""
        for run in self.in_flight.between(first, last):
            if run.state is RecordState.AVAILABLE:
                for part in self.in_flight.isolate(max(first, run.first), min(last, run.last)):
                    part.settle(RecordState.ARCHIVED, part.delivery_count)
                    self._mark_unwritten(part)

    # -- what members do with it ------------------------------------------------------------------

    def check(
        self, member_id: str, batches: Sequence[AcknowledgedBatch]
    ) -> list[tuple[int, int, AcknowledgeCode]]:
        """What an acknowledgement would mean, in the order of offsets (raises the same)."""
        return check_acknowledgement(
            self.in_flight,
            self.start_offset,
            member_id,
            batches,
            may_renew=self._limits().may_renew,
        )

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgedBatch], now_ms: float
    ) -> bool:
        """Take what a member says of records that it has; return whether a write has to say so.

        Raises:
            KafkaError: INVALID_RECORD_STATE or INVALID_REQUEST; nothing has changed.
        """
        limits = self._limits()
        segments = self.check(member_id, batches)
        is_changed = False
        for first, last, kind in segments:
            runs = self.in_flight.isolate(first, last)
            if kind is AcknowledgeCode.RENEW:
                until_ms = now_ms + limits.lock_duration_ms
                for run in runs:
                    run.locked_until_ms = until_ms
                self._lock(until_ms, first, last)
                continue
            for run in runs:
                self._change(run, STATE_BY_TYPE[kind], run.delivery_count, limits)
                is_changed = True
        return is_changed

    def release(self, member_id: str) -> bool:
        """Take back all that a member has; its deliveries still count. Is there something?"""
        limits = self._limits()
        is_changed = False
        for run in self.in_flight:
            if (
                run.state is RecordState.ACQUIRED
                and run.change is None
                and run.member_id == member_id
            ):
                self._change(run, RecordState.AVAILABLE, run.delivery_count, limits)
                is_changed = True
        return is_changed

    def _change(
        self, run: Run, state: RecordState, delivery_count: int, limits: ShareLimits
    ) -> None:
        """Let a run change with the next write."""
        if state is RecordState.AVAILABLE and delivery_count >= limits.delivery_count:
            state = RecordState.ARCHIVED
        run.change = StateChange(state, delivery_count)
        self._mark_unwritten(run)

    # -- locks ------------------------------------------------------------------------------------

    def next_lock_end_ms(self) -> float | None:
        """When to call `end_locks`; None: no record is acquired."""
        return self._locks[0][0] if self._locks else None

    def end_locks(self, now_ms: float) -> bool:
        """Take back what members had for too long; return whether there was something."""
        found = False
        while self._locks and self._locks[0][0] <= now_ms:
            _, first, last = heapq.heappop(self._locks)
            for run in self.in_flight.between(first, last):
                if (
                    run.state is RecordState.ACQUIRED
                    and run.change is None
                    and run.locked_until_ms <= now_ms
                ):
                    self._unlock(run)
                    found = True
        if found:
            self._advance_start()
        return found

    def _lock(self, until_ms: float, first: int, last: int) -> None:
        locks = self._locks
        heapq.heappush(locks, (until_ms, first, last))
        if len(locks) > _SPARE_LOCKS + 2 * len(self.in_flight):  # most have ended early
            locks[:] = [
                (run.locked_until_ms, run.first, run.last)
                for run in self.in_flight
                if run.state is RecordState.ACQUIRED
            ]
            heapq.heapify(locks)

    def _unlock(self, run: Run) -> None:
        is_last = run.delivery_count >= self._limits().delivery_count
        state = RecordState.ARCHIVED if is_last else RecordState.AVAILABLE
        run.settle(state, run.delivery_count)
        self._note_available(run)
        self._mark_unwritten(run)

    # -- the start --------------------------------------------------------------------------------

    def on_log_start(self, log_start_offset: int) -> None:
        """What lies before the start of the log is gone, whoever has it."""
        if log_start_offset <= self.start_offset:
            return
        self.in_flight.drop_before(log_start_offset)
        self.start_offset = log_start_offset
        if not len(self.in_flight):
            self.end_offset = log_start_offset
            self.gap_start_offset = None
        self._look_at_gaps(log_start_offset - 1)
        self._advance_start()

    def _note_available(self, run: Run) -> None:
        if run.state is RecordState.AVAILABLE:
            self._available_from = min(self._available_from, run.first)

    def _advance_start(self) -> None:
        """Move the start over what is done with."""
        gap, last = self.gap_start_offset, None
        after = None
        for run in self.in_flight:
            if not run.state.is_terminal or (gap is not None and run.last >= gap):
                after = run.first
                break
            last = run.last
        if last is None:
            return
        if after is None:
            self.start_offset = self.end_offset = last + 1
        else:
            self.start_offset = after if gap is None else min(after, gap)
        self.in_flight.drop_before(self.start_offset)


def _ranges(runs: Sequence[Run]) -> list[AcquiredRange]:
    """Name what was acquired; parts of a batch that lie side by side are one."""
    ranges: list[AcquiredRange] = []
    batch = None
    for run in runs:
        before = ranges[-1] if ranges else None
        if (
            before is not None
            and batch == run.batch
            and before[1:]
            == (
                run.first - 1,
                run.delivery_count,
            )
        ):
            ranges[-1] = before._replace(last_offset=run.last)
        else:
            ranges.append(AcquiredRange(run.first, run.last, run.delivery_count))
        batch = run.batch
    return ranges
