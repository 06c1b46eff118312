"""A share partition: what moves its start, what is written, what failures and loads leave."""

from __future__ import annotations

import pytest

from kraftrio.broker.share.state.share_partition import ShareLimits
from tests.unit.broker.share.state.share_context import (
    ACCEPT,
    LOCK_MS,
    REJECT,
    RELEASE,
    ShareContext,
)

TENS = [(start, start + 9) for start in range(0, 100, 10)]
ACKED, ARCHIVED = 2, 4


# -- writes ---------------------------------------------------------------------------------------


def test_the_start_moves_over_what_is_done_with() -> None:
    context = ShareContext(TENS)
    for _ in range(3):
        context.acquire(max_records=10)
    context.acknowledge(10, 19)
    assert context.span == (0, 29)
    context.acknowledge(0, 9, REJECT)
    assert context.span == (20, 29)
    context.acknowledge(20, 24)
    assert context.span == (25, 29)
    context.acknowledge(25, 29)
    assert context.span == (30, 30)
    assert context.partition.next_fetch_offset() == 30


def test_what_is_written_names_states_and_counts() -> None:
    context = ShareContext(TENS)
    for _ in range(3):
        context.acquire(max_records=10)
    context.acknowledge(10, 14, ACCEPT, written=None)
    context.acknowledge(15, 24, REJECT, written=None)
    context.acknowledge(25, 29, RELEASE, written=None)
    write = context.write()
    assert write is not None
    assert (write.start_offset, write.delivery_complete_count) == (0, 15)
    assert [tuple(batch) for batch in write.batches] == [
        (10, 14, ACKED, 1),
        (15, 24, ARCHIVED, 1),
        (25, 29, 0, 1),
    ]


def test_later_changes_wait_for_the_write_under_way() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.acquire(max_records=10)
    context.acknowledge(0, 9, written=None)
    first = context.partition.next_write()
    assert first is not None
    context.acknowledge(10, 14, written=None)
    context.acknowledge(15, 19, written=None)
    assert context.partition.next_write() is None
    context.partition.on_written(first, 0, succeeded=True)
    assert context.span == (10, 19)
    second = context.partition.next_write()
    assert second is not None
    assert [tuple(batch) for batch in second.batches] == [(10, 19, ACKED, 1)]
    assert (second.start_offset, second.delivery_complete_count) == (10, 10)


def test_a_failed_write_leaves_the_records_with_their_member() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.acknowledge(0, 9, written=False)
    assert context.states == "0-9 ACQUIRED x1"
    assert context.write() is None
    context.acknowledge(0, 9)
    assert context.span == (10, 10)


def test_a_lock_that_ends_during_a_write_counts_if_it_fails() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.acknowledge(0, 9, written=None)
    write = context.partition.next_write()
    assert write is not None
    context.time_out()
    assert context.states == "0-9 ACQUIRED->ACKNOWLEDGED x1"
    context.partition.on_written(write, context.now_ms, succeeded=False)
    assert context.states == "0-9 AVAILABLE x1"
    again = context.write()
    assert again is not None and [tuple(batch) for batch in again.batches] == [(0, 9, 0, 1)]


def test_a_lock_that_ends_is_written_again_with_the_next_write() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.time_out()
    assert context.states == "0-9 AVAILABLE x1"
    context.write(succeeded=False)
    assert context.states == "0-9 AVAILABLE x1"
    write = context.write()
    assert write is not None and [tuple(batch) for batch in write.batches] == [(0, 9, 0, 1)]
    assert context.write() is None


def test_what_is_acquired_again_meanwhile_is_written_as_it_was_before() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.time_out()
    assert context.acquire(max_records=10) == [(0, 9, 2)]
    write = context.write()
    assert write is not None and [tuple(batch) for batch in write.batches] == [(0, 9, 0, 1)]


# -- deliveries -----------------------------------------------------------------------------------


def test_records_are_given_up_after_their_last_delivery() -> None:
    context = ShareContext([(0, 0)], delivery_count=2)
    assert context.acquire() == [(0, 0, 1)]
    context.acknowledge(0, 0, RELEASE)
    assert context.acquire() == [(0, 0, 2)]
    context.acknowledge(0, 0, RELEASE)
    assert context.acquire() == []
    assert context.span == (1, 1)


def test_so_they_are_when_the_lock_ends() -> None:
    context = ShareContext([(0, 0)], delivery_count=2)
    for count in (1, 2):
        assert context.acquire() == [(0, 0, count)]
        context.time_out()
    assert context.acquire() == []
    assert context.span == (1, 1)


