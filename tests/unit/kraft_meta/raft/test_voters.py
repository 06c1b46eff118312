"""The set of voters as one value."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.raft.voters import Voter, VoterEndpoint, VoterSet


def test_voters_are_ordered_by_their_ids() -> None:
    """However they are named, two sets of the same voters are equal."""
    voters = VoterSet.of_ids([3, 1, 2])
    assert voters.ids == (1, 2, 3) == tuple(voters)
    assert voters == VoterSet.of_ids((1, 2, 3))
    assert 2 in voters
    assert 4 not in voters
    assert voters.others(2) == [1, 3]
    assert voters.others(9) == [1, 2, 3]


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_is_a_majority(count: int, majority: int) -> None:
    """Two majorities always meet."""
    voters = VoterSet.of_ids(range(count))
    assert (len(voters), voters.majority) == (count, majority)
    assert 2 * voters.majority > len(voters)


def test_a_sole_voter_is_the_whole_quorum() -> None:
    """Not so a voter among others, nor an observer."""
    assert VoterSet.of_ids([7]).is_sole_voter(7)
    assert not VoterSet.of_ids([7]).is_sole_voter(8)
    assert not VoterSet.of_ids([7, 8]).is_sole_voter(7)


def test_a_voter_is_reached_at_its_first_endpoint() -> None:
    """One without a listener, and a node that is not a voter, cannot be reached."""
    first = VoterEndpoint("CONTROLLER", "one", 9093)
    voters = VoterSet((Voter(1, (first, VoterEndpoint("OTHER", "one", 9094))), Voter(2)))
    assert voters.address(1) == ("one", 9093)
    assert voters.address(2) is None
    assert voters.address(3) is None
    assert len(voters.endpoints(1)) == 2


@pytest.mark.parametrize("node_ids", [[], [1, 1]])
def test_a_set_of_voters_is_neither_empty_nor_has_one_twice(node_ids: list[int]) -> None:
    """The configuration is checked before: this is our bug."""
    with pytest.raises(AssertionError):
        VoterSet.of_ids(node_ids)
