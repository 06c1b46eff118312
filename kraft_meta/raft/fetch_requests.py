"""A follower's side of replication: what it asks for, and what the answers mean (`FetchRequests`).

Owns: the one fetch that is under way, and which voter an observer avoids. Rules:
1. One fetch is under way at a time; an answer counts if it is about the log as it is now.
2. The leader's answer appends to the log, truncates it where they diverge, or offers a snapshot.
3. A voter that may not be believed yet asks the others for their epoch once it has caught up
   (voter_memory.py), by a pre-vote request without consequences.

Called by: raft.py, role_transitions.py.
Tested by: tests/unit/kraft_meta/raft/test_raft.py, by whole cores.
"""

from __future__ import annotations

import math
import random
from enum import Enum

from kraftrio.kraft_meta.raft.core_state import CoreState
from kraftrio.kraft_meta.raft.messages import NO_FETCH_ID, Fetch, FetchReply, Vote
from kraftrio.kraft_meta.raft.quorum_state import Follower, Unattached
from kraftrio.kraft_meta.raft.snapshot_install import FetchSchedule, SnapshotInstall
from kraftrio.kraft_meta.raft.values import NO_NODE
from kraftrio.wire.errors import ErrorCode


class FetchOutcome(Enum):
    """What an answer to a fetch says of the leader."""

    NOTHING = "nothing"
    FOLLOWED = "followed"  # it leads, and this node follows its log
    LEADER_GONE = "leader gone"  # it does not lead any more


