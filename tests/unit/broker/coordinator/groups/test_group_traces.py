"""Scenarios of classic groups as text: traces/*.txt are commands with the effects that they have.

They document the protocol as much as they test it. See group_script.py for the commands,
tests/support/golden.py for how to rewrite the traces.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import golden
from tests.unit.broker.coordinator.groups.group_script import GroupScript

TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace(path: Path) -> None:
    """The commands have the effects that the file says."""
    golden.check(path, GroupScript().run)


def test_there_are_scenarios() -> None:
    """A folder that is not found would pass every test above."""
    assert len(TRACES) >= 3
