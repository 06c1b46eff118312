"""Positions and what was fetched ahead: when what is handed over, and when it no longer may be."""

from __future__ import annotations

import pytest

from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.config import OffsetReset, ResetTo
from kraftrio.clients.consumer.partition import (
    AssignedPartition,
    BufferedAnswer,
    Chunk,
    FetchFailure,
    FetchStatus,
    Position,
)
from kraftrio.clients.consumer.records import ConsumerBatch
from kraftrio.clients.errors import OffsetOutOfRangeError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, build_batch, parse_header

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST = OffsetReset(ResetTo.EARLIEST)


class Context:
    """A state with two partitions that are being fetched from offset 0 on."""

    def __init__(self) -> None:
        self.state = AssignedPartitions()
        self.interrupts = 0
        self.state.interrupt = self._interrupt
        self.state.assign([T0, T1])
        for each in self.state:
            self.state.seek(each, Position(0), validate=False)

    def _interrupt(self) -> None:
        self.interrupts += 1

    def of(self, topic_partition: TopicPartition = T0) -> AssignedPartition:
        found = self.state.get(topic_partition)
        assert found is not None
        return found

    def batch(
        self, first: int, last: int, topic_partition: TopicPartition = T0, epoch: int = 3
    ) -> ConsumerBatch:
        data = build_batch(
            [Record(0, 0, None, b"v")] * (last - first + 1), base_offset=first, leader_epoch=epoch
        )
        return ConsumerBatch(topic_partition, memoryview(data), parse_header(data), first, last + 1)

    def answer(
        self,
        *spans: tuple[int, int],
        of: TopicPartition = T0,
        until: int | None = None,
        answer: BufferedAnswer | None = None,
        epoch: int = 3,
        last_epoch: int | None = None,
    ) -> None:
        """An answer with batches from and to these offsets arrives.

        Args:
            last_epoch: of what is behind them, up to `until`; None: the same.
        """
        state = self.of(of)
        batches = [self.batch(first, last, of, epoch) for first, last in spans]
        end = until if until is not None else spans[-1][1] + 1
        last_epoch = epoch if last_epoch is None else last_epoch
        chunk = Chunk(state.fetch_offset, end, batches, answer, leader_epoch=last_epoch)
        self.state.buffer.add(state, chunk)

    def take(self) -> tuple[int, int, int] | None:
        """Take a batch and hand it over: (partition, first offset, next offset)."""
        batch = self.state.take()
        if batch is None:
            return None
        self.state.handed_over(
            batch.topic_partition, Position(batch.next_offset, batch.leader_epoch)
        )
        return batch.partition, batch.first_offset, batch.next_offset


def test_fetching_runs_ahead_of_the_position() -> None:
    """The position moves with what is handed over."""
    context = Context()
    context.answer((0, 4), (5, 9))
    context.answer((10, 12))
    state = context.of()
    assert (state.position, state.fetch_offset) == (Position(0), 13)
    assert context.take() == (0, 0, 5)
    assert state.position == Position(5, 3)
    assert context.take() == (0, 5, 10)
    assert context.take() == (0, 10, 13)
    assert context.take() is None
    assert state.position == Position(13, 3)


def test_partitions_take_turns_answer_by_answer() -> None:
    """Not batch by batch: what lies together is handed over together."""
    context = Context()
    context.answer((0, 1), (2, 3))
    context.answer((0, 1), of=T1)
    context.answer((4, 5))
    taken = [context.take() for _ in range(5)]
    assert taken == [(0, 0, 2), (0, 2, 4), (1, 0, 2), (0, 4, 6), None]


def test_the_position_skips_what_is_never_handed_over() -> None:
    """Once everything before that is handed over, and more is asked for."""
    context = Context()
    context.answer((0, 4), until=7)
    assert context.take() == (0, 0, 5)
    assert context.of().position == Position(5, 3)
    assert context.take() is None
    assert context.of().position == Position(7, 3)
    context.answer(until=9)
    assert context.take() is None
    assert context.of().position == Position(9, 3)


