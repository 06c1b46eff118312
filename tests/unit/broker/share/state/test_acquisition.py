"""Which records a member acquires: modes, limits, and records that failed often."""

from __future__ import annotations

import pytest

from kraftrio.broker.share.state.acquisition import throttled_count
from tests.unit.broker.share.state.share_context import REJECT, RELEASE, ShareContext

TENS = [(start, start + 9) for start in range(0, 100, 10)]


def test_whole_batches_up_to_the_one_that_reaches_the_limit() -> None:
    context = ShareContext(TENS)
    assert context.acquire(max_records=15) == [(0, 19, 1)]
    assert context.acquire("m2", max_records=1) == [(20, 29, 1)]
    assert context.span == (0, 29)


def test_batches_of_about_the_size_that_the_client_wants() -> None:
    context = ShareContext(TENS)
    assert context.acquire(max_records=50, batch_size=15) == [(0, 19, 1), (20, 39, 1), (40, 49, 1)]


def test_record_limit_gives_exactly_so_many() -> None:
    """The rest of the batch is in flight, and free for the next one (KIP-1206)."""
    context = ShareContext(TENS)
    assert context.acquire(max_records=4, record_limit=True) == [(0, 3, 1)]
    assert context.span == (0, 9)
    assert context.acquire("m2", max_records=4, record_limit=True) == [(4, 7, 1)]
    assert context.acquire("m3", max_records=4, record_limit=True) == [(8, 9, 1), (10, 11, 1)]


def test_record_limit_takes_no_more_of_what_was_released() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.acknowledge(0, 9, RELEASE)
    assert context.acquire(max_records=4, record_limit=True) == [(0, 3, 2)]


def test_batch_optimized_takes_what_was_released_as_it_lies() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=10)
    context.acknowledge(0, 9, RELEASE)
    assert context.acquire(max_records=4) == [(0, 9, 2)]


def test_released_records_come_before_new_ones() -> None:
    context = ShareContext(TENS)
    context.acquire(max_records=30)
    context.acknowledge(10, 19, RELEASE)
    assert context.acquire("m2", max_records=15) == [(10, 19, 2), (30, 39, 1)]


def test_no_more_than_the_limit_is_in_flight() -> None:
    context = ShareContext(TENS, record_locks=25)
    assert context.acquire(max_records=500) == [(0, 29, 1)]  # the batch that reaches it comes whole
    assert context.acquire("m2") == []
    context.acknowledge(10, 14, RELEASE)
    assert context.acquire("m2") == [(10, 14, 2)]  # what was released within is no more
    context.acknowledge(0, 9)
    assert context.acquire("m3") == [(30, 39, 1)]


def test_a_gap_in_the_log_is_acquired_with_the_batches_around_it() -> None:
    """The client acknowledges what it did not find as gaps."""
    context = ShareContext([(0, 9), (20, 29)])
    assert context.acquire() == [(0, 29, 1)]


def test_the_first_record_may_not_be_the_first_offset() -> None:
    context = ShareContext([(5, 9)])
    assert context.acquire() == [(5, 9, 1)]
    assert context.span == (5, 9)


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (10, 5)])
def test_records_are_isolated_from_half_of_the_limit_on(limit: int, count: int) -> None:
    assert throttled_count(limit) == count


def test_a_batch_that_fails_often_is_halved_until_each_record_comes_alone() -> None:
    """Of six deliveries, the first three give the batch, then a half, a quarter, and one."""
    context = ShareContext([(0, 7), (8, 15)], delivery_count=6)
    for count in (1, 2, 3):
        assert context.acquire(max_records=8) == [(0, 7, count)]
        context.time_out()
    assert context.acquire() == [(0, 3, 4)]
    context.time_out()
    assert context.acquire() == [(0, 1, 5)]
    assert context.acquire("m2") == [(2, 3, 5)]
    assert context.acquire("m3") == [(4, 7, 4)]
    context.time_out()
    assert context.acquire() == [(0, 0, 6)]
    assert context.acquire("m2") == [(1, 1, 6)]


def test_records_that_fail_often_do_not_come_behind_others() -> None:
    context = ShareContext([(0, 7), (8, 15)], delivery_count=4)
    context.acquire("m1", max_records=8)
    context.acquire("m2", max_records=8)
    context.acknowledge(8, 15, RELEASE, member_id="m2")
    context.acquire("m2")
    context.acknowledge(8, 15, RELEASE, member_id="m2")
    context.acknowledge(0, 7, RELEASE)
    assert context.acquire() == [(0, 7, 2)]
    assert context.acquire("m2") == [(8, 11, 3)]


def test_aborted_records_are_not_acquired() -> None:
    context = ShareContext(TENS[:4], aborted=[(10, 19), (30, 39)])
    assert context.acquire() == [(0, 9, 1), (20, 29, 1)]
    write = context.write()
    assert write is not None
    assert [tuple(batch) for batch in write.batches] == [(10, 19, 4, 1), (30, 39, 4, 1)]
    context.acknowledge(0, 9)
    assert context.span == (20, 39)
    context.acknowledge(20, 29, REJECT)
    assert context.span == (40, 40)


def test_nothing_but_aborted_records() -> None:
    context = ShareContext(TENS[:2], aborted=[(0, 9), (10, 19)])
    assert context.acquire() == []
    assert context.span == (20, 20)
