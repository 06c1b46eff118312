"""The quorum's states: legal moves, the vote, and the arithmetic of majorities."""

from __future__ import annotations

import random

import pytest

from kraftrio.kraft_meta.raft.quorum_state import (
    LEGAL_MOVES,
    Leader,
    QuorumState,
    ReplicaProgress,
    Resigned,
    State,
    Unattached,
)
from kraftrio.kraft_meta.raft.values import ElectionState
from kraftrio.kraft_meta.raft.voters import VoterSet


def state(stored: ElectionState = ElectionState()) -> QuorumState:  # noqa: B008
    return QuorumState(1, VoterSet.of_ids([1, 2, 3]), stored, Unattached(0))


def leader(*others: int) -> Leader:
    return Leader(0, 0, 0, {voter: ReplicaProgress() for voter in others})


def test_a_way_to_lead_and_to_resign() -> None:
    """Unattached, Prospective, Candidate, Leader, Resigned, and on in a new epoch."""
    quorum = state()
    quorum.become_prospective(1)
    assert quorum.election_state == ElectionState(0, -1, -1)
    quorum.become_candidate(1)
    assert quorum.election_state == ElectionState(1, -1, 1)
    quorum.become_leader(leader(2, 3))
    assert quorum.election_state == ElectionState(1, 1, 1)
    quorum.become_resigned(Resigned(1, (), set(), 0))
    assert quorum.election_state == ElectionState(1, 1, 1)
    quorum.become_follower(2, 3, 1)
    assert quorum.election_state == ElectionState(2, 3, -1)


def test_moves_outside_of_the_table_are_our_bugs() -> None:
    """A leader does not become a candidate, nobody leads without an election."""
    quorum = state()
    with pytest.raises(AssertionError):
        quorum.become_leader(leader(2, 3))
    quorum.become_prospective(1)
    quorum.become_candidate(1)
    quorum.become_leader(leader(2, 3))
    with pytest.raises(AssertionError):
        quorum.become_candidate(1)


def test_the_epoch_never_goes_back() -> None:
    """And one epoch has one leader and one vote."""
    quorum = state(ElectionState(5))
    with pytest.raises(AssertionError):
        quorum.become_unattached(4, 0)
    quorum.grant_vote(2)
    with pytest.raises(AssertionError):
        quorum.grant_vote(3)
    quorum.become_follower(5, 2, 0)
    with pytest.raises(AssertionError):
        quorum.become_follower(5, 3, 0)
    quorum.become_unattached(6, 0)
    quorum.grant_vote(3)


def test_every_state_can_learn_of_a_new_epoch() -> None:
    """Whatever a node is, a higher epoch makes it Unattached or Follower."""
    for moves in LEGAL_MOVES.values():
        assert {State.UNATTACHED, State.FOLLOWER} <= moves


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_majority_arithmetic_against_counting(voters: int) -> None:
    """The offset is the greatest that a majority has; the contact the latest that one shares."""
    rng = random.Random(voters)
    majority = voters // 2 + 1
    for _ in range(200):
        role = leader(*range(2, voters + 1))
        own = rng.randrange(10)
        for progress in role.progress.values():
            progress.log_end_offset = rng.randrange(-1, 10)
            progress.last_fetch_ms = rng.randrange(-1, 10)
        ends = [own, *(p.log_end_offset for p in role.progress.values())]
        best = max(o for o in range(-1, 10) if sum(end >= o for end in ends) >= majority)
        assert role.majority_end_offset(own, majority) == best
        if voters > 1:
            times = [99, *(p.last_fetch_ms for p in role.progress.values())]
            latest = max(t for t in range(-1, 10) if sum(x >= t for x in times) >= majority)
            assert role.majority_contact_ms(majority) == latest


def test_a_replica_was_caught_up_when_it_reaches_the_former_end() -> None:
    """KIP-836: a busy leader's follower counts as caught up at its previous fetch."""
    role = leader(2)
    progress = role.progress[2]
    role.record_fetch(2, 0, 10, 1.0)
    assert progress.last_caught_up_ms == -1
    role.record_fetch(2, 10, 20, 2.0)
    assert progress.last_caught_up_ms == 1.0
    role.record_fetch(2, 20, 20, 3.0)
    assert progress.last_caught_up_ms == 3.0
    role.record_fetch(2, None, 30, 4.0)
    assert (progress.log_end_offset, progress.last_fetch_ms) == (20, 4.0)
    role.record_fetch(9, 5, 30, 5.0)
    assert role.observers[9].log_end_offset == 5