def test_room_is_for_two_answers() -> None:
    """One that is being handed over, and the next one."""
    context = Context()
    state = context.of()
    assert state.has_room
    context.answer((0, 4))
    assert state.has_room
    context.answer((5, 9))
    assert not state.has_room
    context.take()
    context.take()
    assert state.has_room


def test_answers_are_counted_while_any_part_is_left() -> None:
    """Their memory is one."""
    context = Context()
    answer = BufferedAnswer(7, 1_000)
    context.answer((0, 4), answer=answer)
    context.answer((0, 4), of=T1, answer=answer)
    assert context.state.buffer.buffered_bytes(7) == 1_000
    context.take()
    context.take()
    assert context.state.buffer.buffered_bytes(7) == 1_000
    assert context.take() is None
    assert context.state.buffer.buffered_bytes(7) == 0
    context.answer((5, 9), answer=BufferedAnswer(7, 500))
    context.state.seek(context.of(), Position(0), validate=False)
    assert context.state.buffer.buffered_bytes(7) == 0
    context.answer((0, 4), answer=BufferedAnswer(7, 500))
    context.state.assign([T1])
    assert context.state.buffer.buffered_bytes(7) == 0


def test_paused_partitions_keep_what_they_have() -> None:
    """It is handed over once they are resumed."""
    context = Context()
    context.answer((0, 4))
    context.answer((0, 4), of=T1)
    context.state.pause(context.of(), True)
    assert not context.of().wants_fetch
    assert context.take() == (1, 0, 5)
    assert context.take() is None
    context.state.pause(context.of(), False)
    assert context.take() == (0, 0, 5)


def test_a_run_is_what_follows_each_other() -> None:
    """Of one partition, up to so many records; a damaged batch ends it and is raised later."""
    context = Context()
    bad = context.batch(15, 19)
    bad._header.crc ^= 1
    good = [context.batch(0, 4), context.batch(5, 9), context.batch(10, 14)]
    context.state.buffer.add(context.of(), Chunk(0, 20, [*good, bad]))
    context.answer((0, 4), of=T1)
    runs = [context.state.take_run(10)]
    context.state.handed_over(T0, Position(10, 3))
    runs.append(context.state.take_run(100))
    context.state.handed_over(T0, Position(15, 3))
    assert [[batch.first_offset for batch in run] for run in runs] == [[0, 5], [10]]
    with pytest.raises(FetchFailure):
        context.state.take_run(100)
    [other] = context.state.take_run(1)
    assert (other.partition, len(other)) == (1, 5)
    assert context.state.take_run(1) == []


def test_put_back_comes_next() -> None:
    """Before what else there is of the partition and of others."""
    context = Context()
    context.answer((0, 9), (10, 12))
    context.answer((0, 1), of=T1)
    batch = context.state.take()
    assert batch is not None
    context.state.handed_over(T0, Position(4, 3))
    context.state.put_back(batch.starting_at(4))
    assert context.take() == (0, 4, 10)
    assert context.take() == (0, 10, 13)
    assert context.take() == (1, 0, 2)


def test_a_seek_drops_what_was_fetched() -> None:
    """And what is under way: the version has changed."""
    context = Context()
    context.answer((0, 4))
    before = context.of().version
    interrupts = context.interrupts
    context.state.seek(context.of(), Position(50), validate=False)
    assert context.of().version > before
    assert context.interrupts > interrupts
    assert context.take() is None
    assert context.of().fetch_offset == 50


def test_what_was_handed_over_is_settled_before_a_change() -> None:
    """Whoever takes note late is asked first."""
    context = Context()
    context.answer((0, 9))
    batch = context.state.take()
    assert batch is not None
    context.state.settle = lambda: context.state.handed_over(T0, Position(4, 3))
    context.state.leader_seen(context.of(), 9)
    assert context.of().position == Position(4, 3)
    assert context.of().status is FetchStatus.VALIDATING


def test_a_new_leader_is_compared_with_what_was_read() -> None:
    """What was fetched ahead is dropped, and fetched again from a log that is the same."""
    context = Context()
    state = context.of()
    context.state.leader_seen(state, 3)
    assert state.status is FetchStatus.FETCHING
    context.answer((0, 4), (5, 9))
    context.take()
    context.state.leader_seen(state, 2)  # old news
    assert state.status is FetchStatus.FETCHING
    context.state.leader_seen(state, 4)
    assert state.status is FetchStatus.VALIDATING
    assert context.take() is None
    assert state.fetch_offset == 5
    context.state.validated(state)
    context.answer((5, 9), epoch=4)
    assert context.take() == (0, 5, 10)


