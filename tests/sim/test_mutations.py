"""The simulation notices deliberate breaches of the protocol: each within some seeds."""

from __future__ import annotations

import pytest

from tests.sim.mutations import MUTATIONS, first_catch

_SEEDS = range(1, 201)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_caught(name: str) -> None:
    """A cluster with this mistake fails on some seed."""
    outcome = first_catch(name, _SEEDS)
    assert outcome is not None, f"{name}: no seed of {_SEEDS} notices"
    assert outcome.failure
