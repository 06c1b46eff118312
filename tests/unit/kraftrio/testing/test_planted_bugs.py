"""Random faults find bugs of small programs: which seed does is written down, and played first.

Where that shows the bug no more, since a client or a broker has come to do things at other times,
the seeds are searched; so they are for all bugs with `TEST_PLANTED_BUGS=search`.
"""

from __future__ import annotations

import os

import pytest

from kraftrio.testing.faults.plan import drawn
from tests.unit.kraftrio.testing.planted_bugs.scene import BUGS, Bug
from tests.unit.kraftrio.testing.planted_bugs.search import MOST_SEEDS, Found, load, search

_MOST_FAULTS = 3
_FOUND = load()
_SEARCHES = os.environ.get("TEST_PLANTED_BUGS") == "search"


def test_there_are_twenty() -> None:
    assert len(BUGS) >= 20
    assert set(_FOUND) == set(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    """Its program passes without faults and fails with few; the right program passes with them."""
    bug = BUGS[name]
    found: Found | None = _FOUND[name]
    if _SEARCHES or not _shows(bug, _FOUND[name]):
        found = search(bug)
    assert found is not None, f"not found with {MOST_SEEDS} seeds: {bug.wrong}"
    assert 1 <= len(found.faults) <= _MOST_FAULTS
    assert bug.fails(found.seed, found.faults, is_broken=False) is None


def _shows(bug: Bug, found: Found) -> bool:
    plan = drawn(found.seed, bug.brokers)
    return all(fault in plan for fault in found.faults) and (
        bug.fails(found.seed, found.faults, is_broken=True) is not None
    )
