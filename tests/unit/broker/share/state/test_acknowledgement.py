"""Acknowledgements: what they may name, and that they count whole or not at all."""

from __future__ import annotations

import pytest

from kraftrio.broker.share.state.acknowledgement import AcknowledgedBatch
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.share.state.share_context import (
    ACCEPT,
    GAP,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    ShareContext,
)

STATE, REQUEST = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST


def context_with_two_members() -> ShareContext:
    context = ShareContext([(0, 9), (10, 19)])
    context.acquire("m1", max_records=10)
    context.acquire("m2", max_records=10)
    return context


def test_a_whole_batch() -> None:
    context = context_with_two_members()
    assert context.acknowledge(0, 9)
    assert context.span == (10, 19)


def test_a_type_for_each_offset() -> None:
    context = context_with_two_members()
    context.acknowledge(0, 4, ACCEPT, REJECT, GAP, RELEASE, RELEASE)
    assert context.states == "3-4 AVAILABLE x1, 5-9 ACQUIRED x1, 10-19 ACQUIRED x1"


def test_several_batches_at_once() -> None:
    context = ShareContext([(0, 9), (10, 19)])
    context.acquire(max_records=10)
    context.acquire(max_records=10)
    context.acknowledge(5, 14)
    assert context.states == "0-4 ACQUIRED x1, 5-9 ACKNOWLEDGED x1, " + (
        "10-14 ACKNOWLEDGED x1, 15-19 ACQUIRED x1"
    )


@pytest.mark.parametrize(
    ("first", "last", "code", "words"),
    [
        (20, 25, REQUEST, "first offset in request is past"),
        (15, 25, REQUEST, "last offset in request is past"),
        (10, 19, STATE, "not the owner of batch"),
        (5, 14, STATE, "not the owner"),
    ],
)
def test_what_is_refused(first: int, last: int, code: ErrorCode, words: str) -> None:
    context = context_with_two_members()
    before = context.states
    with pytest.raises(KafkaError, match=words) as caught:
        context.acknowledge(first, last)
    assert caught.value.code is code
    assert (context.states, context.write()) == (before, None)


def test_all_of_it_is_refused_with_one_batch() -> None:
    context = context_with_two_members()
    batches = [AcknowledgedBatch(0, 9, [ACCEPT]), AcknowledgedBatch(10, 19, [ACCEPT])]
    with pytest.raises(KafkaError):
        context.partition.acknowledge("m1", batches, 0)
    assert context.write() is None


def test_offsets_that_come_twice_in_one_acknowledgement() -> None:
    context = context_with_two_members()
    batches = [AcknowledgedBatch(0, 5, [ACCEPT]), AcknowledgedBatch(5, 9, [RELEASE])]
    with pytest.raises(KafkaError, match="could not be completed"):
        context.partition.acknowledge("m1", batches, 0)


def test_what_is_being_written_may_not_be_acknowledged_again() -> None:
    context = context_with_two_members()
    context.acknowledge(0, 9, written=None)
    with pytest.raises(KafkaError, match="not in the acquired state"):
        context.acknowledge(0, 9)
    context.acknowledge(10, 12, RELEASE, member_id="m2", written=None)
    with pytest.raises(KafkaError, match="offset is not acquired"):
        context.acknowledge(11, 11, member_id="m2")


def test_before_the_first_record() -> None:
    context = ShareContext([(5, 9)])
    context.acquire()
    context.acknowledge(0, 4)  # done with
    context.load(5)
    with pytest.raises(KafkaError, match="not found in the cache"):
        context.acknowledge(5, 9)


def test_offsets_before_the_start_are_ignored() -> None:
    context = context_with_two_members()
    context.acknowledge(0, 4)
    assert context.acknowledge(0, 9)
    assert context.span == (10, 19)
    assert not context.acknowledge(0, 9)


def test_a_renewed_lock_lasts_from_now_on() -> None:
    context = context_with_two_members()
    context.now_ms = LOCK_MS - 1
    assert not context.acknowledge(0, 9, RENEW)  # nothing to write
    context.now_ms = LOCK_MS
    context.partition.end_locks(context.now_ms)
    assert context.states == "0-9 ACQUIRED x1, 10-19 AVAILABLE x1"
    assert context.partition.next_lock_end_ms() == 2 * LOCK_MS - 1


def test_groups_may_forbid_to_renew() -> None:
    context = ShareContext([(0, 9)], may_renew=False)
    context.acquire()
    with pytest.raises(KafkaError, match="not enabled for the group") as caught:
        context.acknowledge(0, 9, RENEW)
    assert caught.value.code is STATE