class FetchRequests:
    """See the module."""

    def __init__(
        self,
        state: CoreState,
        schedule: FetchSchedule,
        snapshots: SnapshotInstall,
        rng: random.Random,
    ) -> None:
        self._state = state
        self._config = state.config
        self._quorum = state.quorum
        self._log = state.log
        self._schedule = schedule
        self._snapshots = snapshots
        self._rng = rng
        self._count = 0
        self._failures = 0
        self._avoided_voter = NO_NODE

    # ---- questions

    @property
    def sent(self) -> Fetch | None:
        """The fetch that is under way."""
        return self._schedule.sent

    @property
    def next_ms(self) -> float:
        """When to ask again, though no answer came."""
        return self._schedule.next_ms

    def send(self, destination: int, now_ms: float) -> None:
        """Ask a node for what follows this node's log."""
        log, end = self._log, self._log.end
        self._count += 1
        fetch = Fetch(
            source=self._state.node_id,
            destination=destination,
            epoch=self._state.epoch,
            fetch_offset=end.offset,
            last_fetched_epoch=end.epoch,
            high_watermark=-1 if log.high_watermark is None else log.high_watermark,
            max_wait_ms=self._config.longest_wait_ms,
            max_bytes=self._config.fetch_max_bytes,
            fetch_id=self._count,
            is_counted=self._state.memory.is_proven,
        )
        self._schedule.sent = fetch
        self._schedule.next_ms = now_ms + self._config.request_timeout_ms
        self._state.outbox.send(fetch)

    def send_to_any_voter(self, now_ms: float) -> None:
        """Ask some voter: its answer names the leader."""
        others = self._quorum.other_voters
        candidates = [voter for voter in others if voter != self._avoided_voter]
        self.send(self._rng.choice(candidates or others), now_ms)

    def retry(self, now_ms: float, *, at_once: bool = False) -> None:
        """Ask again soon: the last fetch will not be answered."""
        pause_ms = 0 if at_once and not self._failures else self._config.retry_backoff_ms
        self._failures += 1
        self._schedule.sent = None
        self._schedule.next_ms = now_ms + pause_ms

    def avoid(self, voter: int) -> None:
        """Ask another voter than this one next time."""
        self._avoided_voter = voter

    def forget_sent(self) -> None:
        """Wait no longer for the answer to what was sent: it was asked in another role."""
        self._schedule.sent = None

    def ask_any_at(self, time_ms: float) -> None:
        """Ask some voter at a time who leads, unless a leader shows up before."""
        self._schedule.next_ms = time_ms

    # ---- answers

    def on_response(
        self, response: FetchReply, now_ms: float, *, is_of_this_epoch: bool
    ) -> FetchOutcome:
        """Do what an answer asks for.

        Raises:
            CommittedRecordsError: following the leader would lose committed records.
        """
        if response.error is ErrorCode.UNKNOWN_LEADER_EPOCH and not self._state.memory.is_proven:
            # That node may not know of this epoch: nobody may be asking for votes in it, and this
            # fetch did not name its sender. A vote request does.
            self._ask_for_epoch(response.source)
        role, sent = self._quorum.role, self._schedule.sent
        if isinstance(role, Unattached):
            self._schedule.next_ms = now_ms + self._config.retry_backoff_ms
        if (
            not is_of_this_epoch
            or not isinstance(role, Follower)
            or sent is None
            or not self._is_about(response, role, sent)
        ):
            return FetchOutcome.NOTHING
        # It may answer an earlier fetch that was the same: then the present one need not leave.
        is_under_way = not self._state.outbox.withdraw(sent) and response.fetch_id not in (
            NO_FETCH_ID,
            sent.fetch_id,
        )
        if is_under_way and (response.error is not ErrorCode.NONE or not response.has_only_batches):
            return FetchOutcome.NOTHING  # the present one is about to get the same answer
        if not is_under_way:
            self._schedule.sent = None
        if self._snapshots.is_running:  # what it says of the log that is being replaced is late
            role.fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms
            self._schedule.next_ms = math.inf
            return FetchOutcome.NOTHING
        if response.error is not ErrorCode.NONE:
            self._schedule.next_ms = now_ms + self._config.retry_backoff_ms
            is_gone = response.leader_id == NO_NODE
            return FetchOutcome.LEADER_GONE if is_gone else FetchOutcome.NOTHING
        role.on_leader_answer(now_ms + self._config.fetch_timeout_ms)
        self._failures = 0
        self._avoided_voter = NO_NODE
        self._follow(response, now_ms, is_under_way=is_under_way)
        return FetchOutcome.FOLLOWED

    def _is_about(self, response: FetchReply, role: Follower, sent: Fetch) -> bool:
        """Return whether an answer is the leader's, and about the log that `sent` was about."""
        asked = (sent.fetch_offset, sent.last_fetched_epoch)
        return (
            response.source == role.leader_id
            and sent.epoch == self._state.epoch
            and asked == (response.fetch_offset, response.last_fetched_epoch)
        )

    def _follow(self, response: FetchReply, now_ms: float, *, is_under_way: bool) -> None:
        """Rule 2."""
        leader_id, log = response.source, self._log
        if response.snapshot_id is not None:
            log.check_uncommitted(
                response.snapshot_id.end_offset, self._leader_says("offers a snapshot that ends at")
            )
            self._snapshots.on_offer(leader_id, response.snapshot_id, now_ms)
            return
        self._snapshots.withdraw_offer()
        if response.diverging is not None:
            offset = log.diverging_offset(response.diverging)
            log.check_uncommitted(
                offset, self._leader_says("has a log that parts from this one at")
            )
            log.truncate_to(offset)
        else:
            log.append_fetched(response.batches, self._state.epoch)
            if response.high_watermark >= 0:
                log.advance_high_watermark(min(response.high_watermark, log.end_offset))
            if not response.batches:
                self._on_caught_up()
        if not is_under_way:  # else two would be under way for ever, each answered for the other
            self.send(leader_id, now_ms)

    def _leader_says(self, what: str) -> str:
        return f"node {self._quorum.leader_id}, which leads epoch {self._state.epoch}, {what}"

    # ---- epochs of the other voters

    def _on_caught_up(self) -> None:
        """Rule 3."""
        for voter in self._state.memory.voters_to_ask(self._state.epoch):
            self._ask_for_epoch(voter)

    def _ask_for_epoch(self, voter: int) -> None:
        """Ask a voter in which epoch it is; it learns of this node's epoch, too."""
        state = self._state
        state.outbox.send(Vote(state.node_id, voter, state.epoch, self._log.end, True))
