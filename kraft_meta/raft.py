"""The consensus core: who leads the metadata quorum, and which records are committed.

Owns: `RaftCore`, sans-IO. Inputs are `step(message)`, `tick`, `propose`, `resign` and news of
snapshots; the output is `ready()`, one value that names what to do, in this order:
    1. write the election state, 2. truncate and append to the log and make it durable,
    3. send the messages, 4. apply what is committed, 5. call `advance()`.
While a Ready is being worked on, inputs may go on; the next `ready()` comes after `advance()`.
Invariants:
1. A message leaves only after what it claims is durable (the vote, the log end it tells).
2. A leader counts itself and answers fetches only up to what is durable (`stable_end_offset`).
3. The high watermark moves by majority, and only once a record of the leader's own epoch is
   covered (its LeaderChange record), as KIP-595 says; it never goes back.
4. A follower never truncates below its high watermark.
5. Proposals queued between two Readys become one batch (group commit), never split in themselves.

Called by: quorum_service.py, and by tests that wire several cores by plain calls. Protocol:
KIP-595 (pull replication), KIP-996 (pre-vote), KIP-630 (snapshots).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kraftrio.kraft_meta.epoch_starts import EpochStarts
from kraftrio.kraft_meta.ports import (
    NO_NODE,
    ElectionState,
    LogBatch,
    LogReader,
    OffsetAndEpoch,
    SnapshotId,
)
from kraftrio.kraft_meta.quorum_state import (
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
from kraftrio.kraft_meta.raft_messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochResponse,
    EndQuorumEpoch,
    EndQuorumEpochResponse,
    Fetch,
    FetchResponse,
    Message,
    Vote,
    VoteResponse,
)
from kraftrio.kraft_meta.raft_ready import (
    NotLeaderError,
    ParkedFetch,
    Proposal,
    RaftConfig,
    Ready,
    leader_change_record,
)
from kraftrio.wire.errors import ErrorCode

_UNSTAMPED: Final = -1


class RaftCore:
    """One node of the metadata quorum; an observer when its id is not among the voters."""

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
        # What a snapshot holds is committed.
        self.high_watermark = epochs.log_start_offset or None
        self.stable_end_offset = epochs.log_end_offset
        self._messages: list[Message] = []
        self._batches: list[LogBatch] = []
        self._proposals: list[Proposal] = []
        self._truncate_to: int | None = None
        self._install_snapshot: tuple[int, SnapshotId] | None = None
        self._applied_told: int | None = None
        self._in_flight: Ready | None = None
        self._in_flight_end: int | None = None
        self._parked: dict[int, ParkedFetch] = {}
        self._fetch_sent: Fetch | None = None
        self._next_fetch_ms = now_ms
        loaded = stored if stored is not None else ElectionState()
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
        if loaded.leader_id == quorum.node_id:
            quorum.restore(Resigned(self._election_deadline(now_ms)), quorum.node_id)
        elif loaded.leader_id != NO_NODE:
            quorum.restore(
                Follower(loaded.leader_id, now_ms + self.config.fetch_timeout_ms),
                loaded.leader_id,
            )
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

    def next_deadline_ms(self) -> float | None:
        """Return when to call tick; None when nothing waits for time."""
        deadlines = [parked.deadline_ms for parked in self._parked.values()]
        match self.quorum.role:
            case Leader() as role:
                if self.quorum.other_voters:
                    deadlines.append(role.check_quorum_deadline_ms)
                    if len(role.acknowledged) < len(self.quorum.other_voters):
                        deadlines.append(role.begin_epoch_retry_ms)
            case Follower() as follower:
                deadlines += [follower.fetch_deadline_ms, self._next_fetch_ms]
            case Unattached() | Prospective() | Candidate() | Resigned() as waiting:
                if self.quorum.is_voter:
                    deadlines.append(waiting.election_deadline_ms)
                else:
                    deadlines.append(self._next_fetch_ms)
        return min(deadlines, default=None)

    # ---- inputs

    def tick(self, now_ms: float) -> None:
        """Act on what fell due."""
        for source in [s for s, p in self._parked.items() if p.deadline_ms <= now_ms]:
            self._answer_fetch(self._parked.pop(source).fetch)
        match self.quorum.role:
            case Leader() as role:
                self._tick_leader(role, now_ms)
            case Follower() as follower:
                if now_ms >= follower.fetch_deadline_ms:
                    if self.quorum.is_voter:
                        self._become_prospective(now_ms)
                    else:
                        self._become_unattached(self.epoch, now_ms)
                elif now_ms >= self._next_fetch_ms:
                    self._send_fetch(follower.leader_id, now_ms)
            case Unattached() | Resigned() as waiting:
                if not self.quorum.is_voter:
                    if now_ms >= self._next_fetch_ms:
                        self._send_fetch(self._rng.choice(self.quorum.voters), now_ms)
                elif now_ms >= waiting.election_deadline_ms:
                    self._become_prospective(now_ms)
            case Prospective() as prospective:
                if now_ms >= prospective.election_deadline_ms:
                    self._become_unattached(self.epoch, now_ms)
            case Candidate() as candidate:
                if now_ms >= candidate.election_deadline_ms:
                    self._become_prospective(now_ms)

    def step(self, message: Message, now_ms: float) -> None:
        """Take a message from another node."""
        assert message.destination == self.node_id
        match message:
            case Vote():
                self._on_vote(message, now_ms)
            case VoteResponse():
                self._on_vote_response(message, now_ms)
            case BeginQuorumEpoch():
                self._on_begin_quorum_epoch(message, now_ms)
            case BeginQuorumEpochResponse():
                self._adopt(message.epoch, message.leader_id, now_ms)
                role = self.quorum.role
                if (
                    isinstance(role, Leader)
                    and message.epoch == self.epoch
                    and message.source in role.progress
                ):
                    role.acknowledged[message.source] = True
            case EndQuorumEpoch():
                self._on_end_quorum_epoch(message, now_ms)
            case EndQuorumEpochResponse():
                self._adopt(message.epoch, message.leader_id, now_ms)
            case Fetch():
                self._on_fetch(message, now_ms)
            case FetchResponse():
                self._on_fetch_response(message, now_ms)

    def propose(self, values: Sequence[bytes]) -> int:
        """Queue records for the log; return the offset of the first. Raises NotLeaderError."""
        if not self.is_leader:
            raise NotLeaderError
        base_offset = self.epochs.log_end_offset
        self._proposals.append(Proposal(base_offset, tuple(values)))
        self.epochs.append(self.epoch, base_offset, base_offset + len(values))
        return base_offset

    def resign(self, now_ms: float) -> None:
        """Stop leading on purpose (shutdown); tells the others who should try first."""
        role = self.quorum.role
        if isinstance(role, Leader):
            self._resign(role, now_ms)

    def on_snapshot_written(self, snapshot_id: SnapshotId) -> None:
        """Learn that the log below a snapshot is needless."""
        self.epochs.clean_before(snapshot_id)

    def on_snapshot_installed(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """Learn that the snapshot which the leader offered is on disk and the log starts there."""
        self._install_snapshot = None
        self.epochs.reset_to(snapshot_id)
        self.stable_end_offset = snapshot_id.end_offset
        if self.high_watermark is None or self.high_watermark < snapshot_id.end_offset:
            self.high_watermark = snapshot_id.end_offset
        self._next_fetch_ms = now_ms

    # ---- outputs

    def has_ready(self) -> bool:
        """Tell whether ready() has something new."""
        return self._in_flight is None and (
            bool(self._messages or self._batches or self._proposals)
            or self._truncate_to is not None
            or self._install_snapshot is not None
            or self.high_watermark != self._applied_told
            or self.quorum.election_state != self._stored
        )

    def ready(self, wall_ms: int) -> Ready:
        """Return what to do next; the shell answers with advance(). Own batches get wall_ms."""
        assert self._in_flight is None, "the former Ready is still being worked on"
        self._seal_proposals()
        state = self.quorum.election_state
        ready = Ready(
            election_state=None if state == self._stored else state,
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
                self._maybe_advance_high_watermark()
                self._wake_parked()

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

    def _leave_role(self) -> None:
        """Drop what belongs to the role being left."""
        # Sealed first: what was proposed in the old epoch is in the log's order already.
        self._seal_proposals()
        parked, self._parked = self._parked, {}
        self._fetch_sent = None
        for entry in parked.values():
            self._refuse_fetch(entry.fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _become_unattached(self, epoch: int, now_ms: float) -> None:
        self._leave_role()
        self.quorum.become_unattached(epoch, self._election_deadline(now_ms))
        self._next_fetch_ms = now_ms

    def _become_prospective(self, now_ms: float) -> None:
        self._leave_role()
        self.quorum.become_prospective(self._election_deadline(now_ms))
        self._ask_for_votes(pre_vote=True)
        self._count_votes(now_ms)

    def _become_candidate(self, now_ms: float) -> None:
        self._leave_role()
        self.quorum.become_candidate(self._election_deadline(now_ms))
        self._ask_for_votes(pre_vote=False)
        self._count_votes(now_ms)

    def _become_follower(self, epoch: int, leader_id: int, now_ms: float) -> None:
        self._leave_role()
        self.quorum.become_follower(epoch, leader_id, now_ms + self.config.fetch_timeout_ms)
        self._send_fetch(leader_id, now_ms)

    def _become_leader(self, role: Candidate, now_ms: float) -> None:
        self._leave_role()
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
        key, value = leader_change_record(self.node_id, quorum.voters, granting)
        self._batches.append(LogBatch(start, self.epoch, _UNSTAMPED, (value,), (key,)))
        self.epochs.append(self.epoch, start, start + 1)
        self.tick(now_ms)

    def _resign(self, role: Leader, now_ms: float) -> None:
        successors = sorted(role.progress, key=lambda v: (-role.progress[v].log_end_offset, v))
        self._leave_role()
        self.quorum.become_resigned(self._election_deadline(now_ms))
        for voter in self.quorum.other_voters:
            self._messages.append(
                EndQuorumEpoch(self.node_id, voter, self.epoch, tuple(successors))
            )

    def _adopt(self, epoch: int, leader_id: int, now_ms: float) -> bool:
        """Follow what a response says about epoch and leader; True when it is of this epoch."""
        if epoch > self.epoch:
            if leader_id not in (NO_NODE, self.node_id):
                self._become_follower(epoch, leader_id, now_ms)
            else:
                self._become_unattached(epoch, now_ms)
        elif (
            epoch == self.epoch
            and leader_id not in (NO_NODE, self.node_id)
            and isinstance(self.quorum.role, Unattached | Prospective | Candidate)
        ):
            self._become_follower(epoch, leader_id, now_ms)
        return epoch == self.epoch

    # ---- elections

    def _ask_for_votes(self, *, pre_vote: bool) -> None:
        for voter in self.quorum.other_voters:
            self._messages.append(Vote(self.node_id, voter, self.epoch, self.epochs.end, pre_vote))

    def _count_votes(self, now_ms: float) -> None:
        role = self.quorum.role
        assert isinstance(role, Prospective | Candidate)
        granted = sum(role.votes.values())
        rejected = len(role.votes) - granted
        if granted >= self.quorum.majority:
            if isinstance(role, Prospective):
                self._become_candidate(now_ms)
            else:
                self._become_leader(role, now_ms)
        elif rejected > len(self.quorum.voters) - self.quorum.majority:
            backoff_ms = self._rng.random() * self.config.election_backoff_max_ms
            role.election_deadline_ms = min(role.election_deadline_ms, now_ms + backoff_ms)

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
            role = self.quorum.role
            assert isinstance(role, Unattached | Prospective)
            role.election_deadline_ms = self._election_deadline(now_ms)
        self._messages.append(
            VoteResponse(
                self.node_id, vote.source, self.epoch, self.leader_id, granted, vote.pre_vote
            )
        )

    def _may_grant(self, vote: Vote) -> bool:
        own = self.epochs.end
        theirs = vote.last_offset_and_epoch
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

    def _on_begin_quorum_epoch(self, message: BeginQuorumEpoch, now_ms: float) -> None:
        self._adopt(message.epoch, message.source, now_ms)
        error = ErrorCode.NONE if message.epoch == self.epoch else ErrorCode.FENCED_LEADER_EPOCH
        self._messages.append(
            BeginQuorumEpochResponse(
                self.node_id, message.source, self.epoch, self.leader_id, error
            )
        )

    def _on_end_quorum_epoch(self, message: EndQuorumEpoch, now_ms: float) -> None:
        if message.epoch > self.epoch:
            self._become_unattached(message.epoch, now_ms)
        role = self.quorum.role
        error = ErrorCode.NONE if message.epoch == self.epoch else ErrorCode.FENCED_LEADER_EPOCH
        if (
            error is ErrorCode.NONE
            and isinstance(role, Follower)
            and role.leader_id == message.source
        ):
            successors, me = message.preferred_successors, self.node_id
            position = successors.index(me) if me in successors else len(successors)
            role.has_fetched = False
            step_ms = self.config.election_backoff_max_ms / 10
            role.fetch_deadline_ms = now_ms + position * step_ms * (1 + self._rng.random())
        self._messages.append(
            EndQuorumEpochResponse(self.node_id, message.source, self.epoch, self.leader_id, error)
        )

    # ---- leading

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

    def _on_fetch(self, fetch: Fetch, now_ms: float) -> None:
        role = self.quorum.role
        if fetch.epoch > self.epoch and fetch.source in self.quorum.voters:
            self._become_unattached(fetch.epoch, now_ms)
            role = self.quorum.role
        if not isinstance(role, Leader):
            self._refuse_fetch(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if fetch.epoch != self.epoch:
            fenced = fetch.epoch < self.epoch
            self._refuse_fetch(
                fetch,
                ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
            return
        if fetch.source in role.progress:
            role.acknowledged[fetch.source] = True
        response = self._check_fetch_offset(fetch)
        self._record_fetch(role, fetch, now_ms, valid=response is None)
        if response is not None:
            self._messages.append(response)
            return
        before = self.high_watermark
        self._maybe_advance_high_watermark()
        if self.high_watermark != before:
            self._wake_parked()
        has_news = fetch.fetch_offset < self.stable_end_offset or (
            self.high_watermark is not None and self.high_watermark > fetch.high_watermark
        )
        if has_news or fetch.max_wait_ms <= 0:
            self._answer_fetch(fetch)
        else:
            self._parked[fetch.source] = ParkedFetch(fetch, now_ms + fetch.max_wait_ms)

    def _check_fetch_offset(self, fetch: Fetch) -> FetchResponse | None:
        """Return the answer for a replica whose log is not a prefix of this one."""
        found = self.epochs.check_prefix(
            OffsetAndEpoch(fetch.fetch_offset, fetch.last_fetched_epoch)
        )
        if found is None:
            return None
        if isinstance(found, SnapshotId):
            return self._fetch_response(fetch, snapshot_id=found)
        return self._fetch_response(fetch, diverging=found)

    def _record_fetch(self, role: Leader, fetch: Fetch, now_ms: float, *, valid: bool) -> None:
        role.record_fetch(
            fetch.source, fetch.fetch_offset if valid else None, self.stable_end_offset, now_ms
        )
        contact_ms = role.majority_contact_ms(self.quorum.majority)
        if contact_ms >= 0:
            deadline_ms = contact_ms + self.config.check_quorum_timeout_ms
            role.check_quorum_deadline_ms = max(role.check_quorum_deadline_ms, deadline_ms)

    def _maybe_advance_high_watermark(self) -> None:
        role = self.quorum.role
        assert isinstance(role, Leader)
        majority_end = role.majority_end_offset(self.stable_end_offset, self.quorum.majority)
        if majority_end > role.epoch_start_offset and (
            self.high_watermark is None or majority_end > self.high_watermark
        ):
            self.high_watermark = majority_end

    def _wake_parked(self) -> None:
        """Answer parked fetches: there are records for them, or a new high watermark."""
        parked, self._parked = self._parked, {}
        for entry in parked.values():
            self._answer_fetch(entry.fetch)

    def _answer_fetch(self, fetch: Fetch) -> None:
        if not self.is_leader:
            self._refuse_fetch(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        batches: list[LogBatch] = []
        if self.epochs.log_start_offset <= fetch.fetch_offset < self.stable_end_offset:
            batches = self._log.read(
                fetch.fetch_offset, self.stable_end_offset, self.config.fetch_max_bytes
            )
        self._messages.append(self._fetch_response(fetch, batches=tuple(batches)))

    def _refuse_fetch(self, fetch: Fetch, error: ErrorCode) -> None:
        self._messages.append(self._fetch_response(fetch, error=error))

    def _fetch_response(
        self,
        fetch: Fetch,
        *,
        error: ErrorCode = ErrorCode.NONE,
        batches: tuple[LogBatch, ...] = (),
        diverging: OffsetAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
    ) -> FetchResponse:
        return FetchResponse(
            source=self.node_id,
            destination=fetch.source,
            epoch=self.epoch,
            leader_id=self.leader_id,
            fetch_offset=fetch.fetch_offset,
            last_fetched_epoch=fetch.last_fetched_epoch,
            error=error,
            high_watermark=-1 if self.high_watermark is None else self.high_watermark,
            batches=batches,
            diverging=diverging,
            snapshot_id=snapshot_id,
        )

    # ---- following

    def _send_fetch(self, destination: int, now_ms: float) -> None:
        end = self.epochs.end
        fetch = Fetch(
            source=self.node_id,
            destination=destination,
            epoch=self.epoch,
            fetch_offset=end.offset,
            last_fetched_epoch=end.epoch,
            high_watermark=-1 if self.high_watermark is None else self.high_watermark,
            max_wait_ms=self.config.fetch_max_wait_ms,
        )
        self._fetch_sent = fetch
        self._next_fetch_ms = now_ms + self.config.request_timeout_ms
        self._messages.append(fetch)

    def _on_fetch_response(self, response: FetchResponse, now_ms: float) -> None:
        same_epoch = self._adopt(response.epoch, response.leader_id, now_ms)
        role, sent = self.quorum.role, self._fetch_sent
        if isinstance(role, Unattached):
            self._next_fetch_ms = now_ms + self.config.retry_backoff_ms
        if (
            not same_epoch
            or not isinstance(role, Follower)
            or response.source != role.leader_id
            or sent is None
            or sent.epoch != self.epoch
            or (sent.fetch_offset, sent.last_fetched_epoch)
            != (response.fetch_offset, response.last_fetched_epoch)
        ):
            return
        self._fetch_sent = None
        if response.error is not ErrorCode.NONE:
            self._next_fetch_ms = now_ms + self.config.retry_backoff_ms
            return
        role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
        role.has_fetched = True
        if response.snapshot_id is not None:
            self._install_snapshot = (response.source, response.snapshot_id)
            self._next_fetch_ms = now_ms + self.config.request_timeout_ms
            return
        if response.diverging is not None:
            self._truncate_diverging(response.diverging)
        else:
            self._append_fetched(response)
        self._send_fetch(role.leader_id, now_ms)

    def _truncate_diverging(self, diverging: OffsetAndEpoch) -> None:
        own = self.epochs.end_offset_for_epoch(diverging.epoch)
        offset = own.offset if own.epoch != diverging.epoch else min(own.offset, diverging.offset)
        offset = max(offset, self.epochs.log_start_offset)
        assert self.high_watermark is None or offset >= self.high_watermark, (
            "a follower never truncates what is committed"
        )
        # The fetch that this answers left after everything before it was on disk.
        assert not self._batches
        if offset < self.epochs.log_end_offset:
            self.epochs.truncate_to(offset)
            self.stable_end_offset = min(self.stable_end_offset, offset)
            self._truncate_to = offset

    def _append_fetched(self, response: FetchResponse) -> None:
        for batch in response.batches:
            if batch.base_offset != self.epochs.log_end_offset:
                break
            self.epochs.append(batch.epoch, batch.base_offset, batch.end_offset)
            self._batches.append(batch)
        high_watermark = min(response.high_watermark, self.epochs.log_end_offset)
        if high_watermark >= 0 and (
            self.high_watermark is None or high_watermark > self.high_watermark
        ):
            self.high_watermark = high_watermark
