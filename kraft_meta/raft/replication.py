"""Replication of the metadata log: what the leader answers to fetches, and what followers do.

Owns: `Replication`, a part of the consensus core (sans-IO). Rules:
1. A fetch tells the end of a log; the leader answers with what follows, with where the logs part
   (KIP-595), or with the snapshot to start from (KIP-630). It answers from what is durable.
2. A fetch without news waits; a record that becomes durable, a new high watermark (KIP-1166) and
   the end of leadership answer it at once.
3. A snapshot replaces the log only while the log still ends where it did when the leader offered
   the snapshot.

Called by: raft.py.
"""

from __future__ import annotations

import math

from kraftrio.kraft_meta.raft.base import RaftBase
from kraftrio.kraft_meta.raft.messages import NO_FETCH_ID, Fetch, FetchResponse
from kraftrio.kraft_meta.raft.quorum_state import Follower, Leader, Unattached
from kraftrio.kraft_meta.raft.ready import ParkedFetch, SnapshotOffer
from kraftrio.kraft_meta.raft.values import NO_NODE, LogBatch, OffsetAndEpoch, SnapshotId
from kraftrio.wire.errors import ErrorCode


class Replication(RaftBase):
    """The log's way from the leader to everyone else."""

    # ---- leading

    def _on_fetch(self, fetch: Fetch, now_ms: float) -> None:
        replica_id = fetch.replica_id
        if fetch.epoch > self.epoch and replica_id in self.quorum.voters:
            self._become_unattached(fetch.epoch, now_ms)
        error = self.check_leader_request(fetch.epoch)
        if error is not ErrorCode.NONE:
            self._refuse_fetch(fetch, error)
            return
        role = self.quorum.role
        assert isinstance(role, Leader)
        self._supersede_parked(replica_id)
        if replica_id in role.progress:
            role.acknowledged[replica_id] = True
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
            key = fetch.source, fetch.request_id
            self._parked[key] = ParkedFetch(fetch, now_ms + fetch.max_wait_ms)

    def _supersede_parked(self, source: int) -> None:
        """Answer what a replica asked before: it waits for that no longer."""
        if source >= 0:
            for key in [key for key in self._parked if key[0] == source]:
                self._answer_fetch(self._parked.pop(key).fetch)

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
            fetch.replica_id,
            fetch.fetch_offset if valid else None,
            self.stable_end_offset,
            now_ms,
            fetch.directory_id,
        )
        self._extend_check_quorum(role)

    def on_snapshot_fetch(self, source: int, epoch: int, now_ms: float) -> ErrorCode:
        """Check a request for a piece of a snapshot; take it for a sign of life."""
        error = self.check_leader_request(epoch)
        role = self.quorum.role
        if error is ErrorCode.NONE and isinstance(role, Leader):
            role.record_contact(source, now_ms)
            self._extend_check_quorum(role)
        return error

    def _extend_check_quorum(self, role: Leader) -> None:
        contact_ms = role.majority_contact_ms(self.quorum.majority)
        if contact_ms >= 0:
            deadline_ms = contact_ms + self.config.check_quorum_timeout_ms
            role.check_quorum_deadline_ms = max(role.check_quorum_deadline_ms, deadline_ms)

    def _on_own_log_durable(self) -> None:
        self._maybe_advance_high_watermark()
        self._wake_parked()

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
                fetch.fetch_offset,
                self.stable_end_offset,
                min(self.config.fetch_max_bytes, fetch.max_bytes),
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
            log_start_offset=self.epochs.log_start_offset,
            request_id=fetch.request_id,
            fetch_id=fetch.fetch_id,
        )

    # ---- following

    def _retry_fetch(self, now_ms: float, *, at_once: bool = False) -> None:
        """Ask again soon: the last fetch will not be answered."""
        pause_ms = 0 if at_once and not self._failed_fetches else self.config.retry_backoff_ms
        self._failed_fetches += 1
        self._fetch_sent = None
        self._next_fetch_ms = now_ms + pause_ms

    def _fetch_from_any_voter(self, now_ms: float) -> None:
        """Ask some voter: its answer tells an observer who leads."""
        others = self.quorum.other_voters
        candidates = [voter for voter in others if voter != self._avoided_voter]
        self._send_fetch(self._rng.choice(candidates or others), now_ms)

    def _send_fetch(self, destination: int, now_ms: float) -> None:
        end = self.epochs.end
        self._fetch_count += 1
        fetch = Fetch(
            source=self.node_id,
            destination=destination,
            epoch=self.epoch,
            fetch_offset=end.offset,
            last_fetched_epoch=end.epoch,
            high_watermark=-1 if self.high_watermark is None else self.high_watermark,
            max_wait_ms=self.config.longest_wait_ms,
            max_bytes=self.config.fetch_max_bytes,
            fetch_id=self._fetch_count,
            is_counted=self.memory.is_proven,
        )
        self._fetch_sent = fetch
        self._next_fetch_ms = now_ms + self.config.request_timeout_ms
        self._messages.append(fetch)

    def _on_fetch_response(self, response: FetchResponse, now_ms: float) -> None:
        same_epoch = self._adopt(response.epoch, response.leader_id, now_ms)
        if response.error is ErrorCode.UNKNOWN_LEADER_EPOCH and not self.memory.is_proven:
            # Nobody may ask for votes in its epoch, nor did it name itself: its epoch must be told.
            self._ask_voter_for_epoch(response.source)
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
        # It may answer an earlier fetch that was the same: then the present one need not leave.
        waiting = len(self._messages)
        self._messages = [message for message in self._messages if message is not sent]
        is_under_way = len(self._messages) == waiting and response.fetch_id not in (
            NO_FETCH_ID,
            sent.fetch_id,
        )
        if is_under_way and (response.error is not ErrorCode.NONE or not response.has_only_batches):
            return  # the present one is about to be answered likewise
        if not is_under_way:
            self._fetch_sent = None
        if self._is_installing:  # its log is being replaced: what it says of the old one is late
            role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
            self._next_fetch_ms = math.inf
            return
        if response.error is not ErrorCode.NONE:
            self._next_fetch_ms = now_ms + self.config.retry_backoff_ms
            if response.leader_id == NO_NODE:
                self._on_epoch_ended(role, now_ms)
            return
        role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
        role.has_fetched = self.has_met_leader = True
        role.is_suspected = False
        self._failed_fetches = 0
        self._lost_elections = 0
        self._avoided_voter = NO_NODE
        if response.snapshot_id is not None:
            self._check_uncommitted(
                response.snapshot_id.end_offset, response.source, "offers a snapshot that ends at"
            )
            self._install_snapshot = (response.source, response.snapshot_id)
            self._snapshot_offer = SnapshotOffer(response.snapshot_id, self.epochs.end)
            self._next_fetch_ms = now_ms + self.config.request_timeout_ms
            return
        self._snapshot_offer = None
        if response.diverging is not None:
            self._truncate_diverging(response.diverging)
        else:
            self._append_fetched(response)
            if not response.batches:  # it has caught up
                self._ask_for_epochs()
        if not is_under_way:  # else two would be under way for ever, each answered for the other
            self._send_fetch(role.leader_id, now_ms)

    def on_snapshot_progress(self, source: int, now_ms: float) -> bool:
        """Take a piece of the offered snapshot for the leader's sign of life.

        False: it comes from no leader, or there is no such offer any more.
        """
        role = self.quorum.role
        if (
            self._snapshot_offer is None
            or not isinstance(role, Follower)
            or role.leader_id != source
        ):
            return False
        role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
        self._next_fetch_ms = now_ms + self.config.request_timeout_ms
        return True

    def begin_install(self, snapshot_id: SnapshotId) -> bool:
        """Tell whether a snapshot that was received may replace the log (rule 3).

        Then nothing else changes the log, and this node does not stand for election, until
        on_snapshot_installed or on_snapshot_failed: a snapshot holds what is committed, so it is
        right whoever leads meanwhile.
        """
        offer = self._snapshot_offer
        self._is_installing = (
            offer is not None
            and isinstance(self.quorum.role, Follower)
            and offer.snapshot_id == snapshot_id
            and offer.log_end == self.epochs.end
            and (self.high_watermark is None or self.high_watermark < snapshot_id.end_offset)
        )
        return self._is_installing

    def on_snapshot_failed(self, now_ms: float) -> None:
        """Give up the snapshot that was offered; ask the leader anew."""
        if self._is_installing:
            return  # it is about another one
        self._snapshot_offer = None
        self._next_fetch_ms = now_ms + self.config.retry_backoff_ms

    def on_install_failed(self, now_ms: float) -> None:
        """Learn that the snapshot being installed is of no use; the log is as it was."""
        self._is_installing = False
        self.on_snapshot_failed(now_ms)

    def on_snapshot_installed(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """Learn that the snapshot is on disk and the log starts at its end."""
        self._is_installing = False
        offer = self._snapshot_offer
        assert offer is not None and offer.log_end == self.epochs.end, "nothing was appended"
        assert not self._batches and self._truncate_to is None
        self._snapshot_offer = None
        self.epochs.reset_to(snapshot_id)
        self.stable_end_offset = snapshot_id.end_offset
        self.high_watermark = snapshot_id.end_offset
        self._next_fetch_ms = now_ms

    def _truncate_diverging(self, diverging: OffsetAndEpoch) -> None:
        own = self.epochs.end_offset_for_epoch(diverging.epoch)
        offset = own.offset if own.epoch != diverging.epoch else min(own.offset, diverging.offset)
        offset = max(offset, self.epochs.log_start_offset)
        leader_id = self.quorum.leader_id
        self._check_uncommitted(offset, leader_id, "has a log that parts from this one at")
        # The fetch that this answers left after everything before it was on disk.
        assert not self._batches
        if offset < self.epochs.log_end_offset:
            self.epochs.truncate_to(offset)
            self.stable_end_offset = min(self.stable_end_offset, offset)
            self._truncate_to = offset

    def _append_fetched(self, response: FetchResponse) -> None:
        for batch in response.batches:
            if batch.base_offset != self.epochs.log_end_offset or not (
                self.epochs.last_epoch <= batch.epoch <= self.epoch
            ):
                break
            self.epochs.append(batch.epoch, batch.base_offset, batch.end_offset)
            self._batches.append(batch)
        high_watermark = min(response.high_watermark, self.epochs.log_end_offset)
        if high_watermark >= 0 and (
            self.high_watermark is None or high_watermark > self.high_watermark
        ):
            self.high_watermark = high_watermark
