"""Random faults find bugs of small programs: which seed does is written down and played here.

`TEST_PLANTED_BUGS=search` plays the whole search instead, which takes minutes.
"""

from __future__ import annotations

import os

import pytest

from kraftrio.testing.fault_plan import drawn
from tests.unit.kraftrio.testing.planted_bugs.scene import BUGS
from tests.unit.kraftrio.testing.planted_bugs.search import MOST_SEEDS, load, search

_MOST_FAULTS = 3
_FOUND = load()


def test_there_are_twenty() -> None:
    assert len(BUGS) >= 20
    assert set(_FOUND) == set(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    """Its program passes without faults and fails with few; the right program passes with them."""
    bug = BUGS[name]
    searched = os.environ.get("TEST_PLANTED_BUGS") == "search"
    found = search(bug) if searched else _FOUND[name]
    assert found is not None, f"not found with {MOST_SEEDS} seeds"
    assert 1 <= len(found.faults) <= _MOST_FAULTS
    plan = drawn(found.seed, bug.brokers)
    again = f"the faults of seeds are others now: run `python -m {search.__module__} {name}`"
    assert all(fault in plan for fault in found.faults), again
    assert bug.fails(found.seed, found.faults, is_broken=True) is not None, bug.wrong
    assert bug.fails(found.seed, found.faults, is_broken=False) is None
