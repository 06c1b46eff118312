"""The bound of what is held for connections is checked as it is meant."""

from __future__ import annotations

import pytest

from kraftrio.broker.server.memory_budget import FREE_BYTES, MemoryBudget
from kraftrio.testing.simulation.world import SimulationFailure
from tests.sim.memory_invariants import check_budget


def _nothing() -> None: ...


def test_what_a_budget_grants_is_within_the_bound() -> None:
    budget = MemoryBudget(4 * FREE_BYTES)
    for _ in range(5):
        budget.share(_nothing, _nothing).take(3 * FREE_BYTES)
        check_budget("answers", budget)


def test_what_is_held_without_asking_is_noticed() -> None:
    budget = MemoryBudget(4 * FREE_BYTES)
    for _ in range(2):
        budget.share(_nothing, _nothing).hold(3 * FREE_BYTES)
    check_budget("answers", budget)
    for _ in range(2):
        budget.share(_nothing, _nothing).hold(3 * FREE_BYTES)
    with pytest.raises(SimulationFailure, match="is the limit"):
        check_budget("answers", budget)
