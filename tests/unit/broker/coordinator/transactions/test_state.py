"""States of transactional ids: every legal move, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.broker.coordinator.transactions.state import (
    LEGAL_MOVES,
    NO_TIMEOUT_MS,
    STATES_BY_NAME,
    TransactionMetadata,
    TransactionState,
)
from tests.unit.broker.coordinator.transactions.transaction_context import P0, P1

S = TransactionState
Move: TypeAlias = Callable[[TransactionMetadata], TransactionMetadata]

NEW = TransactionMetadata("app-1", ProducerIdentity(5, 3), 60_000)

MOVES: dict[TransactionState, Move] = {
    S.EMPTY: lambda before: before.emptied(before.producer, 30_000, 9),
    S.ONGOING: lambda before: before.with_partitions([P1], 2, 9),
    S.PREPARE_COMMIT: lambda before: before.ending(
        before.producer, commit=True, client_version=2, now_ms=9
    ),
    S.PREPARE_ABORT: lambda before: before.ending(
        before.producer, commit=False, client_version=2, now_ms=9
    ),
    S.COMPLETE_COMMIT: lambda before: before.ended(9),
    S.COMPLETE_ABORT: lambda before: before.ended(9),
    S.DEAD: lambda before: before.expired(),
}


@pytest.mark.parametrize("before", list(S))
@pytest.mark.parametrize("after", list(MOVES))
def test_legal_moves_are_made_and_others_are_our_bug(
    before: TransactionState, after: TransactionState
) -> None:
    transaction = replace(NEW, state=before)
    if after in LEGAL_MOVES[before]:
        assert MOVES[after](transaction).state is after
        return
    if before.is_prepared and after in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        assert MOVES[after](transaction).state is not after, "it ends as it was decided"
        return
    with pytest.raises(AssertionError, match="app-1"):
        MOVES[after](transaction)


def test_a_transaction_keeps_its_start_and_partitions_until_it_has_ended() -> None:
    ongoing = NEW.with_partitions([P0], 2, 100).with_partitions([P1], 2, 200)
    assert (ongoing.start_ms, ongoing.last_update_ms) == (100, 200)
    ending = ongoing.ending(ongoing.producer, commit=True, client_version=2, now_ms=300)
    assert ending.partitions == {P0, P1}
    ended = ending.ended(400)
    assert (ended.partitions, ended.start_ms, ended.last_update_ms) == (frozenset(), 100, 400)
    again = ended.with_partitions([P1], 0, 500)
    assert (again.partitions, again.start_ms, again.client_version) == ({P1}, 500, 0)


def test_epochs_never_fall() -> None:
    with pytest.raises(AssertionError, match="app-1"):
        NEW.emptied(NEW.producer._replace(epoch=2), 60_000, 9)


def test_names_are_those_of_kafkas_tools() -> None:
    assert sorted(STATES_BY_NAME) == [
        "CompleteAbort",
        "CompleteCommit",
        "Dead",
        "Empty",
        "Ongoing",
        "PrepareAbort",
        "PrepareCommit",
        "PrepareEpochFence",
    ]


def test_two_phase_transactions_have_no_time_out() -> None:
    assert NEW.has_timeout
    assert not replace(NEW, timeout_ms=NO_TIMEOUT_MS).has_timeout
