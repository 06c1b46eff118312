"""The model of share groups finds each kind of mistake in a history made by hand."""

from __future__ import annotations

import pytest

from kraftrio.testing.simulation.world import SimulationFailure
from tests.sim.share_group_model import Place, Server, ShareGroupModel

LIMIT, LOCK_S = 3, 2.0
AT = Place(0, 7)
ONE, ANEW, TWO = Server(1, 0), Server(1, 1), Server(2, 0)


class History:
    """One record, and what members say that happens to it."""

    def __init__(self) -> None:
        self.model = ShareGroupModel(LIMIT, LOCK_S)
        self.model.write(AT, b"seven")

    def acquire(
        self,
        name: str,
        count: int,
        at_s: float,
        server: Server = ONE,
        value: bytes | None = b"seven",
    ) -> None:
        self.model.acquire(name, AT, count, value, server=server, sent_s=at_s - 0.01, now_s=at_s)


@pytest.fixture
def history() -> History:
    """Member `a` has the record, from second 1 on."""
    history = History()
    history.acquire("a", 1, 1.0)
    return history


def test_two_holders(history: History) -> None:
    with pytest.raises(SimulationFailure, match=r"b was given 0@7 for the 2. time: a has it"):
        history.acquire("b", 2, 2.9)


@pytest.mark.parametrize("how", ["lock", "parted", "connection", "process"])
def test_one_after_the_other(history: History, how: str) -> None:
    """Once its lock has ended, it has said something, or its connection or process has ended."""
    if how == "parted":
        history.model.part("a", AT)
    elif how == "connection":
        history.model.part_with_all("a", TWO)  # another one: it still has the record
        assert history.model.hold("a", AT) is not None
        history.model.part_with_all("a", ONE)
    elif how == "process":
        history.model.part_with_all("a")
    history.acquire("b", 2, 3.1 if how == "lock" else 1.2)


def test_held_for_longer(history: History) -> None:
    history.model.renew("a", AT, ONE, 2.5)
    with pytest.raises(SimulationFailure, match="a has it for another"):
        history.acquire("b", 2, 4.4)


@pytest.mark.parametrize("server", [ANEW, TWO])
def test_a_leader_that_died_knows_of_no_holder(history: History, server: Server) -> None:
    history.acquire("b", 1, 1.5, server)
    assert history.model.hold("b", AT) is not None


def test_counts(history: History) -> None:
    """No more often than the limit, and each time of one leader is another one."""
    with pytest.raises(SimulationFailure, match="the limit is 3"):
        history.acquire("a", 4, 3.5)
    with pytest.raises(SimulationFailure, match="which had said so before"):
        history.acquire("a", 1, 3.5)
    history.model.release(AT, 2, ONE, 4.0)
    with pytest.raises(SimulationFailure, match="it was released after 2"):
        history.acquire("a", 2, 4.5, TWO)
    history.acquire("a", 3, 5.0, TWO)


def test_settled_is_settled(history: History) -> None:
    """Whoever asks later, and whatever the leader has given since."""
    history.model.settle(AT, ONE, 1.5)
    assert history.model.unsettled() is None
    for server in (ONE, TWO):
        with pytest.raises(SimulationFailure, match="that it is settled was acknowledged"):
            history.acquire("b", 2, 2.0, server)
    with pytest.raises(SimulationFailure, match="that it is settled was acknowledged"):
        history.acquire("b", 2, 1.505)  # asked before, but given after `a` had it


def test_what_was_written_is_what_is_read(history: History) -> None:
    for value in (None, b"eight"):
        with pytest.raises(SimulationFailure, match="b'seven' was written there"):
            history.acquire("b", 2, 3.5, value=value)


def test_refused(history: History) -> None:
    """A member may not be answered that it does not hold what it holds."""
    held = history.model.hold("a", AT)
    assert held is not None
    assert held.until_s == pytest.approx(2.99)
    history.model.refuse("a", {AT: held}, 3.0)
    with pytest.raises(SimulationFailure, match=r"a was answered that it does not hold \['0@7'\]"):
        history.model.refuse("a", {AT: held}, 2.9)


def test_unsettled(history: History) -> None:
    """Written records are lost that were not delivered often enough, by what anybody knows."""
    assert history.model.unsettled() == "0@7 was delivered 1 times"
    history.model.doubt(AT)
    assert history.model.unsettled() is None
    history.model.release(AT, 1, ONE, 1.5)
    assert history.model.unsettled() is not None
    history.model.lose_answer(0)
    history.acquire("a", 2, 1.6)
    assert history.model.unsettled() is None
    history.model.write(Place(1, 0), b"other")
    assert history.model.unsettled() == "1@0 was delivered 0 times"
