"""What clients report of groups: who may own and commit."""

from __future__ import annotations

import pytest

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.history import History

TP = TopicPartition("t", 0)


def test_a_partition_has_one_owner_in_a_generation() -> None:
    history = History()
    history.own("g", 1, TP, "a")
    history.own("g", 1, TP, "a")
    history.own("g", 2, TP, "b")
    with pytest.raises(SimulationFailure, match="to a and b in"):
        history.own("g", 1, TP, "b")


def test_who_owned_before_commits_no_more() -> None:
    """Once others were given a newer generation; a commit under way at that moment may count."""
    history = History()
    history.own("g", 3, TP, "a")
    before = history.newest_generation("g")
    history.own("g", 4, TP, "b")
    history.check_generation("g", 3, before)
    with pytest.raises(SimulationFailure, match="commit of generation 3"):
        history.check_generation("g", 3, history.newest_generation("g"))
    assert history.newest_generation("other") == -1
