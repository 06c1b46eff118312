"""Votes and pre-votes, those that this node grants and those that it gets: `Elections`.

Rules:
1. A vote is granted once per epoch, and only to a log that is at least as long; a pre-vote promises
   nothing, and a voter that hears from a leader does not grant it (KIP-996).
2. An election that cannot be won any more is given up at once and tried again after a pause.
3. Who may vote and stand at all, and how many votes elect, voter_memory.py says.

Called by: raft.py. Protocol: KIP-595, KIP-996.
Tested by: tests/unit/kraft_meta/raft/test_raft.py, by whole cores.
"""

from __future__ import annotations

from kraftrio.kraft_meta.raft.core_state import CoreState
from kraftrio.kraft_meta.raft.election_pace import ElectionPace
from kraftrio.kraft_meta.raft.messages import Vote, VoteReply
from kraftrio.kraft_meta.raft.quorum_state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Unattached,
)
from kraftrio.kraft_meta.raft.role_transitions import RoleTransitions
from kraftrio.kraft_meta.raft.values import NO_NODE
from kraftrio.wire.errors import ErrorCode


class Elections:
    """See the module."""

    def __init__(self, state: CoreState, pace: ElectionPace, roles: RoleTransitions) -> None:
        self._state = state
        self._quorum = state.quorum
        self._pace = pace
        self._roles = roles
        self._missing_votes: list[int] = []  # of the last election that was not won

    # ---- votes for this node

    @property
    def missing_votes(self) -> list[int]:
        """The voters without which a new cluster is not founded; none once it is."""
        is_waiting = isinstance(self._quorum.role, Unattached | Prospective | Candidate)
        return self._missing_votes if self._state.log.has_nothing and is_waiting else []

    def start(self, now_ms: float) -> None:
        """Ask for pre-votes, if this node may stand for election."""
        if self._roles.become_prospective(now_ms):
            self._ask_for_votes(pre_vote=True)
            self._count_votes(now_ms)

    def on_time(self, role: Prospective | Candidate, now_ms: float) -> None:
        """End an election that was not won in time."""
        if now_ms < role.election_deadline_ms:
            return
        self._missing_votes = [voter for voter in self._quorum.voters if not role.votes.get(voter)]
        if isinstance(role, Candidate):
            self.start(now_ms)
            return
        self._roles.become_unattached(self._state.epoch, now_ms)
        if role.is_lost:
            # The pause is over: trying again is harmless, as long as it is a pre-vote.
            self.start(now_ms)

    def on_unreachable(self, role: Prospective | Candidate, voter: int, now_ms: float) -> None:
        """Learn that a voter cannot be asked now."""
        role.unreachable.add(voter)
        self._count_votes(now_ms)

    def on_vote_response(self, response: VoteReply, now_ms: float) -> None:
        """Count a vote, or what it says of the epoch that its voter is in."""
        # A voter that grants a pre-vote has given up the leader that it still names.
        leader_id = NO_NODE if response.vote_granted else response.leader_id
        if not self._roles.adopt(response.epoch, leader_id, now_ms):
            return
        role = self._quorum.role
        expected = Prospective if response.pre_vote else Candidate
        if isinstance(role, expected) and response.source in self._quorum.voters:
            assert isinstance(role, Prospective | Candidate)
            role.votes.setdefault(response.source, response.vote_granted)
            self._count_votes(now_ms)
        elif isinstance(role, Follower) and response.error is ErrorCode.NONE:
            self._state.memory.on_epoch_confirmed(response.source, response.epoch)

    def _ask_for_votes(self, *, pre_vote: bool) -> None:
        state = self._state
        for voter in self._quorum.other_voters:
            state.outbox.send(Vote(state.node_id, voter, state.epoch, state.log.end, pre_vote))

    def _count_votes(self, now_ms: float) -> None:
        role = self._quorum.role
        assert isinstance(role, Prospective | Candidate)
        granted = sum(role.votes.values())
        needed = self._state.memory.votes_needed(has_nothing=self._state.log.has_nothing)
        if granted >= needed:
            if isinstance(role, Candidate):
                self._roles.become_leader(role, now_ms)
                return
            self._roles.become_candidate(now_ms)
            self._ask_for_votes(pre_vote=False)
            self._count_votes(now_ms)
            return
        known = role.votes.keys() | role.unreachable
        open_votes = [voter for voter in self._quorum.voters if voter not in known]
        if granted + len(open_votes) < needed and not role.is_lost:
            role.is_lost = True
            retry_ms = self._pace.after_lost_election_ms(now_ms)
            role.election_deadline_ms = min(role.election_deadline_ms, retry_ms)

    # ---- votes for others

    def on_vote(self, vote: Vote, now_ms: float) -> None:
        """Grant a vote or refuse it."""
        state = self._state
        is_from_voter = vote.source in self._quorum.voters
        if vote.epoch > state.epoch and is_from_voter:
            self._roles.become_unattached(vote.epoch, now_ms)
        granted = (
            vote.epoch == state.epoch
            and is_from_voter
            and self._quorum.is_voter
            and self._may_grant(vote)
        )
        if granted and not vote.pre_vote:
            self._grant(vote, now_ms)
        error = ErrorCode.NONE
        if vote.epoch < state.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif not granted and not state.memory.is_proven:
            error = ErrorCode.INVALID_VOTER_KEY
        state.outbox.send(
            VoteReply(
                state.node_id,
                vote.source,
                state.epoch,
                state.leader_id,
                granted,
                vote.pre_vote,
                error,
                vote.request_id,
            )
        )

    def _grant(self, vote: Vote, now_ms: float) -> None:
        self._quorum.grant_vote(vote.source)
        if self._state.log.has_nothing and vote.candidate_is_empty:
            self._state.memory.on_founding_vote()
        role = self._quorum.role
        assert isinstance(role, Unattached | Prospective)
        role.election_deadline_ms = self._pace.election_deadline_ms(now_ms)

    def _may_grant(self, vote: Vote) -> bool:
        own, theirs = self._state.log.end, vote.last_offset_and_epoch
        if not self._state.memory.may_grant(
            has_nothing=self._state.log.has_nothing,
            candidate_is_empty=vote.candidate_is_empty,
            pre_vote=vote.pre_vote,
        ):
            return False
        if (theirs.epoch, theirs.offset) < (own.epoch, own.offset):
            return False
        role = self._quorum.role
        if vote.pre_vote:
            if isinstance(role, Follower):
                return not role.has_fetched
            return not isinstance(role, Leader)
        return isinstance(role, Unattached | Prospective) and self._quorum.voted_id in (
            NO_NODE,
            vote.source,
        )
