"""The model finds each kind of mistake in a history made by hand."""

from __future__ import annotations

import pytest

from tests.conformance.churn.model import ChurnModel


@pytest.fixture
def model() -> ChurnModel:
    """Member `a` has both partitions, from 100 on."""
    model = ChurnModel()
    model.assign("a", [0, 1], 100)
    return model


def test_handed_over(model: ChurnModel) -> None:
    model.assign("b", [1], 200)
    model.assign("a", [0], 199)  # it came later than what was said later
    assert model.errors({}) == []
    assert model.moves == 1
    assert model.held() == {0: "a", 1: "b"}


def test_members_that_dropped_all_get_each_others(model: ChurnModel) -> None:
    model.assign("b", [2, 3], 100)
    model.assign("c", [4], 100)
    for member in ("a", "b"):
        model.assign(member, [], 200)
    model.assign("a", [0, 3], 300)
    model.assign("b", [2], 300)
    assert (model.moves, model.moves_among_droppers()) == (1, 1)
    model.assign("c", [4, 1], 300)  # which has not
    assert (model.moves, model.moves_among_droppers()) == (2, 1)
    model.lose("c", 400)  # killed
    model.assign("b", [2, 4], 500)
    assert (model.moves, model.moves_among_droppers()) == (3, 1)


def test_two_owners(model: ChurnModel) -> None:
    model.assign("b", [1], 200)
    model.assign("a", [0], 210)
    (error,) = model.errors({})
    assert error == "b had partition 1, which a kept for another 10 ms"


def test_killed(model: ChurnModel) -> None:
    model.lose("a", 150)
    assert model.held() == {}
    model.assign("b", [0, 1], 200)
    assert model.errors({}) == []


def test_woken_after_its_session(model: ChurnModel) -> None:
    """What it is given right before it is out is not its own, unless it keeps it."""
    model.lose("a", 150)
    model.assign("b", [0, 1], 200)
    model.wake("a", 1_000)
    model.assign("a", [0, 1], 1_001)
    model.assign("a", [], 1_070)
    assert model.errors({}) == []
    assert model.held() == {0: "b", 1: "b"}
    model.assign("a", [1], 1_080)
    (error,) = model.errors({})
    assert error == "a had partition 1, which b kept for another inf ms"


def test_unread_and_commits(model: ChurnModel) -> None:
    model.read([(0, 0), (0, 2)])
    model.commit({0: 2})
    model.commit({0: 1})
    assert model.behind({0: 3}) == {0: (2, 3)}
    assert model.errors({0: 3}, may_go_back=True) == ["partition 0: nobody has read [1]"]
    assert model.errors({0: 3}) == [
        "a commit went back: partition 0: 1 after 2",
        "partition 0: nobody has read [1]",
    ]
