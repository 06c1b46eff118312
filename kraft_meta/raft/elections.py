"""Elections of the metadata quorum: votes, pre-votes, and how a leader comes and goes.

Owns: `Elections`, a part of the consensus core (sans-IO). Rules:
1. A vote is given once per epoch, and only to a log that is at least as long; a pre-vote promises
   nothing, and whoever hears from a leader does not give it (KIP-996).
2. An election that cannot be won any more is given up at once and tried again after a random pause
   that doubles each time (Kafka's binary exponential election backoff).
3. A follower whose leader's address refuses connections does not wait for the fetch timeout: it
   asks for pre-votes, the voter with the lowest id first. The pause between two such attempts
   doubles as long as they go on, so that a link that flaps costs the others next to nothing.
4. Who may vote and stand at all, and how many votes elect, voter_memory.py says.

Called by: raft.py. Protocol: KIP-595, KIP-996.
"""

from __future__ import annotations

from kraftrio.kraft_meta.raft.base import RaftBase
from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochResponse,
    EndQuorumEpoch,
    EndQuorumEpochResponse,
    Vote,
    VoteResponse,
)
from kraftrio.kraft_meta.raft.quorum_state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kraftrio.kraft_meta.raft.values import NO_NODE
from kraftrio.wire.errors import ErrorCode

_BACKOFF_BASE_MS = 100
_BACKOFF_MAX_DOUBLINGS = 10


