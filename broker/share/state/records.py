"""The records of a share partition that are in flight, as runs: `InFlight`.

A run is some offsets in a row that are in the same state: mostly a whole batch, and cut only where
something happens to a part of it. So what a member takes and accepts as it got it costs one run,
however many records that is.

Rules
1. Runs never overlap, and stand in the order of their offsets. What lies between two of them was
   never given to anybody (`share_partition` knows whether it may be).
2. A run that is cut keeps the batch that it was acquired in (`batch`): how much of a batch that
   fails again and again is given at once follows from that (`acquisition`).

Owned by a `SharePartition`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias


class RecordState(IntEnum):
    """The state of a record, by its number in Kafka's messages (`delivery_state`).

    AVAILABLE: may be acquired. Moves to ACQUIRED, or to ARCHIVED with the start of the log.
    ACQUIRED: a member has it, as long as its lock lasts. Moves to any other.
    ACKNOWLEDGED, ARCHIVED: done with, or given up. These are the ends.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        return self >= RecordState.ACKNOWLEDGED


Batch: TypeAlias = tuple[int, int]
"""The first and last offset of what was acquired at once."""


class StateChange(NamedTuple):
    """What an acquired run becomes once that is written."""

    state: RecordState
    delivery_count: int


class Run:
    """Some offsets in a row that are in the same state.

    Attributes:
        delivery_count: how often they were given to a member; that of an acquired run counts the
            present time.
        member_id: who has acquired them, else empty.
        locked_until_ms: when that ends.
        change: what they become once the write that says so has succeeded.
        is_unwritten: what is kept of them elsewhere is out of date.
        write_id: of the write under way that has their present state, else 0.
    """

    __slots__ = (
        "batch",
        "change",
        "delivery_count",
        "first",
        "is_unwritten",
        "last",
        "locked_until_ms",
        "member_id",
        "state",
        "write_id",
    )

    def __init__(
        self, first: int, last: int, state: RecordState, delivery_count: int, batch: Batch
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.batch = batch
        self.member_id = ""
        self.locked_until_ms = 0.0
        self.change: StateChange | None = None
        self.is_unwritten = False
        self.write_id = 0

    def __repr__(self) -> str:
        change = f"->{self.change.state.name}" if self.change else ""
        return f"<Run {self.first}-{self.last} {self.state.name}{change} x{self.delivery_count}>"

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_whole_batch(self) -> bool:
        return self.batch == (self.first, self.last)

    def settle(self, state: RecordState, delivery_count: int) -> None:
        """Let go of the records, in a state that lasts."""
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = ""
        self.change = None

    def cut(self, offset: int) -> Run:
        """Keep what lies before an offset; return the rest."""
        rest = Run(offset, self.last, self.state, self.delivery_count, self.batch)
        rest.member_id = self.member_id
        rest.locked_until_ms = self.locked_until_ms
        rest.change = self.change
        rest.is_unwritten = self.is_unwritten
        rest.write_id = self.write_id
        self.last = offset - 1
        return rest


class InFlight:
    """See the module."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def first(self) -> Run:
        return self._runs[0]

    @property
    def last(self) -> Run:
        return self._runs[-1]

    def add(self, run: Run) -> None:
        """Take a run in its place, which must be free."""
        at = bisect_left(self._firsts, run.first)
        assert at == 0 or self._runs[at - 1].last < run.first, run
        assert at == len(self._runs) or run.last < self._runs[at].first, run
        self._runs.insert(at, run)
        self._firsts.insert(at, run.first)

    def at_or_before(self, offset: int) -> Run | None:
        """The last run that begins at or before an offset."""
        at = bisect_right(self._firsts, offset)
        return self._runs[at - 1] if at else None

    def _slice(self, first: int, last: int) -> tuple[int, int]:
        start = bisect_right(self._firsts, first)
        if start and self._runs[start - 1].last >= first:
            start -= 1
        return start, bisect_right(self._firsts, last)

    def between(self, first: int, last: int) -> list[Run]:
        """The runs that have offsets from `first` to `last`; the outer ones may reach beyond."""
        start, stop = self._slice(first, last)
        return self._runs[start:stop]

    def exactly(self, first: int, last: int) -> Run | None:
        """The run with just these bounds, if there is one: the usual case, and quicker."""
        at = bisect_left(self._firsts, first)
        if at < len(self._runs):
            run = self._runs[at]
            if run.first == first and run.last == last:
                return run
        return None

    def isolate(self, first: int, last: int) -> list[Run]:
        """Cut runs so that none reaches over these bounds; return those within."""
        exact = self.exactly(first, last)
        if exact is not None:
            return [exact]
        start, stop = self._slice(first, last)
        if start >= stop:
            return []
        if self._runs[start].first < first:
            self._cut(start, first)
            start, stop = start + 1, stop + 1
        if self._runs[stop - 1].last > last:
            self._cut(stop - 1, last + 1)
        return self._runs[start:stop]

    def _cut(self, at: int, offset: int) -> None:
        self._runs.insert(at + 1, self._runs[at].cut(offset))
        self._firsts.insert(at + 1, offset)

    def drop_before(self, offset: int) -> None:
        """Forget what lies before an offset."""
        stop = bisect_left(self._firsts, offset)
        if stop and self._runs[stop - 1].last >= offset:
            self._cut(stop - 1, offset)
        del self._runs[:stop], self._firsts[:stop]
