"""When transactional ids come due: clocks that step, ids that change often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftrio.broker.coordinator.outcome import Now
from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.broker.coordinator.transactions.schedule import TransactionSchedule
from kraftrio.broker.coordinator.transactions.state import (
    NO_TIMEOUT_MS,
    TransactionMetadata,
    TransactionState,
)
from tests.unit.broker.coordinator.transactions.transaction_context import (
    START_WALL_MS,
    TIMEOUT_MS,
    Properties,
)

EXPIRATION_MS = Properties.transactional_id_expiration_ms
NOW = Now(5_000.0, START_WALL_MS)


def transaction(
    state: TransactionState, at_ms: int, transactional_id: str = "a"
) -> TransactionMetadata:
    return TransactionMetadata(
        transactional_id,
        ProducerIdentity(5, 0),
        TIMEOUT_MS,
        state,
        start_ms=at_ms,
        last_update_ms=at_ms,
    )


def due_in(changed: TransactionMetadata) -> float | None:
    """How long it takes until an id comes due that is scheduled now."""
    schedule = TransactionSchedule(Properties())
    schedule.set(changed, NOW)
    deadline_ms = schedule.next_deadline_ms()
    return None if deadline_ms is None else deadline_ms - NOW.monotonic_ms


@pytest.mark.parametrize(
    ("state", "age_ms", "delay_ms"),
    [
        (TransactionState.ONGOING, 0, TIMEOUT_MS),
        (TransactionState.ONGOING, 1_000, TIMEOUT_MS - 1_000),
        (TransactionState.ONGOING, TIMEOUT_MS + 1, 0),
        (TransactionState.ONGOING, -3_600_000, TIMEOUT_MS),  # the clock stepped back (G21)
        (TransactionState.EMPTY, 0, EXPIRATION_MS),
        (TransactionState.COMPLETE_COMMIT, 1_000, EXPIRATION_MS - 1_000),
        (TransactionState.COMPLETE_ABORT, -EXPIRATION_MS, EXPIRATION_MS),
        (TransactionState.PREPARE_COMMIT, 0, None),
        (TransactionState.PREPARE_ABORT, 0, None),
    ],
)
def test_what_comes_due_by_state_and_age(
    state: TransactionState, age_ms: int, delay_ms: float | None
) -> None:
    assert due_in(transaction(state, START_WALL_MS - age_ms)) == delay_ms


def test_an_id_without_an_epoch_expires_too() -> None:
    """No coordinator of ours writes one, but it must not stay for ever (G21)."""
    idle = replace(transaction(TransactionState.EMPTY, 0), producer=ProducerIdentity(5))
    assert due_in(idle) == 0


def test_a_two_phase_transaction_is_never_due() -> None:
    ongoing = transaction(TransactionState.ONGOING, START_WALL_MS)
    assert due_in(replace(ongoing, timeout_ms=NO_TIMEOUT_MS)) is None


def test_ids_come_due_in_order_and_once() -> None:
    schedule = TransactionSchedule(Properties())
    for name, age_ms in (("new", 0), ("old", 9_000), ("older", 9_500)):
        schedule.set(transaction(TransactionState.ONGOING, START_WALL_MS - age_ms, name), NOW)
    schedule.forget("older")
    later = Now(NOW.monotonic_ms + TIMEOUT_MS, NOW.wall_ms + TIMEOUT_MS)
    assert [schedule.pop_due(later) for _ in range(3)] == ["old", "new", None]
    schedule.set_retry("old", later)
    assert schedule.pop_due(later) is None
    schedule.set_soon("old", later)
    assert schedule.pop_due(later) == "old"
    assert schedule.pop_due(Now(later.monotonic_ms + 3_600_000, 0)) is None


def test_a_busy_id_leaves_nothing_behind() -> None:
    """A million transactions of one id between two time-outs are one entry of the heap."""
    schedule = TransactionSchedule(Properties())
    for i in range(2_000):
        now = Now(NOW.monotonic_ms + i, NOW.wall_ms + i)
        schedule.set(transaction(TransactionState.ONGOING, now.wall_ms), now)
        schedule.set(transaction(TransactionState.COMPLETE_COMMIT, now.wall_ms), now)
    assert [len(queue._heap) for queue in (schedule._soon, schedule._expiries)] == [1, 1]