def test_the_limits_are_those_of_the_moment() -> None:
    context = ShareContext([(0, 0)])
    context.acquire()
    context.limits = ShareLimits(1, 200, LOCK_MS)
    context.time_out()
    assert context.span == (1, 1)


def test_a_member_that_leaves_gives_all_back() -> None:
    context = ShareContext(TENS)
    context.acquire("m1", max_records=10)
    context.acquire("m2", max_records=10)
    context.acquire("m1", max_records=10)
    context.acknowledge(3, 4)
    assert context.partition.release("m1")
    assert not context.partition.release("m1")
    context.write()
    assert context.states == (
        "0-2 AVAILABLE x1, 3-4 ACKNOWLEDGED x1, 5-9 AVAILABLE x1, 10-19 ACQUIRED x1, "
        "20-29 AVAILABLE x1"
    )
    assert context.acquire("m3", max_records=10) == [(0, 2, 2), (5, 9, 2), (20, 29, 2)]


def test_the_heap_of_locks_forgets_what_ended_early() -> None:
    context = ShareContext([(at, at) for at in range(2000)], record_locks=10)
    for at in range(1000):
        context.acquire(max_records=1, batches=1)
        context.acknowledge(at, at)
    context.acquire(max_records=5, batches=5)
    assert len(context.partition._locks) < 100
    context.time_out()
    assert context.states.count("AVAILABLE") == 1


# -- the start of the log -------------------------------------------------------------------------


def test_the_start_of_the_log_takes_records_away() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.acquire(max_records=10)
    context.acknowledge(10, 19, RELEASE)
    context.partition.on_log_start(15)
    assert context.span == (15, 19)
    assert not context.acknowledge(0, 9)  # ignored
    assert context.acquire(max_records=5) == [(15, 19, 2)]
    context.partition.on_log_start(40)
    assert context.span == (40, 40)
    assert context.acquire(max_records=5) == [(40, 49, 1)]


def test_records_that_compaction_removed_are_given_up() -> None:
    context = ShareContext(TENS)
    for _ in range(3):
        context.acquire(max_records=10)
    context.acknowledge(0, 19, RELEASE)
    context.log = [(15, 19), (20, 29), (30, 39)]
    assert context.acquire(max_records=5) == [(15, 19, 2)]
    context.write()
    assert context.span == (15, 29)


# -- loads ----------------------------------------------------------------------------------------


def test_a_load_takes_what_was_kept() -> None:
    context = ShareContext(TENS)
    context.load(5, (5, 9, 0, 2), (10, 19, ACKED, 1), (20, 24, 0, 1))
    assert context.span == (5, 24)
    assert context.acquire(max_records=100, batches=3) == [(5, 9, 3), (20, 24, 2), (25, 29, 1)]


def test_gaps_in_what_was_kept_may_have_records() -> None:
    context = ShareContext(TENS)
    context.load(0, (10, 14, ACKED, 1), (30, 39, ACKED, 1))
    assert context.partition.next_fetch_offset() == 0
    assert context.acquire(max_records=10, batches=1) == [(0, 9, 1)]
    assert context.partition.next_fetch_offset() == 15
    assert context.acquire(max_records=10, batches=1) == [(15, 19, 1)]
    assert context.acquire(max_records=100) == [(20, 29, 1), (40, 99, 1)]
    assert context.partition.gap_start_offset is None


def test_a_gap_without_records_is_passed() -> None:
    """Compaction has removed what was there, and others have what follows."""
    context = ShareContext([(20, 29), (30, 39)])
    context.load(0, (20, 29, 0, 1))
    assert context.acquire(max_records=1, batches=1) == [(20, 29, 2)]
    assert context.partition.next_fetch_offset() == 30
    context.acknowledge(20, 29)
    assert context.span == (30, 30)


def test_the_start_waits_for_the_gap() -> None:
    context = ShareContext(TENS)
    context.load(0, (0, 9, ACKED, 1), (20, 29, ACKED, 1))
    assert context.span == (10, 29)
    context.acquire(batches=1)
    context.acknowledge(10, 19)
    assert context.span == (30, 30)


def test_a_batch_of_the_log_in_a_gap_is_cut_where_it_ends() -> None:
    context = ShareContext([(0, 39)])
    context.load(5, (20, 29, 0, 1))
    assert context.acquire(max_records=1) == [(5, 19, 1)]
    assert context.acquire(max_records=12) == [(20, 29, 2), (30, 39, 1)]


@pytest.mark.parametrize(
    "batches", [[(0, 9, 0, 1)], [(15, 10, 0, 1)], [(10, 19, 0, 1), (15, 20, 0, 1)]]
)
def test_what_cannot_be_is_not_loaded(batches: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(ValueError, match="state batch"):
        ShareContext(TENS).load(10, *batches)