def test_a_leader_whose_records_were_read_needs_no_comparison() -> None:
    """The epoch of the last record is its own."""
    context = Context()
    state = context.of()
    context.answer((0, 4), epoch=6)
    context.take()
    context.state.leader_seen(state, 6)
    assert state.status is FetchStatus.FETCHING


def test_nothing_read_yet_means_nothing_to_compare() -> None:
    """But what the old leader sent is not handed over in the new one's name."""
    context = Context()
    state = context.of()
    context.answer((0, 4))
    context.state.leader_seen(state, 4)
    assert state.status is FetchStatus.FETCHING
    assert context.take() is None
    assert state.fetch_offset == 0


def test_seek_validates_only_foreign_epochs() -> None:
    """A committed offset says in which epoch its record was written."""
    context = Context()
    state = context.of()
    context.state.leader_seen(state, 4)
    context.state.seek(state, Position(5, 4), validate=True)
    assert state.status is FetchStatus.FETCHING
    context.state.seek(state, Position(5, 2), validate=True)
    assert state.status is FetchStatus.VALIDATING
    context.state.seek(state, Position(5), validate=True)
    assert state.status is FetchStatus.FETCHING


def test_failures_wait_behind_the_records_before_them() -> None:
    """Then they are raised, again and again, until something is done."""
    context = Context()
    state = context.of()
    context.answer((0, 4))
    context.state.buffer.add(state, Chunk(5, 5, failure=OffsetOutOfRangeError()))
    assert not state.wants_fetch
    assert context.take() == (0, 0, 5)
    with pytest.raises(FetchFailure) as failure:
        context.take()
    assert failure.value.partition is state
    assert failure.value.offset == 5
    assert failure.value.cause.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert state.wants_fetch
    assert state.position == Position(5, 3)
    assert context.take() is None


def test_damaged_batches_are_not_handed_over() -> None:
    """Those before are; the damaged one is fetched again."""
    context = Context()
    state = context.of()
    bad = context.batch(5, 9)
    bad._header.crc ^= 1
    context.state.buffer.add(state, Chunk(0, 10, [context.batch(0, 4), bad]))
    assert context.take() == (0, 0, 5)
    with pytest.raises(FetchFailure) as failure:
        context.take()
    assert failure.value.cause.code == ErrorCode.CORRUPT_MESSAGE
    assert failure.value.offset == 5
    assert state.fetch_offset == 5
    unchecked = AssignedPartitions(check_crcs=False)
    unchecked.assign([T0])
    [other] = unchecked
    unchecked.seek(other, Position(5), validate=False)
    unchecked.buffer.add(other, Chunk(5, 10, [bad]))
    assert unchecked.take() is bad


def test_resets() -> None:
    """A partition that is to begin again hands over nothing until it is known where."""
    context = Context()
    state = context.of()
    context.answer((0, 4))
    context.state.request_reset(state, EARLIEST)
    assert (state.status, state.position, state.reset) == (FetchStatus.RESETTING, None, EARLIEST)
    assert context.take() is None
    assert context.state.in_status(FetchStatus.RESETTING, 0) == [state]
    state.retry_at = 5.0
    assert context.state.in_status(FetchStatus.RESETTING, 0) == []
    assert context.state.next_retry_at(0) == 5.0
    assert context.state.next_retry_at(5) is None


def test_assignments_keep_the_state_of_what_stays() -> None:
    """What comes begins again, what goes is dropped."""
    context = Context()
    context.answer((0, 4))
    context.answer((0, 4), of=T1)
    other = TopicPartition("u", 0)
    context.state.assign([T1, other])
    assert context.state.assignment == {T1, other}
    assert context.of(other).status is FetchStatus.INITIALIZING
    assert context.take() == (1, 0, 5)
    assert context.take() is None
    assert T0 not in context.state
    assert len(context.state) == 2