class Elections(RaftBase):
    """Votes, pre-votes, the begin and the end of a leader's epoch."""

    # ---- elections

    def _ask_for_votes(self, *, pre_vote: bool) -> None:
        for voter in self.quorum.other_voters:
            self._messages.append(Vote(self.node_id, voter, self.epoch, self.epochs.end, pre_vote))

    def _count_votes(self, now_ms: float) -> None:
        role = self.quorum.role
        assert isinstance(role, Prospective | Candidate)
        granted, needed = sum(role.votes.values()), self.votes_needed
        if granted >= needed:
            if isinstance(role, Prospective):
                self._become_candidate(now_ms)
            else:
                self._become_leader(role, now_ms)
            return
        missing = [v for v in self.quorum.voters if v not in role.votes.keys() | role.unreachable]
        if granted + len(missing) < needed and not role.is_lost:
            role.is_lost = True
            doublings = min(self._lost_elections, _BACKOFF_MAX_DOUBLINGS)
            self._lost_elections += 1
            backoff_ms = min(
                self._rng.random() * _BACKOFF_BASE_MS * 2 ** (doublings + 1),
                self.config.election_backoff_max_ms,
            )
            role.election_deadline_ms = min(role.election_deadline_ms, now_ms + backoff_ms)

    def _tick_election(self, role: Prospective | Candidate, now_ms: float) -> None:
        if now_ms < role.election_deadline_ms:
            return
        self._missing_votes = [voter for voter in self.quorum.voters if not role.votes.get(voter)]
        if isinstance(role, Candidate):
            self._become_prospective(now_ms)
            return
        self._become_unattached(self.epoch, now_ms)
        if role.is_lost:
            # The pause is over: trying again is harmless, as long as it is a pre-vote.
            self._become_prospective(now_ms)

    def _on_vote(self, vote: Vote, now_ms: float) -> None:
        if vote.epoch > self.epoch and vote.source in self.quorum.voters:
            self._become_unattached(vote.epoch, now_ms)
        granted = (
            vote.epoch == self.epoch
            and vote.source in self.quorum.voters
            and self.quorum.is_voter
            and self._may_grant(vote)
        )
        if granted and not vote.pre_vote:
            self.quorum.grant_vote(vote.source)
            if self.has_nothing and vote.candidate_is_empty:
                self.memory.on_founding_vote()
            role = self.quorum.role
            assert isinstance(role, Unattached | Prospective)
            role.election_deadline_ms = self._election_deadline(now_ms)
        error = ErrorCode.NONE
        if vote.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif not granted and not self.memory.is_proven:
            error = ErrorCode.INVALID_VOTER_KEY
        self._messages.append(
            VoteResponse(
                self.node_id,
                vote.source,
                self.epoch,
                self.leader_id,
                granted,
                vote.pre_vote,
                error,
                vote.request_id,
            )
        )

    def _may_grant(self, vote: Vote) -> bool:
        own = self.epochs.end
        theirs = vote.last_offset_and_epoch
        if not self.memory.may_grant(
            has_nothing=self.has_nothing,
            candidate_is_empty=vote.candidate_is_empty,
            pre_vote=vote.pre_vote,
        ):
            return False
        if (theirs.epoch, theirs.offset) < (own.epoch, own.offset):
            return False
        role = self.quorum.role
        if vote.pre_vote:
            if isinstance(role, Follower):
                return not role.has_fetched
            return not isinstance(role, Leader)
        return isinstance(role, Unattached | Prospective) and self.quorum.voted_id in (
            NO_NODE,
            vote.source,
        )

    def _on_vote_response(self, response: VoteResponse, now_ms: float) -> None:
        # Who grants a pre-vote has given up the leader that it still names.
        leader_id = NO_NODE if response.vote_granted else response.leader_id
        if not self._adopt(response.epoch, leader_id, now_ms):
            return
        role = self.quorum.role
        expected = Prospective if response.pre_vote else Candidate
        if isinstance(role, expected) and response.source in self.quorum.voters:
            assert isinstance(role, Prospective | Candidate)
            role.votes.setdefault(response.source, response.vote_granted)
            self._count_votes(now_ms)
        elif isinstance(role, Follower) and response.error is ErrorCode.NONE:
            self.memory.on_epoch_told(response.source, response.epoch)

    def _ask_for_epochs(self) -> None:
        """Ask the others in which epoch they are, by a pre-vote that nothing comes of."""
        for voter in self.memory.voters_to_ask(self.epoch):
            self._ask_voter_for_epoch(voter)

    def _ask_voter_for_epoch(self, voter: int) -> None:
        self._messages.append(Vote(self.node_id, voter, self.epoch, self.epochs.end, True))

    def _on_begin_quorum_epoch(self, message: BeginQuorumEpoch, now_ms: float) -> None:
        if message.source in self.quorum.voters:
            self._adopt(message.epoch, message.source, now_ms)
        error = ErrorCode.NONE if message.epoch == self.epoch else ErrorCode.FENCED_LEADER_EPOCH
        self._messages.append(
            BeginQuorumEpochResponse(
                self.node_id, message.source, self.epoch, self.leader_id, error, message.request_id
            )
        )

    def _on_end_quorum_epoch(self, message: EndQuorumEpoch, now_ms: float) -> None:
        if message.epoch > self.epoch and message.source in self.quorum.voters:
            self._become_unattached(message.epoch, now_ms)
        error = ErrorCode.NONE if message.epoch == self.epoch else ErrorCode.FENCED_LEADER_EPOCH
        role = self.quorum.role
        if (
            error is ErrorCode.NONE
            and isinstance(role, Follower)
            and role.leader_id == message.source
        ):
            successors, me = message.preferred_successors, self.node_id
            position = successors.index(me) if me in successors else len(successors)
            self._end_epoch(role, position, now_ms)
        self._messages.append(
            EndQuorumEpochResponse(
                self.node_id, message.source, self.epoch, self.leader_id, error, message.request_id
            )
        )

    # ---- the leader's word

    def _tick_leader(self, role: Leader, now_ms: float) -> None:
        others = self.quorum.other_voters
        if not others:
            return
        if now_ms >= role.check_quorum_deadline_ms:
            self._resign(role, now_ms)
            return
        if now_ms >= role.begin_epoch_retry_ms:
            role.begin_epoch_retry_ms = now_ms + self.config.request_timeout_ms / 2
            for voter in others:
                if voter not in role.acknowledged:
                    self._messages.append(BeginQuorumEpoch(self.node_id, voter, self.epoch))

    def _tick_resigned(self, role: Resigned, now_ms: float) -> None:
        if now_ms >= role.election_deadline_ms:
            self._become_prospective(now_ms)
        elif role.unconfirmed and now_ms >= role.end_epoch_retry_ms:
            role.end_epoch_retry_ms = now_ms + self.config.request_timeout_ms / 2
            for voter in sorted(role.unconfirmed):
                self._messages.append(
                    EndQuorumEpoch(self.node_id, voter, self.epoch, role.preferred_successors)
                )

    def _on_begin_quorum_epoch_response(
        self, response: BeginQuorumEpochResponse, now_ms: float
    ) -> None:
        self._adopt(response.epoch, response.leader_id, now_ms)
        role = self.quorum.role
        if (
            isinstance(role, Leader)
            and response.epoch == self.epoch
            and response.source in role.progress
        ):
            role.acknowledged[response.source] = True

    def _on_end_quorum_epoch_response(
        self, response: EndQuorumEpochResponse, now_ms: float
    ) -> None:
        self._adopt(response.epoch, response.leader_id, now_ms)
        role = self.quorum.role
        if isinstance(role, Resigned) and response.epoch == self.epoch:
            role.unconfirmed.discard(response.source)

    # ---- a leader that is gone

    def _end_epoch(self, role: Follower, position: int, now_ms: float) -> None:
        """Take the word of the leader that it has resigned; the first in line tries at once."""
        self._ended_epoch = self.epoch
        if not self.may_stand:
            self._become_unattached(self.epoch, now_ms)
            return
        role.has_fetched = False
        step_ms = self.config.election_backoff_max_ms / 10
        deadline_ms = now_ms + position * step_ms * (1 + self._rng.random())
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, deadline_ms)

    def _on_epoch_ended(self, role: Follower, now_ms: float) -> None:
        rank = self._rank_behind(role.leader_id) if self.may_stand else 0
        self._end_epoch(role, rank, now_ms)

    def _rank_behind(self, leader_id: int) -> int:
        """Return this voter's place in the order in which voters try when nobody has named one."""
        return [v for v in self.quorum.voters if v != leader_id].index(self.node_id)

    def _suspect_leader(self, role: Follower, now_ms: float) -> None:
        """Take the news that nobody listens where the leader was (rule 3)."""
        if role.is_suspected:
            return
        fetch_timeout_ms = self.config.fetch_timeout_ms
        if now_ms - self._suspected_until_ms > 2 * fetch_timeout_ms:
            self._suspicions = 0
        step_ms = self.config.election_backoff_max_ms / 20
        rank = self._rank_behind(role.leader_id)
        deadline_ms = now_ms + rank * step_ms * (1 + self._rng.random())
        if self._suspicions:
            pause_ms = min(step_ms * 2**self._suspicions, fetch_timeout_ms)
            deadline_ms = max(deadline_ms, self._suspected_until_ms + pause_ms)
        self._suspicions += 1
        self._suspected_until_ms = deadline_ms
        role.is_suspected = True
        role.has_fetched = False
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, deadline_ms)
