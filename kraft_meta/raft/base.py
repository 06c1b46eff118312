"""What every part of the consensus core stands on: its fields, its output, its changes of role.

Owns: `RaftBase`, sans-IO. Rules: raft.py says them; roles change here alone, and each change first
drops what belongs to the role being left. What a new role begins with (asking for votes, fetching)
is declared here and defined in raft/elections.py and raft/replication.py.

Called by: its subclasses; `RaftCore` in raft.py is the one that others use.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.messages import Fetch, Message
from kraftrio.kraft_meta.raft.ports import LogReader
from kraftrio.kraft_meta.raft.quorum_state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    QuorumState,
    ReplicaProgress,
    Resigned,
    State,
    Unattached,
)
from kraftrio.kraft_meta.raft.ready import (
    CommittedRecordsError,
    ParkedFetch,
    Proposal,
    RaftConfig,
    Ready,
    SnapshotOffer,
    leader_change_record,
)
from kraftrio.kraft_meta.raft.values import NO_NODE, ElectionState, LogBatch, SnapshotId
from kraftrio.kraft_meta.raft.voter_memory import VoterMemory
from kraftrio.wire.errors import ErrorCode

_UNSTAMPED: Final = -1
_COMMITTED_STEP: Final = 1000  # records that are committed until the election state says so


class RaftBase(ABC):
    """Fields, output and moves.

    Raises:
        CommittedRecordsError: a quorum of one lacks what it had committed; nobody else has it.
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        log: LogReader,
        epochs: EpochStarts,
        stored: ElectionState | None,
        config: RaftConfig,
        rng: random.Random,
        now_ms: float,
    ) -> None:
        assert voters, "a quorum has at least one voter"
        self.config = config
        self.epochs = epochs
        self._log = log
        self._rng = rng
        self._stored = stored
        loaded = stored if stored is not None else ElectionState()
        # What a snapshot holds is committed, and what the election state says.
        self.committed_floor = max(epochs.log_start_offset, loaded.committed_offset)
        has_lost_records = self.committed_floor > epochs.log_end_offset
        if has_lost_records and tuple(voters) == (node_id,):
            raise CommittedRecordsError(
                f"it ends at offset {epochs.log_end_offset}, but at least the records up to"
                f" offset {self.committed_floor - 1} were committed: bring them back, or accept"
                " the loss with 'kraftrio recover-quorum'"
            )
        self.high_watermark = None if has_lost_records else self.committed_floor or None
        is_marked = loaded.is_proven
        if is_marked is None:  # it was written before there was a mark
            is_marked = stored is not None and epochs.log_end_offset > 0
        self.memory = VoterMemory(node_id, voters, is_proven=is_marked and not has_lost_records)
        self.stable_end_offset = epochs.log_end_offset
        self._messages: list[Message] = []
        self._batches: list[LogBatch] = []
        self._proposals: list[Proposal] = []
        self._truncate_to: int | None = None
        self._install_snapshot: tuple[int, SnapshotId] | None = None
        self._applied_told: int | None = None
        self._in_flight: Ready | None = None
        self._in_flight_end: int | None = None
        self._parked: dict[tuple[int, int], ParkedFetch] = {}
        self._fetch_sent: Fetch | None = None
        self._fetch_count = 0
        self._next_fetch_ms = now_ms
        self._failed_fetches = 0
        self._snapshot_offer: SnapshotOffer | None = None
        self._is_installing = False
        self._lost_elections = 0
        self._missing_votes: list[int] = []  # of the last election that was not won
        self._suspicions = 0
        self._suspected_until_ms = -math.inf
        self._avoided_voter = NO_NODE
        self._is_retiring = False
        self.has_met_leader = False  # since the start
        # The epoch whose leader is known to have resigned: who still names it is late.
        self._ended_epoch = -1
        # A log that is ahead of the stored epoch (the state file was lost) must not vote again in
        # an epoch that it has records of.
        if loaded.epoch < epochs.last_epoch:
            loaded = ElectionState(epochs.last_epoch)
        self.quorum = QuorumState(
            node_id, tuple(voters), loaded, Unattached(self._election_deadline(now_ms))
        )
        self._restore(loaded, now_ms)

    def _restore(self, loaded: ElectionState, now_ms: float) -> None:
        quorum = self.quorum
        if quorum.is_voter and not self.may_stand:
            quorum.restore(Unattached(now_ms), NO_NODE)  # it looks for the leader
        elif loaded.leader_id == quorum.node_id:
            others = quorum.other_voters
            quorum.restore(
                Resigned(self._election_deadline(now_ms), tuple(others), set(others), now_ms),
                quorum.node_id,
            )
        elif loaded.leader_id != NO_NODE:
            quorum.restore(
                Follower(loaded.leader_id, now_ms + self.config.fetch_timeout_ms),
                loaded.leader_id,
            )
        elif quorum.is_voter:
            # A pre-vote disturbs nobody, and tells who leads or that nobody does: asked soon.
            start_ms = now_ms + self._rng.random() * self.config.election_timeout_ms / 10
            quorum.restore(Unattached(start_ms), NO_NODE)
        if quorum.voters == (quorum.node_id,):
            self._become_prospective(now_ms)

    # ---- what others may ask

    @property
    def node_id(self) -> int:
        return self.quorum.node_id

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch as far as known; -1 when not. A resigned leader is none."""
        if isinstance(self.quorum.role, Resigned):
            return NO_NODE
        return self.quorum.leader_id

    @property
    def state(self) -> State:
        return self.quorum.role.state

    @property
    def is_leader(self) -> bool:
        return isinstance(self.quorum.role, Leader)

    @property
    def log_end_offset(self) -> int:
        """The end of the log including what is only proposed."""
        return self.epochs.log_end_offset

    @property
    def has_nothing(self) -> bool:
        """This node has no record, and knows of none that it should have."""
        return self.epochs.log_end_offset == 0 and self.committed_floor == 0

    @property
    def may_stand(self) -> bool:
        """This node may ask for votes; one that may not looks for the leader as observers do."""
        return self.quorum.is_voter and self.memory.may_stand(has_nothing=self.has_nothing)

    @property
    def votes_needed(self) -> int:
        """How many voters elect this node, itself included."""
        return self.memory.votes_needed(has_nothing=self.has_nothing)

    @property
    def missing_votes(self) -> list[int]:
        """The voters without which a new cluster is not founded; none once it is."""
        is_waiting = isinstance(self.quorum.role, Unattached | Prospective | Candidate)
        return self._missing_votes if self.has_nothing and is_waiting else []

    def check_leader_request(self, epoch: int) -> ErrorCode:
        """Tell whether a request of an epoch that only a leader answers is for this node."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # ---- outputs

    def has_ready(self) -> bool:
        """Tell whether ready() has something new."""
        return self._in_flight is None and (
            bool(self._messages or self._batches or self._proposals)
            or self._truncate_to is not None
            or self._install_snapshot is not None
            or self.high_watermark != self._applied_told
            or self._must_store(self._election_state())
        )

    def _election_state(self) -> ElectionState:
        """Return what must not be forgotten; an observer has promised nothing."""
        state = self.quorum.election_state
        if not self.quorum.is_voter:
            return replace(state, is_proven=False)
        durable = min(self.high_watermark or 0, self.stable_end_offset)
        return replace(
            state,
            is_proven=self.memory.is_proven,
            committed_offset=max(durable, self.committed_floor),
        )

    def _must_store(self, state: ElectionState) -> bool:
        """Tell whether an election state says more than the stored one.

        That the leader is unknown again need not be remembered: pre-votes do not wait for a disk.
        What is committed is written with what else is to be; alone it is the first time, so that
        from then on a log that is gone is missed, and now and then.
        """
        stored = self._stored
        return (
            stored is None
            or (state.epoch, state.voted_id) != (stored.epoch, stored.voted_id)
            or state.leader_id not in (NO_NODE, stored.leader_id)
            or state.is_proven != stored.is_proven
            or (state.committed_offset > 0 and stored.committed_offset == 0)
            or state.committed_offset - stored.committed_offset >= _COMMITTED_STEP
        )

    def _check_uncommitted(self, offset: int, leader_id: int, what: str) -> None:
        """Raise CommittedRecordsError if the log may not be replaced from an offset on."""
        committed = max(self.high_watermark or 0, self.committed_floor)
        if offset < committed <= self.epochs.log_end_offset:
            raise CommittedRecordsError(
                f"node {leader_id}, which leads epoch {self.epoch}, {what} offset {offset},"
                f" but records up to offset {committed} are known here to be committed: taking its"
                f" log would lose the records {offset} to {self.log_end_offset - 1} of this node;"
                " to give them up, move its metadata log away"
            )

    def ready(self, wall_ms: int) -> Ready:
        """Return what to do next; the shell answers with advance(). Own batches get wall_ms."""
        assert self._in_flight is None, "the former Ready is still being worked on"
        self._seal_proposals()
        state = self._election_state()
        ready = Ready(
            election_state=state if self._must_store(state) else None,
            install_snapshot=self._install_snapshot,
            truncate_to=self._truncate_to,
            batches=tuple(
                replace(batch, timestamp_ms=wall_ms) if batch.timestamp_ms == _UNSTAMPED else batch
                for batch in self._batches
            ),
            messages=tuple(self._messages),
            high_watermark=(
                None if self.high_watermark == self._applied_told else self.high_watermark
            ),
        )
        if ready.election_state is not None:
            self._stored = state
        self._applied_told = self.high_watermark
        self._truncate_to = None
        self._install_snapshot = None
        self._batches = []
        self._messages = []
        self._in_flight = ready
        self._in_flight_end = ready.batches[-1].end_offset if ready.batches else None
        return ready

    def advance(self) -> None:
        """Learn that the Ready is durable and sent."""
        assert self._in_flight is not None
        self._in_flight = None
        end, self._in_flight_end = self._in_flight_end, None
        # A truncation that came meanwhile cut what was in flight; it is ordered after it.
        if end is not None and end <= self.epochs.log_end_offset:
            self.stable_end_offset = max(self.stable_end_offset, end)
            if self.is_leader:
                self._on_own_log_durable()

    def _seal_proposals(self) -> None:
        """Merge queued proposals into as few batches as may be (invariant 5)."""
        proposals, self._proposals = self._proposals, []
        values: list[bytes] = []
        base_offset = -1
        for proposal in proposals:
            if values and len(values) + len(proposal.values) > self.config.batch_max_records:
                self._batches.append(self._batch(base_offset, values))
                values = []
            if not values:
                base_offset = proposal.base_offset
            values.extend(proposal.values)
        if values:
            self._batches.append(self._batch(base_offset, values))

    def _batch(self, base_offset: int, values: list[bytes]) -> LogBatch:
        return LogBatch(base_offset, self.epoch, _UNSTAMPED, tuple(values))

    # ---- moves

    def _election_deadline(self, now_ms: float) -> float:
        timeout_ms = self.config.election_timeout_ms
        return now_ms + timeout_ms + self._rng.random() * timeout_ms

    @abstractmethod
    def tick(self, now_ms: float) -> None:
        """Act on what fell due."""

    @abstractmethod
    def _ask_for_votes(self, *, pre_vote: bool) -> None:
        """Send a vote request to every other voter."""

    @abstractmethod
    def _count_votes(self, now_ms: float) -> None:
        """Act on the votes that have come."""

    @abstractmethod
    def _send_fetch(self, destination: int, now_ms: float) -> None:
        """Ask for what follows the log."""

    @abstractmethod
    def _refuse_fetch(self, fetch: Fetch, error: ErrorCode) -> None:
        """Answer a fetch with an error."""

    @abstractmethod
    def _ask_for_epochs(self) -> None:
        """Ask the other voters in which epoch they are, as long as that proves anything."""

    @abstractmethod
    def _ask_voter_for_epoch(self, voter: int) -> None:
        """Ask one of them; it learns of this node's epoch, too."""

    @abstractmethod
    def _on_epoch_ended(self, role: Follower, now_ms: float) -> None:
        """Act on the leader's word that it does not lead any more."""

    @abstractmethod
    def _on_own_log_durable(self) -> None:
        """Act as the leader on more of the log being durable."""

    def _leave_role(self) -> list[Fetch]:
        """Drop what belongs to the role being left; return the fetches that must be refused."""
        # Sealed first: what was proposed in the old epoch is in the log's order already.
        self._seal_proposals()
        parked, self._parked = self._parked, {}
        self._fetch_sent = None
        return [entry.fetch for entry in parked.values()]

    def _refuse_fetches(self, fetches: list[Fetch]) -> None:
        """Refuse what was parked, once the new role is known."""
        for fetch in fetches:
            self._refuse_fetch(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _become_unattached(self, epoch: int, now_ms: float) -> None:
        parked = self._leave_role()
        self.quorum.become_unattached(epoch, self._election_deadline(now_ms))
        self.memory.on_epoch_begun(epoch, has_leader=False)
        self._next_fetch_ms = now_ms
        self._refuse_fetches(parked)

    def _become_prospective(self, now_ms: float) -> None:
        if self._is_retiring or self._is_installing or not self.may_stand:
            self._become_unattached(self.epoch, now_ms)
            return
        parked = self._leave_role()
        self.quorum.become_prospective(self._election_deadline(now_ms))
        self._refuse_fetches(parked)
        self._ask_for_votes(pre_vote=True)
        self._count_votes(now_ms)

    def _become_candidate(self, now_ms: float) -> None:
        parked = self._leave_role()
        self.quorum.become_candidate(self._election_deadline(now_ms))
        if self.has_nothing:
            self.memory.on_founding_vote()
        self._refuse_fetches(parked)
        self._ask_for_votes(pre_vote=False)
        self._count_votes(now_ms)

    def _become_follower(self, epoch: int, leader_id: int, now_ms: float) -> None:
        parked = self._leave_role()
        self.quorum.become_follower(epoch, leader_id, now_ms + self.config.fetch_timeout_ms)
        self.memory.on_epoch_begun(epoch, has_leader=True)
        self._refuse_fetches(parked)
        self._send_fetch(leader_id, now_ms)

    def _become_leader(self, role: Candidate, now_ms: float) -> None:
        parked = self._leave_role()
        assert not parked, "only leaders park fetches"
        quorum = self.quorum
        granting = [voter for voter in quorum.voters if role.votes.get(voter)]
        start = self.epochs.log_end_offset
        quorum.become_leader(
            Leader(
                epoch_start_offset=start,
                check_quorum_deadline_ms=now_ms + self.config.check_quorum_timeout_ms,
                begin_epoch_retry_ms=now_ms,
                progress={voter: ReplicaProgress() for voter in quorum.other_voters},
            )
        )
        self._lost_elections = 0
        self.has_met_leader = True
        key, value = leader_change_record(self.node_id, quorum.voters, granting)
        self._batches.append(LogBatch(start, self.epoch, _UNSTAMPED, (value,), (key,)))
        self.epochs.append(self.epoch, start, start + 1)
        self.tick(now_ms)

    def _resign(self, role: Leader, now_ms: float) -> None:
        successors = sorted(role.progress, key=lambda v: (-role.progress[v].log_end_offset, v))
        parked = self._leave_role()
        self.quorum.become_resigned(
            Resigned(self._election_deadline(now_ms), tuple(successors), set(successors), now_ms)
        )
        self._refuse_fetches(parked)
        self.tick(now_ms)

    def _adopt(self, epoch: int, leader_id: int, now_ms: float) -> bool:
        """Follow what a response says about epoch and leader; True when it is of this epoch."""
        if epoch > self.epoch:
            if leader_id not in (NO_NODE, self.node_id):
                self._become_follower(epoch, leader_id, now_ms)
            else:
                self._become_unattached(epoch, now_ms)
        elif (
            epoch == self.epoch
            and epoch != self._ended_epoch
            and leader_id not in (NO_NODE, self.node_id)
            and isinstance(self.quorum.role, Unattached | Prospective | Candidate)
        ):
            self._become_follower(epoch, leader_id, now_ms)
        return epoch == self.epoch
