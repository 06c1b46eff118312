"""The simulation notices deliberate breaches of the protocol: each within some seeds.

What random faults meet too rarely for that is left to the scripts (`test_scenarios`,
`test_quorum_scenarios`), which are played with these breaches as well.
"""

from __future__ import annotations

import pytest

from tests.sim.catches import SEEDS, first_catch, known_catches
from tests.sim.mutations import MUTATIONS

_LEFT_TO_SCRIPTS = {
    "emptied-broker-makes-its-logs",
    "epochs-are-not-kept",
    "no-fencing-of-old-leader-epochs",
    "follower-joins-from-a-full-disk",
    "leader-stays-on-a-full-disk",
    "quorum-counts-what-is-not-synced",
    "truncation-by-high-watermark",
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in _LEFT_TO_SCRIPTS])
def test_mutation_is_caught(name: str) -> None:
    """A cluster with this mistake fails on some seed."""
    outcome = first_catch(name, known_catches().get(name, []), SEEDS)
    assert outcome is not None, f"{name}: no seed of {SEEDS} notices"
    assert outcome.failure


def test_known_catches_are_of_breaches_that_there_are() -> None:
    """A breach that is renamed or gone leaves no seeds behind."""
    assert not known_catches().keys() - MUTATIONS.keys()
