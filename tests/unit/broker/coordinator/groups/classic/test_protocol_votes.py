"""The choice of a classic group's protocol."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.classic.protocol_votes import Protocols, ProtocolVotes


def liking(*names: str) -> Protocols:
    return tuple((name, b"") for name in names)


def test_what_all_members_support_is_common() -> None:
    """A member that leaves takes its protocols out of the count."""
    votes = ProtocolVotes()
    votes.add(liking("range", "sticky"))
    votes.add(liking("range"))
    assert votes.has_common(["sticky", "range"], 2)
    assert not votes.has_common(["sticky"], 2)
    assert not votes.has_common(["other"], 2)
    votes.remove(liking("range"))
    assert votes.has_common(["sticky"], 1)


@pytest.mark.parametrize(
    ("members", "winner"),
    [
        ((liking("a", "b"), liking("a", "b"), liking("b", "a")), "a"),
        ((liking("c", "b", "a"), liking("b", "a"), liking("a", "b")), "b"),
        ((liking("b", "a"), liking("a", "b")), "b"),  # a tie: the earliest vote
    ],
)
def test_most_votes_win(members: tuple[Protocols, ...], winner: str) -> None:
    """Each member votes for what it likes best of what all support."""
    votes = ProtocolVotes()
    for protocols in members:
        votes.add(protocols)
    assert votes.winner(members) == winner


def test_without_a_common_protocol_there_is_no_choice() -> None:
    """It is our bug to ask for one."""
    votes = ProtocolVotes()
    members = [liking("a"), liking("b")]
    for protocols in members:
        votes.add(protocols)
    with pytest.raises(AssertionError):
        votes.winner(members)
