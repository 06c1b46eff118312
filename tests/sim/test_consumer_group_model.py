"""The model of consumer groups finds each kind of mistake in a history made by hand."""

from __future__ import annotations

import pytest

from kraftrio.testing.simulation.world import SimulationFailure
from tests.sim.consumer_group_model import ConsumerGroupModel, Given

SESSION_S = 3.0


@pytest.fixture
def model() -> ConsumerGroupModel:
    """A group of two members on two partitions; `a` has both."""
    model = ConsumerGroupModel(2, SESSION_S)
    model.begin("a")
    model.begin("b")
    assert model.on_answer("a", 1, Given({0, 1}, set()), sent_s=0.9, node=1, now_s=1.0) == {0, 1}
    return model


def test_handed_over(model: ConsumerGroupModel) -> None:
    """Who lets go of a partition before the other one gets it may commit until then."""
    model.commit("a", 1, 5, sent_s=1.1, now_s=1.2)
    assert model.on_answer("a", 1, Given({0}, set()), sent_s=1.2, node=1, now_s=1.3) == set()
    assert model.unsettled() is not None
    model.release("a", {0})
    model.on_answer("a", 2, None, sent_s=1.4, node=1, now_s=1.5)
    model.on_answer("b", 2, Given({1}, set()), sent_s=1.5, node=1, now_s=1.6)
    model.find("b", 1, 5, sent_s=1.7)
    model.commit("b", 1, 6, sent_s=1.7, now_s=1.8)
    assert model.unsettled() is None
    assert model.state() == {"a": (2, [0], []), "b": (2, [1], [])}


def test_two_owners(model: ConsumerGroupModel) -> None:
    """While the former one was heard by the same coordinator, within its session."""
    with pytest.raises(SimulationFailure, match=r"b was given partition 1, which a has"):
        model.on_answer("b", 2, Given({1}, set()), sent_s=3.8, node=1, now_s=3.89)


@pytest.mark.parametrize(("node", "now_s"), [(1, 3.91), (2, 1.5)])
def test_taken_over(model: ConsumerGroupModel, node: int, now_s: float) -> None:
    """From one that was silent for a session, or heard by a former coordinator only."""
    model.on_answer("b", 2, Given({1}, set()), sent_s=now_s - 0.01, node=node, now_s=now_s)
    assert model.take_over_count == 1
    model.commit("a", 0, 9, sent_s=now_s + 1, now_s=now_s + 2)
    with pytest.raises(SimulationFailure, match="a committed for partition 1, which it had lost"):
        model.commit("a", 1, 9, sent_s=now_s + 1, now_s=now_s + 2)


def test_commits_that_go_back(model: ConsumerGroupModel) -> None:
    """Only what was acknowledged before counts: commits under way may overtake each other."""
    model.commit("a", 0, 9, sent_s=1.1, now_s=1.5)
    model.commit("a", 0, 7, sent_s=1.4, now_s=1.6)
    with pytest.raises(SimulationFailure, match="a committed 8 for partition 0: 9 was"):
        model.commit("a", 0, 8, sent_s=1.7, now_s=1.8)
    with pytest.raises(SimulationFailure, match="b finds 8 committed for partition 0: 9 was"):
        model.find("b", 0, 8, sent_s=1.7)


def test_unsettled(model: ConsumerGroupModel) -> None:
    """Members that have nothing to do with the group yet, or too little of it."""
    assert "epochs" in (model.unsettled() or "")
    model.on_answer("b", 1, None, sent_s=1.5, node=1, now_s=1.6)
    assert model.unsettled() == "members have [0, 2] partitions"
    model.lose_all("a")
    model.on_answer("a", 1, None, sent_s=1.5, node=1, now_s=1.6)
    assert model.unsettled() == "owned are []"
    model.end("a")
    assert "a" not in model.state()


def test_copies() -> None:
    """Of each partition as many as are set, if there are members for them; never at its owner."""
    model = ConsumerGroupModel(2, SESSION_S, copy_count=2)
    model.begin("a")
    model.begin("b")
    model.on_answer("a", 1, Given({0}, {1}), sent_s=0.9, node=1, now_s=1.0)
    model.on_answer("b", 1, Given({1}, set()), sent_s=0.9, node=1, now_s=1.0)
    assert model.unsettled() == "copies are kept of [1], not 1 of each"
    model.on_answer("b", 1, Given({1}, {0}), sent_s=1.9, node=1, now_s=2.0)
    assert model.unsettled() is None
    assert model.state() == {"a": (1, [0], [1]), "b": (1, [1], [0])}
    with pytest.raises(SimulationFailure, match=r"b is to keep copies of \[0, 1\], and has \[1\]"):
        model.on_answer("b", 1, Given({1}, {0, 1}), sent_s=2.9, node=1, now_s=3.0)
