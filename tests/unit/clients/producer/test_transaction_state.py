"""The core of a producer's transactions: which moves are legal, what fails it, what may be sent."""

from __future__ import annotations

import pytest

from kraftrio.clients.errors import (
    FatalProducerError,
    KafkaClientError,
    ProducerFencedError,
    RecordTooLargeError,
    TimedOutError,
    TransactionAbortedError,
    TransactionStateError,
    error_for,
)
from kraftrio.clients.producer.transaction_state import (
    LEGAL_MOVES,
    Transactions,
    TransactionState,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

S = TransactionState
A, B = TopicPartition("a", 0), TopicPartition("b", 1)

# How each input moves each state that it is for; in every other state it must not come.
MOVES = {
    "on_initialized": {S.UNINITIALIZED: S.READY},
    "begin": {S.READY: S.OPEN},
    "begin_flush": {S.OPEN: S.FLUSHING},
    "begin_commit": {S.FLUSHING: S.COMMITTING},
    "begin_abort": {
        S.OPEN: S.ABORTING,
        S.FLUSHING: S.ABORTING,
        S.FAILED: S.ABORTING,
    },
    "on_ended": {S.COMMITTING: S.READY, S.ABORTING: S.READY},
    "on_abort_unanswered": {
        S.OPEN: S.FAILED,
        S.FLUSHING: S.FAILED,
        S.COMMITTING: S.FAILED,
        S.ABORTING: S.FAILED,
    },
    "fail": {
        S.OPEN: S.FAILED,
        S.FLUSHING: S.FAILED,
        S.COMMITTING: S.FAILED,
        S.ABORTING: S.FAILED,
        S.FAILED: S.FAILED,
        S.FATAL: S.FATAL,
    },
    "fail_fatally": dict.fromkeys(S, S.FATAL),
}


def core_in(state: TransactionState, version: int = 2) -> Transactions:
    """Return a core that has come to a state by legal moves."""
    core = Transactions("t")
    if state is S.UNINITIALIZED:
        return core
    core.on_initialized(version)
    steps = {
        S.READY: (),
        S.OPEN: (core.begin,),
        S.FLUSHING: (core.begin, core.begin_flush),
        S.COMMITTING: (core.begin, core.begin_flush, core.begin_commit),
        S.FAILED: (core.begin, lambda: core.fail(TimedOutError())),
        S.ABORTING: (core.begin, core.begin_abort),
        S.FATAL: (lambda: core.fail_fatally(ProducerFencedError()),),
    }
    for step in steps[state]:
        step()
    assert core.state is state
    return core


@pytest.mark.parametrize("name", MOVES)
def test_each_input_makes_its_moves_and_no_other(name: str) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "on_initialized": (2,),
        "fail": (TimedOutError(),),
        "fail_fatally": (ProducerFencedError(),),
    }
    for state in S:
        core = core_in(state)
        after = MOVES[name].get(state)
        if after is None:
            with pytest.raises(AssertionError):
                getattr(core, name)(*arguments.get(name, ()))
            assert core.state is state
        else:
            getattr(core, name)(*arguments.get(name, ()))
            assert core.state is after
            assert after is state or after in LEGAL_MOVES[state]


def test_every_state_but_the_last_leads_on_and_all_are_reached() -> None:
    assert set(LEGAL_MOVES) == set(S)
    assert {state for moves in LEGAL_MOVES.values() for state in moves} == {*S} - {S.UNINITIALIZED}
    assert [state for state, moves in LEGAL_MOVES.items() if not moves] == [S.FATAL]
    assert all(S.FATAL in moves for state, moves in LEGAL_MOVES.items() if state is not S.FATAL)


