"""Where the invariants hold committed data to end, and what they look at again later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.transaction_invariants import Ending, Span, StableData, TransactionInvariants

ENDING = Ending(2002, 1, commit=False)


def test_decided_transactions_hold_back_until_their_marker_is_committed() -> None:
    """The oldest one counts, as far as the log still has something of it."""
    known = StableData(end=30, open={9: 25}, spans=[Span(12, 11, 3), Span(16, 13, 3)])
    assert known.last_stable_offset(30) == 25, "one is open"
    assert known.last_stable_offset(20) == 20
    assert known.last_stable_offset(16) == 13
    assert known.last_stable_offset(12) == 11
    removed = {13: 15}
    assert known.last_stable_offset(16, lambda span: removed[span.first_offset]) == 15
    assert known.last_stable_offset(16, lambda span: span.marker_offset) == 16


def offline_states() -> Any:
    """The coordinator's partition, with a record committed that no other replica knows to be."""
    topic_partition = TopicPartition("__transaction_state", 0)
    return SimpleNamespace(topic_partition=topic_partition, log=SimpleNamespace(high_watermark=1))


@pytest.fixture
def invariants() -> TransactionInvariants:
    """With a marker that has just been written."""
    made = TransactionInvariants()
    made._new_markers.append(("debits-0 on n1", ENDING))
    return made


def test_a_marker_without_a_decision_is_a_failure(invariants: TransactionInvariants) -> None:
    with pytest.raises(SimulationFailure, match="not prepared"):
        invariants.finish()


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_decision_that_cannot_be_read_yet_is_looked_for_at_the_end(
    invariants: TransactionInvariants, *, is_prepared: bool
) -> None:
    invariants.on_offline(offline_states(), (b"id", 0))
    invariants.finish()
    if is_prepared:
        invariants._prepared.add(ENDING)
        invariants.finish_all()
    else:
        with pytest.raises(SimulationFailure, match="not prepared"):
            invariants.finish_all()
