"""What was fetched and not taken yet: turns of partitions, memory of answers, failures in order."""

from __future__ import annotations

import pytest

from kraftrio.clients.consumer.partition import BufferedAnswer, Chunk, FetchFailure, Position
from kraftrio.clients.errors import OffsetOutOfRangeError
from tests.unit.clients.consumer.test_assigned_partitions import T0, T1, Context


class Fetched(Context):
    """Two partitions that are being fetched."""

    def taken(self) -> tuple[int, int] | None:
        """Take a batch: (partition, first offset)."""
        batch = self.state.buffer.take()
        return None if batch is None else (batch.partition, batch.first_offset)


def test_partitions_take_turns_by_chunks() -> None:
    fetched = Fetched()
    fetched.answer((0, 1), (2, 3))
    fetched.answer((0, 1), of=T1)
    fetched.answer((4, 5))
    order = [fetched.taken() for _ in range(5)]
    assert order == [(0, 0), (0, 2), (1, 0), (0, 4), None]


def test_a_run_ends_at_a_chunk_and_at_enough_records() -> None:
    fetched = Fetched()
    fetched.answer((0, 4), (5, 9), (10, 14))
    fetched.answer((15, 19))
    run = fetched.state.buffer.take_run(10)
    assert [batch.first_offset for batch in run] == [0, 5]
    assert [batch.first_offset for batch in fetched.state.buffer.take_run(100)] == [10]
    assert [batch.first_offset for batch in fetched.state.buffer.take_run(1)] == [15]
    assert fetched.state.buffer.take_run(1) == []


def test_an_answer_is_in_memory_until_its_last_chunk_is_finished() -> None:
    fetched = Fetched()
    room: list[int] = []
    fetched.state.buffer.on_room = lambda: room.append(fetched.state.buffer.buffered_bytes(7))
    answer = BufferedAnswer(7, 1_000)
    fetched.answer((0, 4), answer=answer)
    fetched.answer((0, 4), of=T1, answer=answer)
    assert fetched.state.buffer.buffered_bytes(7) == 1_000
    assert fetched.taken() == (0, 0)
    assert fetched.taken() == (1, 0)
    assert room == [1_000], "the other partition's part is still held"
    assert fetched.taken() is None
    assert room == [1_000, 0]


def test_what_is_put_back_comes_next() -> None:
    fetched = Fetched()
    fetched.answer((0, 1), (2, 3))
    fetched.answer((0, 1), of=T1)
    buffer = fetched.state.buffer
    batches = buffer.take_run(100)
    buffer.put_back(fetched.of(), tuple(batches))
    assert [fetched.taken() for _ in range(3)] == [(0, 0), (0, 2), (1, 0)]


def test_a_failure_has_its_turn_behind_the_records_before_it() -> None:
    fetched = Fetched()
    fetched.answer((0, 4))
    fetched.state.buffer.add(fetched.of(), Chunk(5, 5, failure=OffsetOutOfRangeError()))
    assert fetched.taken() == (0, 0)
    with pytest.raises(FetchFailure) as caught:
        fetched.taken()
    assert caught.value.partition is fetched.of()
    assert caught.value.offset == 5


def test_the_position_skips_what_is_never_handed_over() -> None:
    """Markers and gaps behind the last batch of a chunk."""
    fetched = Fetched()
    fetched.answer((0, 4), until=9)
    assert fetched.take() == (0, 0, 5)
    assert fetched.of().position == Position(5, 3)
    assert fetched.taken() is None
    assert fetched.of().position == Position(9, 3)


def test_the_position_behind_what_is_skipped_has_its_leader_epoch() -> None:
    """With the epoch of the record before, a leader would say that the log ends at the marker."""
    fetched = Fetched()
    fetched.answer((0, 4), until=9, epoch=3, last_epoch=5)
    assert fetched.take() == (0, 0, 5)
    assert fetched.of().position == Position(5, 3)
    assert fetched.taken() is None
    assert fetched.of().position == Position(9, 5)


def test_what_is_dropped_frees_its_memory() -> None:
    fetched = Fetched()
    fetched.answer((0, 4), answer=BufferedAnswer(7, 500))
    fetched.state.buffer.drop(fetched.of(T0))
    assert fetched.state.buffer.buffered_bytes(7) == 0
    assert fetched.taken() is None