@pytest.mark.parametrize(
    ("state", "refusal"),
    [
        (S.UNINITIALIZED, TransactionStateError),
        (S.READY, TransactionStateError),
        (S.OPEN, None),
        (S.FLUSHING, TransactionStateError),
        (S.COMMITTING, TransactionStateError),
        (S.FAILED, TransactionAbortedError),
        (S.ABORTING, TransactionStateError),
        (S.FATAL, ProducerFencedError),
    ],
)
def test_records_are_accepted_while_it_is_open(
    state: TransactionState, refusal: type[KafkaClientError] | None
) -> None:
    core = core_in(state)
    if refusal is None:
        core.check_may_send(core.number)
    else:
        with pytest.raises(refusal):
            core.check_may_send(core.number)


def test_who_waited_for_one_transaction_is_not_let_into_the_next() -> None:
    core = core_in(S.OPEN)
    number = core.number
    core.begin_abort()
    core.on_ended()
    core.begin()
    with pytest.raises(TransactionAbortedError, match="ended meanwhile"):
        core.check_may_send(number)
    core.check_may_send(core.number)


@pytest.mark.parametrize(
    ("state", "refusal"),
    [
        (S.READY, None),
        (S.OPEN, TransactionStateError),
        (S.FAILED, TransactionStateError),
        (S.ABORTING, TransactionStateError),
        (S.FATAL, ProducerFencedError),
    ],
)
def test_one_transaction_at_a_time(
    state: TransactionState, refusal: type[KafkaClientError] | None
) -> None:
    core = core_in(state)
    if refusal is None:
        core.check_may_begin()
    else:
        with pytest.raises(refusal):
            core.check_may_begin()


def test_before_version_2_a_partition_waits_until_the_coordinator_knows_it() -> None:
    core = core_in(S.OPEN, version=1)
    assert [core.add_partition(A), core.add_partition(A), core.add_partition(B)] == [
        True,
        False,
        True,
    ]
    assert not core.may_send("a", 0)
    assert core.take_new_partitions() == [A, B]
    assert core.take_new_partitions() == []
    core.on_partitions_added([A])
    assert core.may_send("a", 0) and not core.may_send("b", 1)
    assert not core.add_partition(A)
    assert core.is_started
    core.begin_abort()
    core.on_ended()
    core.begin()
    assert not core.may_send("a", 0) and not core.is_started


def test_from_version_2_on_a_sent_batch_starts_the_transaction() -> None:
    core = core_in(S.OPEN)
    assert not core.add_partition(A) and core.may_send("a", 0)
    assert not core.is_started, "nothing was sent: there is nothing to end"
    core.on_sent()
    assert core.is_started


@pytest.mark.parametrize(
    ("code", "is_fatal"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),  # the abort shows whether it is fenced (KIP-588)
        (ErrorCode.INVALID_TXN_STATE, False),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, False),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.PRODUCER_FENCED, True),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
    ],
)
def test_a_batch_that_is_given_up_fails_the_transaction(code: ErrorCode, is_fatal: bool) -> None:
    core = core_in(S.OPEN)
    cause = error_for(code)
    failure = core.on_batch_failed(cause, has_sequence=True)
    assert failure.code == code
    assert isinstance(failure, FatalProducerError if is_fatal else TransactionAbortedError)
    assert core.state is (S.FATAL if is_fatal else S.FAILED)
    assert cause in (failure, failure.__cause__)
    with pytest.raises(type(failure)) as raised:
        core.raise_failure()
    assert raised.value.__cause__ is failure.__cause__


def test_the_first_failure_is_raised_for_everything_in_the_transaction() -> None:
    core = core_in(S.OPEN)
    first = core.on_batch_failed(RecordTooLargeError("too large"), has_sequence=False)
    assert core.on_batch_failed(TimedOutError(), has_sequence=False) is first
    assert not core.needs_new_epoch
    assert core.fail(TimedOutError()) is first


def test_a_batch_with_a_sequence_that_is_given_up_ends_the_epoch() -> None:
    core = core_in(S.ABORTING)
    error = TransactionAbortedError("aborted")
    assert core.on_batch_failed(error, has_sequence=True) is error
    assert core.state is S.ABORTING and core.needs_new_epoch
    core.on_ended()
    assert not core.needs_new_epoch
