"""How this node changes its role in the quorum: `RoleTransitions`.

Owns: every move of `QuorumState`, with what belongs to it in the log, in the memory and in the
fetches of both sides. Rules:
1. A change first drops what belongs to the role being left: proposals are sealed in the old epoch,
   fetches that waited are refused in the new role, an answer that is under way no longer counts.
2. A message of a higher epoch ends every role; a node that is known to have resigned no longer
   leads, though late messages still name it.

Called by: raft.py, elections.py, leader_loss.py.
Tested by: tests/unit/kraft_meta/raft/test_raft.py, by whole cores.
"""

from __future__ import annotations

from kraftrio.kraft_meta.raft.core_state import CoreState
from kraftrio.kraft_meta.raft.election_pace import ElectionPace
from kraftrio.kraft_meta.raft.epoch_announcements import EpochAnnouncements
from kraftrio.kraft_meta.raft.fetch_answers import FetchAnswers
from kraftrio.kraft_meta.raft.fetch_requests import FetchRequests
from kraftrio.kraft_meta.raft.messages import Fetch
from kraftrio.kraft_meta.raft.quorum_state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    ReplicaProgress,
    Resigned,
    Unattached,
)
from kraftrio.kraft_meta.raft.ready import leader_change_record
from kraftrio.kraft_meta.raft.snapshot_install import SnapshotInstall
from kraftrio.kraft_meta.raft.values import NO_NODE, ElectionState

_NO_EPOCH = -1


class RoleTransitions:
    """See the module."""

    def __init__(
        self,
        state: CoreState,
        pace: ElectionPace,
        answers: FetchAnswers,
        requests: FetchRequests,
        snapshots: SnapshotInstall,
        announcements: EpochAnnouncements,
    ) -> None:
        self._state = state
        self._config = state.config
        self._quorum = state.quorum
        self._pace = pace
        self._answers = answers
        self._requests = requests
        self._snapshots = snapshots
        self._announcements = announcements
        self._ended_epoch = _NO_EPOCH
        self._is_retiring = False

    def restore(self, loaded: ElectionState, now_ms: float) -> None:
        """Take the role that the stored election state asks for; only right after the start."""
        quorum = self._quorum
        if quorum.is_voter and not self._state.may_stand:
            quorum.restore(Unattached(now_ms), NO_NODE)  # it looks for the leader
        elif loaded.leader_id == quorum.node_id:
            others = quorum.other_voters
            deadline_ms = self._pace.election_deadline_ms(now_ms)
            quorum.restore(
                Resigned(deadline_ms, tuple(others), set(others), now_ms), quorum.node_id
            )
        elif loaded.leader_id != NO_NODE:
            fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms
            quorum.restore(Follower(loaded.leader_id, fetch_deadline_ms), loaded.leader_id)
        elif quorum.is_voter:
            quorum.restore(Unattached(self._pace.first_election_ms(now_ms)), NO_NODE)

    # ---- changes

    def become_unattached(self, epoch: int, now_ms: float) -> None:
        """Wait for the leader of an epoch."""
        parked = self._leave_role()
        self._quorum.become_unattached(epoch, self._pace.election_deadline_ms(now_ms))
        self._state.memory.on_epoch_begun(epoch, has_leader=False)
        self._requests.ask_any_at(now_ms)
        self._answers.refuse(parked)

    def become_prospective(self, now_ms: float) -> bool:
        """Ask for pre-votes; False: this node may not stand now, and waits for a leader."""
        if self._is_retiring or self._snapshots.is_running or not self._state.may_stand:
            self.become_unattached(self._state.epoch, now_ms)
            return False
        parked = self._leave_role()
        self._quorum.become_prospective(self._pace.election_deadline_ms(now_ms))
        self._answers.refuse(parked)
        return True

    def become_candidate(self, now_ms: float) -> None:
        """Ask for votes in a new epoch."""
        parked = self._leave_role()
        self._quorum.become_candidate(self._pace.election_deadline_ms(now_ms))
        if self._state.log.has_nothing:
            self._state.memory.on_founding_vote()
        self._answers.refuse(parked)

    def become_follower(self, epoch: int, leader_id: int, now_ms: float) -> None:
        """Follow the leader of an epoch."""
        parked = self._leave_role()
        fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms
        self._quorum.become_follower(epoch, leader_id, fetch_deadline_ms)
        self._state.memory.on_epoch_begun(epoch, has_leader=True)
        self._answers.refuse(parked)
        self._requests.send(leader_id, now_ms)

    def become_leader(self, role: Candidate, now_ms: float) -> None:
        """Lead the epoch that a majority has voted for."""
        parked = self._leave_role()
        assert not parked, "only leaders park fetches"
        state, quorum = self._state, self._quorum
        granting = [voter for voter in quorum.voters if role.votes.get(voter)]
        leader = Leader(
            epoch_start_offset=state.log.end_offset,
            check_quorum_deadline_ms=now_ms + self._config.check_quorum_timeout_ms,
            begin_epoch_retry_ms=now_ms,
            progress={voter: ReplicaProgress() for voter in quorum.other_voters},
        )
        quorum.become_leader(leader)
        self._pace.on_leader_met()
        key, value = leader_change_record(state.node_id, quorum.voters.ids, granting)
        state.log.append_control(state.epoch, key, value)
        self._announcements.announce_begin(leader, now_ms)

    def resign(self, role: Leader, now_ms: float) -> None:
        """Stop leading; the voter with the longest log should try first."""
        successors = sorted(role.progress, key=lambda v: (-role.progress[v].log_end_offset, v))
        parked = self._leave_role()
        resigned = Resigned(
            self._pace.election_deadline_ms(now_ms), tuple(successors), set(successors), now_ms
        )
        self._quorum.become_resigned(resigned)
        self._answers.refuse(parked)
        self._announcements.announce_end(resigned, now_ms)

    def retire(self, now_ms: float) -> None:
        """Neither lead nor stand for election until the next start."""
        self._is_retiring = True
        role = self._quorum.role
        if isinstance(role, Leader):
            self.resign(role, now_ms)

    def adopt(self, epoch: int, leader_id: int, now_ms: float) -> bool:
        """Follow what a message says about epoch and leader; True when it is of this epoch."""
        names_leader = leader_id not in (NO_NODE, self._state.node_id)
        if epoch > self._state.epoch:
            if names_leader:
                self.become_follower(epoch, leader_id, now_ms)
            else:
                self.become_unattached(epoch, now_ms)
        elif (
            epoch == self._state.epoch
            and epoch != self._ended_epoch
            and names_leader
            and isinstance(self._quorum.role, Unattached | Prospective | Candidate)
        ):
            self.become_follower(epoch, leader_id, now_ms)
        return epoch == self._state.epoch

    def end_epoch(self) -> None:
        """The leader of this epoch has resigned: messages that still name it are late."""
        self._ended_epoch = self._state.epoch

    def _leave_role(self) -> list[Fetch]:
        """Drop what belongs to the role being left; return the fetches that are to be refused."""
        self._state.log.seal_proposals()
        self._requests.forget_sent()
        return self._answers.take_parked()
