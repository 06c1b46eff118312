"""What the program gets of fetched batches, and what counts as consumed."""

from __future__ import annotations

import pytest

from kraftrio.clients.consumer.config import OffsetReset, ResetTo
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.consumer.partition import Chunk, FetchStatus, Position
from kraftrio.clients.errors import CorruptRecordError, OffsetOutOfRangeError, error_for
from kraftrio.clients.group_offsets import OffsetAndMetadata
from kraftrio.wire.errors import ErrorCode
from tests.unit.clients.consumer.test_assigned_partitions import EARLIEST, T0, T1, Context


class Handing(Context):
    """Two partitions that are being fetched, and a handover of their records."""

    def __init__(self, reset: OffsetReset = EARLIEST) -> None:
        super().__init__()
        self.handover = Handover(self.state, reset)

    def records(self, count: int) -> list[int]:
        """The offsets of the next records, taken one by one."""
        offsets = []
        for _ in range(count):
            record = self.handover.next_record()
            assert record is not None
            offsets.append(record.offset)
        return offsets

    def position(self) -> Position | None:
        return self.of().position


def test_records_are_consumed_when_the_position_is_asked_for() -> None:
    """The position follows at once where it is looked at, though no call was made."""
    program = Handing()
    program.answer((0, 4))
    assert program.records(1) == [0]
    assert program.position() == Position(0)
    program.handover.settle()
    assert program.position() == Position(1, 3)
    for record in program.handover.records:
        program.handover.handed = record
    program.handover.settle()
    assert program.position() == Position(5, 3)


def test_an_open_run_that_is_used_up_is_followed_by_the_next() -> None:
    program = Handing()
    program.answer((0, 2))
    assert program.records(3) == [0, 1, 2]
    assert program.handover.has_run
    assert program.handover.next_record() is None
    assert not program.handover.has_run, "there is nothing: wait"
    program.answer((3, 4))
    assert program.records(2) == [3, 4]


def test_the_ways_to_take_records_may_be_mixed() -> None:
    """What is left of the records of a run comes with the next batch, and nothing twice."""
    program = Handing()
    program.answer((0, 4), (5, 9))
    assert program.records(3) == [0, 1, 2]
    program.handover.finish()
    batch = program.handover.next_batch()
    assert batch is not None
    assert [record.offset for record in batch.records()] == [3, 4]
    assert program.records(2) == [5, 6]
    program.handover.finish()
    (rest,) = program.handover.next_batches(500)
    assert [record.offset for record in rest.records()] == [7, 8, 9]


def test_no_more_records_than_asked_for_come_at_once() -> None:
    program = Handing()
    program.answer((0, 4), (5, 9))
    taken = program.handover.next_batches(7)
    assert [len(batch) for batch in taken] == [5, 2]
    assert program.position() == Position(7, 3)
    assert [len(batch) for batch in program.handover.next_batches(7)] == [3]
    assert program.handover.next_batches(7) == []


def test_what_is_in_hand_when_the_program_fails_goes_back() -> None:
    """Of several partitions, each to where what was returned last begins."""
    program = Handing()
    program.answer((0, 4))
    program.answer((0, 2), of=T1)
    assert len(program.handover.next_batches(100)) == 2
    program.handover.finish()
    program.answer((5, 9))
    assert program.handover.next_batch() is not None
    program.handover.take_back()
    assert program.handover.consumed() == {
        T0: OffsetAndMetadata(5, 3),
        T1: OffsetAndMetadata(3, 3),
    }


def test_a_record_in_hand_goes_back_alone() -> None:
    program = Handing()
    program.answer((0, 4))
    assert program.records(3) == [0, 1, 2]
    program.handover.settle()
    program.handover.take_back()
    assert program.handover.consumed([T0]) == {T0: OffsetAndMetadata(2, 3)}


def test_records_of_a_partition_that_was_moved_are_dropped() -> None:
    program = Handing()
    program.answer((0, 4))
    assert program.records(1) == [0]
    program.state.seek(program.of(), Position(40), validate=False)
    assert program.handover.next_record() is None
    program.answer((40, 41))
    assert program.records(2) == [40, 41]


def test_records_of_a_paused_partition_wait() -> None:
    program = Handing()
    program.answer((0, 4))
    assert program.records(2) == [0, 1]
    program.handover.settle()
    program.state.pause(program.of(), True)
    assert program.handover.next_record() is None
    program.state.pause(program.of(), False)
    assert program.records(3) == [2, 3, 4]


@pytest.mark.parametrize("to", [ResetTo.EARLIEST, ResetTo.NONE])
def test_an_offset_that_is_gone_is_reset_or_raised(to: ResetTo) -> None:
    program = Handing(OffsetReset(to))
    failure = error_for(ErrorCode.OFFSET_OUT_OF_RANGE)
    program.state.buffer.add(program.of(), Chunk(0, 0, failure=failure))
    if to is ResetTo.NONE:
        with pytest.raises(OffsetOutOfRangeError, match="t-0 has no offset 0"):
            program.handover.next_record()
        assert program.of().status is FetchStatus.FETCHING
    else:
        assert program.handover.next_record() is None
        assert program.of().status is FetchStatus.RESETTING


def test_damage_is_named_and_comes_after_what_was_good() -> None:
    program = Handing()
    for first, good in ((0, [program.batch(0, 4)]), (5, [])):
        bad = program.batch(5, 9)
        bad._header.crc ^= 1
        program.state.buffer.add(program.of(), Chunk(first, 10, [*good, bad]))
        if good:
            assert len(program.handover.next_batches(100)) == 1
            assert program.of().fetch_offset == 5, "the damaged one is fetched again"
    with pytest.raises(CorruptRecordError, match="t-0 at offset 5"):
        program.handover.next_batches(100)


def test_a_program_that_takes_records_by_itself_is_alive() -> None:
    program = Handing()
    program.answer((0, 4))
    assert not program.handover.has_moved()
    program.records(1)
    assert program.handover.has_moved()
    assert not program.handover.has_moved(), "not since"
