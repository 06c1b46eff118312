"""Groups of members that come and go while coordinators die, and breaches of what those promise.

Consumer groups (KIP-848), and streams groups (KIP-1071) by active and standby tasks.

TEST_SIM_GROUP_SEEDS sets how many seeds are run (12), TEST_SIM_FIRST_SEED where they begin (1).
"""

from __future__ import annotations

import os
from unittest import mock

import pytest

from tests.sim.consumer_group_mutations import GROUP_MUTATIONS
from tests.sim.consumer_groups import run_group
from tests.sim.group_kinds import CONSUMER, STREAMS, GroupKind
from tests.sim.streams_group_mutations import STREAMS_MUTATIONS

_FIRST_SEED = int(os.environ.get("TEST_SIM_FIRST_SEED", "1"))
_LAST_SEED = _FIRST_SEED + int(os.environ.get("TEST_SIM_GROUP_SEEDS", "12")) - 1
_BUNCH = 4
_SEEDS_TO_SEE_IT = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [CONSUMER, STREAMS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("first", range(_FIRST_SEED, _LAST_SEED + 1, _BUNCH))
def test_random_groups(first: int, kind: GroupKind) -> None:
    """A partition has one owner, commits never go back, and everybody comes to its target."""
    commits = 0
    for seed in range(first, min(first + _BUNCH, _LAST_SEED + 1)):
        result = run_group(seed, kind)
        assert result.failure is None, f"seed {seed}: {result.failure}"
        commits += result.commits
    assert commits > 100


@pytest.mark.parametrize("kind", [CONSUMER, STREAMS], ids=lambda kind: kind.name)
def test_paused_members_are_replaced(kind: GroupKind) -> None:
    """Others get what a member had that was paused for longer than its session: in most seeds."""
    assert any(run_group(seed, kind).take_overs for seed in range(_SEEDS_TO_SEE_IT))


def test_a_seed_is_one_history() -> None:
    """So that what a seed finds can be looked at."""
    assert run_group(3).digest == run_group(3).digest != ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((CONSUMER, name) for name in GROUP_MUTATIONS),
        *((STREAMS, name) for name in STREAMS_MUTATIONS),
    ],
    ids=lambda one: one.name if isinstance(one, GroupKind) else one,
)
def test_breaches_are_noticed(kind: GroupKind, name: str) -> None:
    """Each within some seeds; a kinder simulation would prove little."""
    for seed in range(_SEEDS_TO_SEE_IT):
        if _run_with_breach(kind, name, seed) is not None:
            return
    pytest.fail(f"{_SEEDS_TO_SEE_IT} seeds do not notice {name}")


def _run_with_breach(kind: GroupKind, name: str, seed: int) -> str | None:
    mutations = GROUP_MUTATIONS if kind is CONSUMER else STREAMS_MUTATIONS
    patches = [mock.patch.object(*patch) for patch in mutations[name]()]
    for patch in patches:
        patch.start()
    try:
        return run_group(seed, kind).failure
    finally:
        for patch in patches:
            patch.stop()
