"""Share groups (KIP-932) whose members come and go while brokers die, and broken promises.

TEST_SIM_GROUP_SEEDS sets how many seeds are run (12), TEST_SIM_FIRST_SEED where they begin (1).
"""

from __future__ import annotations

import os
from collections import Counter
from unittest import mock

import pytest

from tests.sim.share_group_mutations import SHARE_MUTATIONS
from tests.sim.share_groups import run_share_group

_FIRST_SEED = int(os.environ.get("TEST_SIM_FIRST_SEED", "1"))
_LAST_SEED = _FIRST_SEED + int(os.environ.get("TEST_SIM_GROUP_SEEDS", "12")) - 1
_BUNCH = 4
_SEEDS_FOR_A_BREACH = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(_FIRST_SEED, _LAST_SEED + 1, _BUNCH))
def test_random_share_groups(first: int) -> None:
    """One member has a record at a time, and each comes to its end, delivered often enough."""
    counts: Counter[str] = Counter()
    for seed in range(first, min(first + _BUNCH, _LAST_SEED + 1)):
        result = run_share_group(seed)
        assert result.failure is None, f"seed {seed}: {result.failure}"
        counts += result.counts
    assert counts["settled"] > 100
    assert counts["again"] and counts["released"] and counts["renewed"]


def test_a_seed_is_one_history() -> None:
    """So that what a seed finds can be looked at."""
    assert run_share_group(2).digest == run_share_group(2).digest != ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SHARE_MUTATIONS)
def test_breaches_are_noticed(name: str) -> None:
    """Each within some seeds; a kinder simulation would prove little."""
    patches = [mock.patch.object(*patch) for patch in SHARE_MUTATIONS[name]()]
    for patch in patches:
        patch.start()
    try:
        found = any(run_share_group(seed).failure for seed in range(_SEEDS_FOR_A_BREACH))
    finally:
        for patch in patches:
            patch.stop()
    assert found, f"{_SEEDS_FOR_A_BREACH} seeds do not notice {name}"
