"""Random histories of a share partition against a model that knows each record by itself.

The model shares no code with what it checks: a dictionary of records, and what was kept of them.
Checked at every step: states are legal and equal to the model's; nobody gets what another has, what
is done with, or more often than the limit; what was written survives a load, and only that. In the
end, when nothing fails any more, every record is done with, and each was accepted, refused by
a member, or delivered as often as the limit allows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from kraftrio.broker.share.state.acknowledgement import AcknowledgedBatch
from kraftrio.broker.share.state.acquisition import Demand
from kraftrio.broker.share.state.share_partition import ShareLimits, SharePartition, StateWrite
from kraftrio.broker.share_state import ShareStateBatch
from kraftrio.wire.errors import KafkaError
from tests.unit.broker.share.state.share_context import Batches

AVAILABLE, ACQUIRED, ACKED, ARCHIVED = 0, 1, 2, 4
AFTER = {0: ARCHIVED, 1: ACKED, 2: AVAILABLE, 3: ARCHIVED}
MEMBERS = ("a", "b", "c")
LOCK_MS = 100


@dataclass
class Record:
    """One record as the model knows it; `change`: what it becomes when that is written."""

    state: int = AVAILABLE
    count: int = 0
    member: str = ""
    until_ms: float = 0.0
    change: tuple[int, int] | None = None


def is_within(offset: int, batches: Iterable[tuple[int, int]]) -> bool:
    return any(first <= offset <= last for first, last in batches)


class History:
    """One share partition and its model, and random steps."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.limits = ShareLimits(self.rng.randint(2, 6), self.rng.choice((20, 60, 200)), LOCK_MS)
        self.log: list[tuple[int, int]] = []
        self.aborted: set[tuple[int, int]] = set()
        self.log_start = 0
        self.now_ms = 0.0
        self.records: dict[int, Record] = {}
        self.kept: dict[int, tuple[int, int]] = {}
        self.kept_start = 0
        self.ends: dict[int, int] = {}  # how records ended for good, as far as that was written
        self.start = 0
        self.done: set[int] = set()  # what the start has moved over
        self.writes: list[tuple[StateWrite, dict[int, tuple[int, int]]]] = []
        self.written: dict[int, tuple[int, int] | None] = {}  # changes in the write under way
        self.partition = self.make()
        self.partition.load(0, [])
        for _ in range(5):
            self.append()

    def make(self) -> SharePartition:
        return SharePartition(lambda: self.limits)

    # -- steps ------------------------------------------------------------------------------------

    def append(self) -> None:
        """The log grows by a batch, sometimes behind a gap, sometimes an aborted one."""
        first = self.log[-1][1] + 1 if self.log else 0
        first += self.rng.choice((0, 0, 0, 3))
        batch = (first, first + self.rng.choice((0, 0, 1, 4, 9, 19)))
        self.log.append(batch)
        if self.rng.random() < 0.1:
            self.aborted.add(batch)

    def acquire(self) -> None:
        partition, rng = self.partition, self.rng
        if not partition.can_acquire():
            return
        offset = partition.next_fetch_offset()
        read = [batch for batch in self.log if batch[1] >= max(offset, self.log_start)]
        read = read[: rng.choice((1, 2, 5))]
        if not read:
            return
        member, is_record_limit = rng.choice(MEMBERS), rng.random() < 0.5
        demand = Demand(member, rng.choice((1, 3, 10, 50)), rng.choice((1, 5, 50)), is_record_limit)
        aborted = [batch for batch in read if batch in self.aborted]
        got = partition.acquire(demand, offset, Batches(read, aborted), self.now_ms)
        offsets = [at for first, last, _ in got for at in range(first, last + 1)]
        assert offsets == sorted(set(offsets))
        assert not is_record_limit or len(offsets) <= demand.max_records
        counts = {at: count for first, last, count in got for at in range(first, last + 1)}
        for at in offsets:
            record = self.records.setdefault(at, Record())
            assert record.state == AVAILABLE and record.change is None, (at, record)
            assert counts[at] == record.count + 1 <= self.limits.delivery_count, (at, record)
            assert at not in self.ends and not any(first <= at <= last for first, last in aborted)
            self.records[at] = Record(ACQUIRED, counts[at], member, self.now_ms + LOCK_MS)
        self.learn(read)

    def learn(self, read: list[tuple[int, int]]) -> None:
        """What an acquisition does by itself: rests of batches, aborted and compacted records."""
        for run in self.partition.in_flight:
            for at in range(run.first, run.last + 1):
                record = self.records.get(at)
                if record is None:
                    assert run.state != ACQUIRED, run
                    self.records[at] = Record(int(run.state), run.delivery_count)
                elif run.state == ARCHIVED and record.state == AVAILABLE:
                    is_aborted = is_within(at, self.aborted)
                    is_gone = not is_within(at, self.log)
                    assert is_aborted or is_gone or at < read[0][0], (at, run)
                    self.records[at] = Record(ARCHIVED, run.delivery_count)

    def acknowledge(self) -> None:
        rng = self.rng
        if not self.records:
            return
        offsets = sorted(self.records)
        first = rng.choice(offsets)
        mine = self.records[first].member
        last = first
        while rng.random() < 0.85 and last + 1 in self.records:
            last += 1
        kinds = [rng.choice((0, 1, 1, 1, 2, 2, 3, 4))]
        if rng.random() < 0.3:
            kinds = [rng.choice((0, 1, 2, 3, 4)) for _ in range(first, last + 1)]
        member = mine if mine and rng.random() < 0.9 else rng.choice(MEMBERS)
        start = self.partition.start_offset
        named = [at for at in range(max(first, start), last + 1) if at in self.records]
        is_legal = all(
            self.records[at].state == ACQUIRED
            and self.records[at].change is None
            and self.records[at].member == member
            for at in named
        )
        batch = AcknowledgedBatch(first, last, kinds)
        try:
            self.partition.acknowledge(member, [batch], self.now_ms)
        except KafkaError:
            assert not is_legal, (first, last, member)
            return
        assert is_legal, (first, last, member)
        for at in named:
            kind = kinds[0] if len(kinds) == 1 else kinds[at - first]
            record = self.records[at]
            if kind == 4:
                record.until_ms = self.now_ms + LOCK_MS
                continue
            state = AFTER[kind]
            if state == AVAILABLE and record.count >= self.limits.delivery_count:
                state = ARCHIVED
            record.change = (state, record.count)

    def release(self) -> None:
        member = self.rng.choice(MEMBERS)
        self.partition.release(member)
        for record in self.records.values():
            if record.member == member and record.state == ACQUIRED and record.change is None:
                is_last = record.count >= self.limits.delivery_count
                record.change = (ARCHIVED if is_last else AVAILABLE, record.count)

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice((1, 30, 60, 120))
        self.partition.end_locks(self.now_ms)
        for at, record in self.records.items():
            if (
                record.state == ACQUIRED
                and record.change is None
                and (record.until_ms <= self.now_ms)
            ):
                self.records[at] = self.unlocked(record)

    def unlocked(self, record: Record) -> Record:
        is_last = record.count >= self.limits.delivery_count
        return Record(ARCHIVED if is_last else AVAILABLE, record.count)

    def begin_write(self) -> None:
        write = self.partition.next_write()
        if write is None:
            return
        content = {
            at: (batch.delivery_state, batch.delivery_count)
            for batch in write.batches
            for at in range(batch.first_offset, batch.last_offset + 1)
        }
        assert all(state in (AVAILABLE, ACKED, ARCHIVED) for state, _ in content.values())
        for at, wanted in content.items():
            record = self.records[at]
            if record.state == ACQUIRED and record.change is None:
                assert wanted == (AVAILABLE, record.count - 1), (at, record, wanted)
            else:
                assert wanted == (record.change or (record.state, record.count)), (at, wanted)
        complete = sum(
            (record.change or (record.state, 0))[0] in (ACKED, ARCHIVED)
            for at, record in self.records.items()
            if at >= write.start_offset
        )
        assert write.delivery_complete_count == complete
        self.written = {at: self.records[at].change for at in content}
        self.writes.append((write, content))

    def end_write(self, succeeded: bool | None = None) -> None:
        if not self.writes:
            return
        write, content = self.writes.pop()
        if succeeded is None:
            succeeded = self.rng.random() < 0.7
        if succeeded:
            self.kept |= content
            self.kept_start = write.start_offset
            self.ends |= {at: state for at, (state, _) in content.items() if state != AVAILABLE}
        self.partition.on_written(write, self.now_ms, succeeded=succeeded)
        for at in content:
            record = self.records.get(at)
            if record is None or record.change is None or record.change is not self.written[at]:
                continue
            if succeeded:
                self.records[at] = Record(*record.change)
            elif record.until_ms <= self.now_ms:
                self.records[at] = self.unlocked(record)
            else:
                record.change = None

    def move_log_start(self) -> None:
        if len(self.log) > 3:
            self.log_start = self.log[self.rng.randint(1, 2)][0]
            self.log = [batch for batch in self.log if batch[0] >= self.log_start]
            self.partition.on_log_start(self.log_start)

    def fail_over(self) -> None:
        """Another leader begins with what was kept; a write under way may have come through."""
        if self.writes:
            write, content = self.writes.pop()
            if self.rng.random() < 0.5:
                self.kept |= content
                self.kept_start = write.start_offset
                self.ends |= {at: one[0] for at, one in content.items() if one[0] != AVAILABLE}
        kept = sorted((at, one) for at, one in self.kept.items() if at >= self.kept_start)
        self.partition = self.make()
        self.partition.load(self.kept_start, [ShareStateBatch(at, at, *one) for at, one in kept])
        self.partition.on_log_start(self.log_start)
        self.records = {at: Record(*one) for at, one in kept}
        self.start = self.kept_start

    # -- checks -----------------------------------------------------------------------------------

    def check(self) -> None:
        partition = self.partition
        for at in range(self.start, partition.start_offset):
            record = self.records.pop(at, None)
            if at >= self.log_start and is_within(at, self.log):
                is_done = record is not None and record.state in (ACKED, ARCHIVED)
                assert is_done or is_within(at, self.aborted), (at, "is not done with", record)
                self.done.add(at)
        self.start = partition.start_offset
        seen = {}
        for run in partition.in_flight:
            assert partition.start_offset <= run.first <= run.last <= partition.end_offset
            for at in range(run.first, run.last + 1):
                seen[at] = run
        assert seen.keys() == self.records.keys()
        for at, record in self.records.items():
            run = seen[at]
            assert (int(run.state), run.delivery_count, run.member_id) == (
                record.state,
                record.count,
                record.member,
            ), (at, run, record)
            assert (run.change is None) == (record.change is None), (at, run, record)
            assert 0 <= run.delivery_count <= self.limits.delivery_count

    def finish(self) -> None:
        """Nothing fails any more: everybody accepts what comes, until all is done with."""
        self.end_write(succeeded=False)
        for _ in range(2000):
            self.now_ms += LOCK_MS
            self.pass_time()
            self.acquire()
            for at, record in list(self.records.items()):
                if record.state == ACQUIRED and record.change is None:
                    batch = AcknowledgedBatch(at, at, [1])
                    self.partition.acknowledge(record.member, [batch], self.now_ms)
                    record.change = (ACKED, record.count)
            self.begin_write()
            self.end_write(succeeded=True)
            self.check()
            if self.partition.next_fetch_offset() > self.log[-1][1] and not self.records:
                offsets = {at for first, last in self.log for at in range(first, last + 1)}
                assert offsets <= self.done, "some record was lost"
                return
        raise AssertionError(f"records are left: {list(self.partition.in_flight)}")


STEPS = {
    History.append: 2,
    History.acquire: 8,
    History.acknowledge: 8,
    History.release: 1,
    History.pass_time: 5,
    History.begin_write: 4,
    History.end_write: 4,
    History.move_log_start: 1,
    History.fail_over: 1,
}


@pytest.mark.parametrize("seed", range(60))
def test_share_partitions_keep_their_promises(seed: int) -> None:
    history = History(seed)
    steps = history.rng.choices(list(STEPS), list(STEPS.values()), k=150)
    for step in steps:
        step(history)
        history.check()
    history.finish()
