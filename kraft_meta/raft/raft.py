"""The consensus core: who leads the metadata quorum, and which records are committed.

Owns: `RaftCore`, sans-IO. Inputs are `step(message)`, `tick`, `propose`, `resign` and the progress
of snapshots; the output is `ready()`, one value that names what to do, in this order:
    1. write the election state, 2. truncate and append to the log and make it durable,
    3. send the messages, 4. apply what is committed, 5. call `advance()`.
While a Ready is being worked on, inputs may go on; the next `ready()` comes after `advance()`.
Invariants:
1. A message leaves only after what it claims is durable (the vote, the end of the log).
2. A leader counts itself and answers fetches only up to what is durable (`log.stable_end_offset`).
3. The high watermark moves by majority, and only once a record of the leader's own epoch is
   covered (its LeaderChange record), as KIP-595 says; it never goes back.
4. A follower never truncates below its high watermark, nor below what its election state says was
   committed: that is CommittedRecordsError, which ends the node.

The parts, each with its own module: the values that they share (`CoreState`: role, memory, log,
outbox); `RoleTransitions`, `Elections`, `LeaderLoss` and `EpochAnnouncements` for who leads;
`FetchAnswers`, `FetchRequests` and `SnapshotInstall` for the log. `RaftCore` builds them, and hands
each input to the part that it is for.

Called by: quorum/service.py, and by tests that wire several cores by plain calls. Protocol:
KIP-595 (pull replication), KIP-996 (pre-vote), KIP-630 (snapshots).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kraftrio.kraft_meta.raft.core_state import CoreState, Outbox
from kraftrio.kraft_meta.raft.election_pace import ElectionPace
from kraftrio.kraft_meta.raft.elections import Elections
from kraftrio.kraft_meta.raft.epoch_announcements import EpochAnnouncements
from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.fetch_answers import FetchAnswers
from kraftrio.kraft_meta.raft.fetch_requests import FetchOutcome, FetchRequests
from kraftrio.kraft_meta.raft.leader_loss import LeaderLoss
from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    Message,
    Vote,
    VoteReply,
)
from kraftrio.kraft_meta.raft.ports import RaftLogReader
from kraftrio.kraft_meta.raft.quorum_state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    QuorumState,
    Resigned,
    State,
    Unattached,
)
from kraftrio.kraft_meta.raft.raft_log import CommittedRecordsError, RaftLog
from kraftrio.kraft_meta.raft.ready import NotLeaderError, RaftConfig, Ready
from kraftrio.kraft_meta.raft.role_transitions import RoleTransitions
from kraftrio.kraft_meta.raft.snapshot_install import FetchSchedule, SnapshotInstall
from kraftrio.kraft_meta.raft.values import NO_NODE, ElectionState
from kraftrio.kraft_meta.raft.voter_memory import VoterMemory
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.errors import ErrorCode


class RaftCore:
    """One node of the metadata quorum; an observer when its id is not among the voters.

    Attributes:
        quorum: role, epoch, leader and vote.
        memory: what this voter may be believed.
        log: what is queued, durable and committed.
        answers: the leader's side of replication, for requests about snapshots.
        snapshots: a snapshot from the leader, in the place of the log.

    Raises:
        CommittedRecordsError: a quorum of one lacks what it had committed; no other node has it.
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: VoterSet,
        log: RaftLogReader,
        epochs: EpochStarts,
        stored: ElectionState | None,
        config: RaftConfig,
        rng: random.Random,
        now_ms: float,
    ) -> None:
        loaded = stored if stored is not None else ElectionState()
        self.log = RaftLog(log, epochs, loaded.committed_offset, config.batch_max_records)
        if self.log.has_lost_records and voters.is_sole_voter(node_id):
            raise CommittedRecordsError(
                f"it ends at offset {self.log.end_offset}, but at least the records up to"
                f" offset {self.log.committed_floor - 1} were committed: bring them back, or accept"
                " the loss with 'kraftrio recover-quorum'"
            )
        is_marked = loaded.is_proven
        if is_marked is None:  # it was written before there was a mark
            is_marked = stored is not None and self.log.end_offset > 0
        self.memory = VoterMemory(
            node_id, voters, is_proven=is_marked and not self.log.has_lost_records
        )
        # A log that is ahead of the stored epoch (the state file was lost) must not vote again in
        # an epoch that it has records of.
        if loaded.epoch < epochs.last_epoch:
            loaded = ElectionState(epochs.last_epoch)
        pace = ElectionPace(config, rng)
        role = Unattached(pace.election_deadline_ms(now_ms))
        self.quorum = QuorumState(node_id, voters, loaded, role)
        self._outbox = Outbox()
        state = CoreState(config, self.quorum, self.memory, self.log, self._outbox)
        schedule = FetchSchedule(next_ms=now_ms)
        self.answers = FetchAnswers(state)
        self.snapshots = SnapshotInstall(state, schedule)
        self._state = state
        self._pace = pace
        self._requests = FetchRequests(state, schedule, self.snapshots, rng)
        self._announcements = EpochAnnouncements(state)
        self._roles = RoleTransitions(
            state, pace, self.answers, self._requests, self.snapshots, self._announcements
        )
        self._elections = Elections(state, pace, self._roles)
        self._leader_loss = LeaderLoss(state, pace, self._roles)
        self._stored = stored
        self._reported_high_watermark: int | None = None
        self._is_ready_out = False
        self._roles.restore(loaded, now_ms)
        if voters.is_sole_voter(node_id):
            self._elections.start(now_ms)

    # ---- what others may ask

    @property
    def node_id(self) -> int:
        return self._state.node_id

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch as far as known, else -1. A resigned leader does not count."""
        return self._state.leader_id

    @property
    def state(self) -> State:
        return self.quorum.role.state

    @property
    def is_leader(self) -> bool:
        return self._state.is_leader

    @property
    def has_met_leader(self) -> bool:
        """Some node has led the quorum since this one started."""
        return self._pace.has_met_leader

    @property
    def missing_votes(self) -> list[int]:
        """The voters without which a new cluster is not founded; none once it is."""
        return self._elections.missing_votes

    @property
    def fetch_under_way(self) -> Fetch | None:
        """The fetch that this node waits to be answered."""
        return self._requests.sent

    def may_be_succeeded(self) -> bool:
        """Return whether this node has resigned and another may still take over."""
        role = self.quorum.role
        if isinstance(role, Resigned):
            return not role.unreachable.issuperset(self.quorum.other_voters)
        return self.leader_id == NO_NODE

    # ---- outputs

    def has_ready(self) -> bool:
        """Return whether ready() has something new."""
        return not self._is_ready_out and (
            not self._outbox.is_empty
            or self.log.has_writes
            or self.snapshots.is_wanted
            or self.log.high_watermark != self._reported_high_watermark
            or self._election_state().must_replace(self._stored)
        )

    def ready(self, wall_ms: int) -> Ready:
        """Return what to do next; the shell answers with advance(). Own batches get wall_ms."""
        assert not self._is_ready_out, "the former Ready is still being worked on"
        self._is_ready_out = True
        truncate_to, batches = self.log.take_writes(wall_ms)
        state: ElectionState | None = self._election_state()
        assert state is not None
        if state.must_replace(self._stored):
            self._stored = state
        else:
            state = None
        reported, self._reported_high_watermark = (
            self._reported_high_watermark,
            self.log.high_watermark,
        )
        return Ready(
            election_state=state,
            install_snapshot=self.snapshots.take_wanted(),
            truncate_to=truncate_to,
            batches=batches,
            messages=self._outbox.take(),
            high_watermark=None if self.log.high_watermark == reported else self.log.high_watermark,
        )

    def advance(self) -> None:
        """Learn that the Ready is durable and sent."""
        assert self._is_ready_out
        self._is_ready_out = False
        if self.log.on_durable() and self.is_leader:
            self.answers.on_own_log_durable()

    def _election_state(self) -> ElectionState:
        """Return what must not be forgotten; an observer has promised nothing."""
        state = self.quorum.election_state
        if not self.quorum.is_voter:
            return replace(state, is_proven=False)
        return replace(
            state,
            is_proven=self.memory.is_proven,
            committed_offset=self.log.durable_committed_offset,
        )

    # ---- inputs

    def propose(self, values: Sequence[bytes]) -> int:
        """Queue records for the log; return the offset of the first. Raises NotLeaderError."""
        if not self.is_leader:
            raise NotLeaderError
        return self.log.propose(values, self.epoch)

    def resign(self, now_ms: float) -> None:
        """Stop leading for good (shutdown), and name who should try to succeed first."""
        self._roles.retire(now_ms)

    def tick(self, now_ms: float) -> None:
        """Act on every deadline that has passed."""
        self.answers.on_time(now_ms)
        match self.quorum.role:
            case Leader() as leader:
                self._tick_leader(leader, now_ms)
            case Follower() as follower:
                if now_ms >= follower.fetch_deadline_ms:
                    self._give_up_leader(now_ms)
                elif now_ms >= self._requests.next_ms:
                    self._requests.send(follower.leader_id, now_ms)
            case Unattached() as unattached:
                if not self._state.may_stand:
                    if now_ms >= self._requests.next_ms:
                        self._requests.send_to_any_voter(now_ms)
                elif now_ms >= unattached.election_deadline_ms:
                    self._elections.start(now_ms)
            case Resigned() as resigned:
                if now_ms >= resigned.election_deadline_ms:
                    self._elections.start(now_ms)
                else:
                    self._announcements.announce_end(resigned, now_ms)
            case Prospective() | Candidate() as electing:
                self._elections.on_time(electing, now_ms)

    def _tick_leader(self, role: Leader, now_ms: float) -> None:
        if not self.quorum.other_voters:
            return
        if now_ms >= role.check_quorum_deadline_ms:
            self._roles.resign(role, now_ms)
        else:
            self._announcements.announce_begin(role, now_ms)

    def _give_up_leader(self, now_ms: float) -> None:
        """Act on a leader that was silent for too long."""
        if self._state.may_stand:
            self._elections.start(now_ms)
        else:
            self._roles.become_unattached(self.epoch, now_ms)

    def next_deadline_ms(self) -> float | None:
        """Return when to call tick; None when nothing waits for time."""
        deadlines = list(self.answers.next_deadlines_ms())
        match self.quorum.role:
            case Leader() as role:
                if self.quorum.other_voters:
                    deadlines.append(role.check_quorum_deadline_ms)
                    if len(role.acknowledged) < len(self.quorum.other_voters):
                        deadlines.append(role.begin_epoch_retry_ms)
            case Follower() as follower:
                deadlines += [follower.fetch_deadline_ms, self._requests.next_ms]
            case Resigned() as resigned:
                deadlines.append(resigned.election_deadline_ms)
                if resigned.unconfirmed:
                    deadlines.append(resigned.end_epoch_retry_ms)
            case Unattached() | Prospective() | Candidate() as waiting:
                if self._state.may_stand:
                    deadlines.append(waiting.election_deadline_ms)
                else:
                    deadlines.append(self._requests.next_ms)
        return min(deadlines, default=None)

    def peer_unreachable(self, node_id: int, now_ms: float, *, refused: bool) -> None:
        """Learn that a message to a node was lost with its connection.

        refused: nothing listens there. Else the connection broke or could not be made, which says
        less: the node may only be slow.
        """
        requests = self._requests
        match self.quorum.role:
            case Follower() as follower if follower.leader_id == node_id:
                if refused and not self._state.may_stand:
                    requests.avoid(node_id)
                    self._roles.become_unattached(self.epoch, now_ms)
                    return
                if refused:
                    self._leader_loss.on_refused(follower, now_ms)
                requests.retry(now_ms, at_once=not refused)
            case Unattached() if requests.sent is not None and requests.sent.destination == node_id:
                requests.avoid(node_id)
                requests.retry(now_ms)
            case Resigned() as resigned if refused:
                resigned.unreachable.add(node_id)
            case Prospective() | Candidate() as electing if node_id in self.quorum.voters:
                self._elections.on_unreachable(electing, node_id, now_ms)

    def step(self, message: Message, now_ms: float) -> None:
        """Take a message from another node."""
        assert message.destination == self.node_id
        match message:
            case Vote():
                self._elections.on_vote(message, now_ms)
            case VoteReply():
                self._elections.on_vote_response(message, now_ms)
            case BeginQuorumEpoch():
                self._on_begin_quorum_epoch(message, now_ms)
            case BeginQuorumEpochReply():
                self._roles.adopt(message.epoch, message.leader_id, now_ms)
                self._announcements.on_begin_response(message)
            case EndQuorumEpoch():
                self._on_end_quorum_epoch(message, now_ms)
            case EndQuorumEpochReply():
                self._roles.adopt(message.epoch, message.leader_id, now_ms)
                self._announcements.on_end_response(message)
            case Fetch():
                if message.epoch > self.epoch and message.replica_id in self.quorum.voters:
                    self._roles.become_unattached(message.epoch, now_ms)
                self.answers.on_fetch(message, now_ms)
            case FetchReply():
                self._on_fetch_response(message, now_ms)

    def _on_begin_quorum_epoch(self, message: BeginQuorumEpoch, now_ms: float) -> None:
        if message.source in self.quorum.voters:
            self._roles.adopt(message.epoch, message.source, now_ms)
        error = ErrorCode.NONE if message.epoch == self.epoch else ErrorCode.FENCED_LEADER_EPOCH
        self._outbox.send(
            BeginQuorumEpochReply(
                self.node_id, message.source, self.epoch, self.leader_id, error, message.request_id
            )
        )

    def _on_end_quorum_epoch(self, message: EndQuorumEpoch, now_ms: float) -> None:
        if message.epoch > self.epoch and message.source in self.quorum.voters:
            self._roles.become_unattached(message.epoch, now_ms)
        error = ErrorCode.NONE if message.epoch == self.epoch else ErrorCode.FENCED_LEADER_EPOCH
        role = self.quorum.role
        if (
            error is ErrorCode.NONE
            and isinstance(role, Follower)
            and role.leader_id == message.source
        ):
            self._leader_loss.on_resigned(role, message.preferred_successors, now_ms)
        self._outbox.send(
            EndQuorumEpochReply(
                self.node_id, message.source, self.epoch, self.leader_id, error, message.request_id
            )
        )

    def _on_fetch_response(self, response: FetchReply, now_ms: float) -> None:
        is_current = self._roles.adopt(response.epoch, response.leader_id, now_ms)
        outcome = self._requests.on_response(response, now_ms, is_of_this_epoch=is_current)
        role = self.quorum.role
        if outcome is FetchOutcome.FOLLOWED:
            self._pace.on_leader_met()
        elif outcome is FetchOutcome.LEADER_GONE and isinstance(role, Follower):
            self._leader_loss.on_no_longer_leads(role, now_ms)
