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
4. A follower never truncates below its high watermark, nor below what its election state says was
   committed: that is CommittedRecordsError, which ends the node.
5. Proposals queued between two Readys become one batch (group commit), never split in themselves.

The parts: raft/base.py (fields, output, changes of role), raft/elections.py, raft/replication.py.

Called by: quorum/service.py, and by tests that wire several cores by plain calls. Protocol:
KIP-595 (pull replication), KIP-996 (pre-vote), KIP-630 (snapshots).
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftrio.kraft_meta.raft.elections import Elections
from kraftrio.kraft_meta.raft.messages import (
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
from kraftrio.kraft_meta.raft.quorum_state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kraftrio.kraft_meta.raft.ready import NotLeaderError, Proposal
from kraftrio.kraft_meta.raft.replication import Replication
from kraftrio.kraft_meta.raft.values import NO_NODE, SnapshotId


class RaftCore(Elections, Replication):
    """One node of the metadata quorum; an observer when its id is not among the voters."""

    # ---- inputs

    def tick(self, now_ms: float) -> None:
        """Act on what fell due."""
        for key in [key for key, p in self._parked.items() if p.deadline_ms <= now_ms]:
            self._answer_fetch(self._parked.pop(key).fetch)
        match self.quorum.role:
            case Leader() as leader:
                self._tick_leader(leader, now_ms)
            case Follower() as follower:
                if now_ms >= follower.fetch_deadline_ms:
                    if self.may_stand:
                        self._become_prospective(now_ms)
                    else:
                        self._become_unattached(self.epoch, now_ms)
                elif now_ms >= self._next_fetch_ms:
                    self._send_fetch(follower.leader_id, now_ms)
            case Unattached() as unattached:
                if not self.may_stand:
                    if now_ms >= self._next_fetch_ms:
                        self._fetch_from_any_voter(now_ms)
                elif now_ms >= unattached.election_deadline_ms:
                    self._become_prospective(now_ms)
            case Resigned() as resigned:
                self._tick_resigned(resigned, now_ms)
            case Prospective() | Candidate() as electing:
                self._tick_election(electing, now_ms)

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
                self._on_begin_quorum_epoch_response(message, now_ms)
            case EndQuorumEpoch():
                self._on_end_quorum_epoch(message, now_ms)
            case EndQuorumEpochResponse():
                self._on_end_quorum_epoch_response(message, now_ms)
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
        """Stop leading for good (shutdown); tells the others who should try first."""
        self._is_retiring = True
        role = self.quorum.role
        if isinstance(role, Leader):
            self._resign(role, now_ms)

    def may_be_succeeded(self) -> bool:
        """Tell whether this node has resigned and another may still take over."""
        role = self.quorum.role
        if isinstance(role, Resigned):
            return not role.unreachable.issuperset(self.quorum.other_voters)
        return self.leader_id == NO_NODE

    def peer_unreachable(self, node_id: int, now_ms: float, *, refused: bool) -> None:
        """Take the news that a message to a node was lost with its connection.

        refused: nobody listens there. Else the connection broke or could not be made, which says
        less: the node may only be slow.
        """
        match self.quorum.role:
            case Follower() as follower if follower.leader_id == node_id:
                if refused and not self.may_stand:
                    self._avoided_voter = node_id
                    self._become_unattached(self.epoch, now_ms)
                    return
                if refused:
                    self._suspect_leader(follower, now_ms)
                self._retry_fetch(now_ms, at_once=not refused)
            case Unattached() if self._fetch_sent is not None and (
                self._fetch_sent.destination == node_id
            ):
                self._avoided_voter = node_id
                self._retry_fetch(now_ms)
            case Resigned() as resigned if refused:
                resigned.unreachable.add(node_id)
            case Prospective() | Candidate() as electing if node_id in self.quorum.voters:
                electing.unreachable.add(node_id)
                self._count_votes(now_ms)

    def on_snapshot_written(self, snapshot_id: SnapshotId) -> None:
        """Learn that the log below a snapshot is needless."""
        self.epochs.clean_before(snapshot_id)

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
            case Resigned() as resigned:
                deadlines.append(resigned.election_deadline_ms)
                if resigned.unconfirmed:
                    deadlines.append(resigned.end_epoch_retry_ms)
            case Unattached() | Prospective() | Candidate() as waiting:
                if self.may_stand:
                    deadlines.append(waiting.election_deadline_ms)
                else:
                    deadlines.append(self._next_fetch_ms)
        return min(deadlines, default=None)
