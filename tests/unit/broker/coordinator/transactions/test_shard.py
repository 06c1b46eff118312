"""The shard of transactions: the way of one transactional id through its states."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.outcome import Now
from kraftrio.broker.coordinator.transactions.ports import NEEDS_PRODUCER_ID, EndCause
from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.coordinator.transactions.transaction_context import (
    ID,
    P0,
    P1,
    TIMEOUT_MS,
    Properties,
    TransactionContext,
)

EXPIRATION_MS = Properties.transactional_id_expiration_ms

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def begun(**settings: object) -> tuple[TransactionContext, tuple[int, int]]:
    """A producer with an open transaction on one partition."""
    context = TransactionContext(**settings)  # type: ignore[arg-type]
    producer = context.init()
    assert context.add(producer, version=5) is ErrorCode.NONE
    return context, producer


# --- the course of a transaction ---


def test_commit_with_version_2_goes_on_with_the_next_epoch() -> None:
    """The client has its answer once the decision is committed, markers come later."""
    context, producer = begun()
    assert context.verify(producer, P0, P1) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert context.end(producer) == (producer[0], 1)
    assert context.state() == "PrepareCommit"
    assert context.end(producer) is CONCURRENT
    end = context.write_markers()
    assert (end.producer_id, end.producer_epoch, end.commit) == (producer[0], 1, True)
    assert (end.coordinator_partition, end.coordinator_epoch) == (3, 7)
    assert (end.transaction_version, end.partitions) == (2, {P0})
    assert end.cause is EndCause.REQUESTED
    assert context.state() == "CompleteCommit"
    assert context.end(producer) == (producer[0], 1), "a retry has the same answer"
    assert context.add(producer) is ErrorCode.PRODUCER_FENCED
    assert context.add((producer[0], 1)) is ErrorCode.NONE


def test_abort_with_version_1_keeps_the_epoch() -> None:
    context = TransactionContext(transaction_version=1)
    producer = context.init()
    assert context.add(producer, P0, P1) is ErrorCode.NONE
    context.end(producer, commit=False, version=4)
    end = context.write_markers()
    assert (end.producer_epoch, end.commit, end.transaction_version) == (0, False, 0)
    assert context.state() == "CompleteAbort"
    assert context.end(producer, commit=True, version=4) is ErrorCode.INVALID_TXN_STATE


def test_abort_of_nothing_needs_no_markers() -> None:
    """Under version 2 a client that does not know whether it began may abort (KIP-890)."""
    context = TransactionContext()
    producer = context.init()
    assert context.end(producer, commit=False) == (producer[0], 1)
    assert context.ends == []
    assert context.state() == "CompleteAbort"


def test_partitions_added_together_build_on_each_other() -> None:
    """Brokers that add for one producer at the same time need not come again."""
    context = TransactionContext()
    producer = context.init()
    context.hold_commits = True
    assert context.add(producer, P0, version=5) is ErrorCode.NONE
    assert context.add(producer, P1, version=5) is ErrorCode.NONE
    assert context.add(producer, P0, version=5) is ErrorCode.NONE
    assert context.end(producer) is CONCURRENT
    assert context.state() == "Empty"
    context.commit()
    assert context.verify(producer, P0, P1) == [ErrorCode.NONE, ErrorCode.NONE]


# --- InitProducerId ---


def test_new_producer_aborts_an_open_transaction() -> None:
    """It comes again until that is done, and fences the former one with one epoch each (G02)."""
    context, producer = begun()
    assert context.init() is CONCURRENT
    assert context.state() == "PrepareAbort"
    assert context.init() is CONCURRENT
    assert context.write_markers().cause is EndCause.FENCED
    assert context.producer() == (producer[0], 1)
    assert context.init() == (producer[0], 2)
    assert context.end(producer) is ErrorCode.PRODUCER_FENCED


def test_request_without_a_producer_id_at_hand_changes_nothing() -> None:
    context = TransactionContext(producer_ids=0)
    assert context.init() is NEEDS_PRODUCER_ID
    assert context.log == []
    context.producer_ids = 1
    assert context.init()[1] == 0


@pytest.mark.parametrize(
    ("is_enabled", "flags", "answer"),
    [
        (False, {"enable_2pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (False, {"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
        (True, {"enable_2pc": True, "keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
        (True, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (True, {"enable_2pc": True}, None),
    ],
)
def test_two_phase_commit_where_it_is_allowed(
    is_enabled: bool, flags: dict[str, Any], answer: ErrorCode | None
) -> None:
    """As far as Kafka 4.3 has it (KIP-939): such a transaction has no time-out."""
    context = TransactionContext(Properties(transaction_two_phase_commit_enable=is_enabled))
    producer = context.init(timeout_ms=0, version=6, **flags)
    if answer is not None:
        assert producer is answer
        return
    assert context.shard.describe(ID).transaction_timeout_ms == 2**31 - 1
    assert context.add(producer) is ErrorCode.NONE
    context.advance(100 * TIMEOUT_MS)
    assert context.state() == "Ongoing"


# --- time ---


def test_time_out_aborts_with_a_higher_epoch() -> None:
    context, producer = begun()
    context.advance(TIMEOUT_MS)
    assert context.state() == "PrepareAbort"
    end = context.write_markers()
    assert (end.producer_epoch, end.cause) == (1, EndCause.TIMED_OUT)
    assert context.end(producer) is ErrorCode.INVALID_TXN_STATE, "a retry of another end"
    context.advance(context.properties.transactional_id_expiration_ms)
    assert context.state() == "absent"
    assert list(context.stored())[-1] == ID


def test_time_out_waits_for_a_producer_id_where_epochs_are_used_up() -> None:
    """The producer goes on with it, since no client gets the last epoch."""
    context, producer = begun()
    context.set_epoch(32766)
    context.producer_ids = 0
    context.advance(TIMEOUT_MS)
    assert context.state() == "Ongoing"
    context.producer_ids = 1
    context.advance(1_000)
    assert context.write_markers().producer_epoch == 32767
    last = (producer[0], 32766)
    assert context.end(last, commit=False) == (context.producer()[0], 0)
    assert context.producer()[0] != producer[0]


def test_expired_ids_go_a_hundred_at_a_time() -> None:
    """Each step appends one batch; the clock of the log does not matter any more."""
    context = TransactionContext()
    for i in range(250):
        context.init(f"id-{i}")
    context.now = Now(context.now.monotonic_ms + EXPIRATION_MS, 0)
    batches = []
    while (due_ms := context.shard.next_deadline_ms()) is not None:
        assert due_ms <= context.now.monotonic_ms
        for outcome in context.shard.on_deadline(context.now):
            batches.append(len(outcome.records))
            context.carry_out(outcome)
    assert batches == [100, 100, 50]
    assert context.shard.transactions() == []
    assert context.shard.statistics() == {"transactional_ids": 0, "moves": 0}
    assert context.init("id-0")[1] == 0


def test_an_id_that_is_used_again_does_not_expire() -> None:
    context = TransactionContext()
    context.init()
    for _ in range(3):
        context.advance(EXPIRATION_MS - 1)
        context.init()
    context.advance(EXPIRATION_MS - 1)
    assert context.state() == "Empty"
    context.advance(1)
    assert context.state() == "absent"


# --- failures ---


@pytest.mark.parametrize("is_ongoing", [True, False])
def test_own_step_that_cannot_be_appended_is_tried_again(is_ongoing: bool) -> None:
    """An abort for the time-out, and an expiry: nobody else would ask for them."""
    context, _ = begun()
    if not is_ongoing:
        context.init()
        context.write_markers()
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    context.advance(TIMEOUT_MS if is_ongoing else EXPIRATION_MS)
    context.advance(10_000)
    assert context.state() == ("Ongoing" if is_ongoing else "CompleteAbort")
    context.append_error = ErrorCode.NONE
    context.advance(1_000)
    assert context.state() == ("PrepareAbort" if is_ongoing else "absent")


def test_failed_addition_leaves_the_one_that_it_would_build_on() -> None:
    """That one is in the log: what comes next must not forget its partition, nor its time-out."""
    context = TransactionContext()
    producer = context.init()
    context.hold_commits = True
    assert context.add(producer, P0, version=5) is ErrorCode.NONE
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert context.add(producer, P1, version=5) is ErrorCode.NOT_ENOUGH_REPLICAS
    context.append_error = ErrorCode.NONE
    assert context.init() is CONCURRENT
    assert context.add(producer, P1, version=5) is ErrorCode.NONE
    context.commit()
    assert context.verify(producer, P0, P1) == [ErrorCode.NONE, ErrorCode.NONE]
    context.advance(TIMEOUT_MS)
    context.commit()
    assert context.state() == "PrepareAbort"


def test_late_addition_does_not_undo_the_one_that_builds_on_it() -> None:
    """Nobody waits for the first one any more, so that it is made after the second."""
    context = TransactionContext()
    producer = context.init()
    context.hold_commits = True
    context.add(producer, P0, version=5)
    context.give_up()
    context.add(producer, P1, version=5)
    context.commit()
    context.advance(0)
    assert context.verify(producer, P0, P1) == [ErrorCode.NONE, ErrorCode.NONE]


def test_records_below_the_high_watermark_count() -> None:
    """However few replicas were in sync: the next leader would find them in its log."""
    context, producer = begun(hold_commits=False)
    context.hold_commits = True
    context.end(producer)
    context.give_up(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert context.state() == "PrepareCommit"
    assert len(context.ends) == 1


def test_markers_of_an_earlier_end_complete_nothing() -> None:
    """Word of them may come late, when the id is ending its next transaction."""
    context, producer = begun()
    context.end(producer)
    first = context.write_markers()
    context.add((producer[0], 1), version=5)
    context.end((producer[0], 1))
    late = context.shard.markers_written(ID, first.producer_id, first.producer_epoch, context.now)
    assert not late
    assert context.state() == "PrepareCommit"
    context.write_markers()
    again = context.shard.markers_written(ID, producer[0], 2, context.now)
    assert not again
    assert not context.shard.markers_written("other", producer[0], 2, context.now)


def test_failed_append_leaves_the_id_as_it_was() -> None:
    """No epoch is burnt by a fence that was not written (G16)."""
    context, producer = begun()
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert context.init() is ErrorCode.NOT_ENOUGH_REPLICAS
    assert context.state() == "Ongoing"
    assert context.producer() == producer
    context.append_error = ErrorCode.NONE
    assert context.end(producer) == (producer[0], 1)


def test_next_leader_goes_on_with_a_decided_transaction() -> None:
    context, producer = begun()
    context.end(producer)
    context.reload(leader_epoch=9)
    (end,) = context.ends
    assert (end.coordinator_epoch, end.cause, end.commit) == (9, EndCause.TAKEN_OVER, True)
    context.write_markers()
    assert context.end(producer) == (producer[0], 1)
