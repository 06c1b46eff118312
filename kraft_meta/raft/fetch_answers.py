"""The leader's side of replication: what it answers to fetches (`FetchAnswers`).

Owns: the parked fetches, which wait until there is something new. Rules:
1. A fetch says where a log ends; the leader answers with what follows, with where the logs part
   (KIP-595), or with the snapshot to start from (KIP-630). It answers from what is durable.
2. A fetch that would be answered empty is parked; a record that becomes durable, a new high
   watermark (KIP-1166) and the end of leadership answer it at once.
3. The high watermark moves by majority, and only once a record of the leader's own epoch is covered
   (its LeaderChange record).

Called by: raft.py (fetches), role_transitions.py (parked fetches when leadership ends), the
quorum's shell (`on_snapshot_fetch`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kraftrio.kraft_meta.raft.core_state import CoreState
from kraftrio.kraft_meta.raft.messages import Fetch, FetchReply
from kraftrio.kraft_meta.raft.quorum_state import Leader
from kraftrio.kraft_meta.raft.values import LogBatch, OffsetAndEpoch, SnapshotId
from kraftrio.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class _ParkedFetch:
    """A fetch that is answered when there is something new, at its deadline at the latest."""

    fetch: Fetch
    deadline_ms: float


class FetchAnswers:
    """See the module."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._config = state.config
        self._quorum = state.quorum
        self._log = state.log
        self._parked: dict[tuple[int, int], _ParkedFetch] = {}

    # ---- fetches

    def on_fetch(self, fetch: Fetch, now_ms: float) -> None:
        """Answer a fetch, or park it."""
        error = self._check_leader_request(fetch.epoch)
        if error is not ErrorCode.NONE:
            self._refuse(fetch, error)
            return
        replica_id = fetch.replica_id
        role = self._quorum.role
        assert isinstance(role, Leader)
        self._supersede(replica_id)
        if replica_id in role.progress:
            role.acknowledged[replica_id] = True
        refusal = self._check_fetch_offset(fetch)
        role.record_fetch(
            replica_id,
            fetch.fetch_offset if refusal is None else None,
            self._log.stable_end_offset,
            now_ms,
            fetch.directory_id,
        )
        self._extend_check_quorum(role)
        if refusal is not None:
            self._state.outbox.send(refusal)
            return
        if self._maybe_advance_high_watermark():
            self._wake_parked()
        high_watermark = self._log.high_watermark
        has_anything_new = fetch.fetch_offset < self._log.stable_end_offset or (
            high_watermark is not None and high_watermark > fetch.high_watermark
        )
        if has_anything_new or fetch.max_wait_ms <= 0:
            self._answer(fetch)
        else:
            key = fetch.source, fetch.request_id
            self._parked[key] = _ParkedFetch(fetch, now_ms + fetch.max_wait_ms)

    def on_snapshot_fetch(self, source: int, epoch: int, now_ms: float) -> ErrorCode:
        """Check a request for a piece of a snapshot; take it for a sign of life."""
        error = self._check_leader_request(epoch)
        role = self._quorum.role
        if error is ErrorCode.NONE and isinstance(role, Leader):
            role.record_contact(source, now_ms)
            self._extend_check_quorum(role)
        return error

    def on_own_log_durable(self) -> None:
        """Act on more of the leader's own log being durable."""
        self._maybe_advance_high_watermark()
        self._wake_parked()

    def _check_leader_request(self, epoch: int) -> ErrorCode:
        """Return whether a request of an epoch that only a leader answers is for this node."""
        if epoch < self._state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self._state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self._state.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _check_fetch_offset(self, fetch: Fetch) -> FetchReply | None:
        """Return the answer for a replica whose log is not a prefix of this one."""
        found = self._log.epochs.check_prefix(
            OffsetAndEpoch(fetch.fetch_offset, fetch.last_fetched_epoch)
        )
        if found is None:
            return None
        if isinstance(found, SnapshotId):
            return self._response(fetch, snapshot_id=found)
        return self._response(fetch, diverging=found)

    def _extend_check_quorum(self, role: Leader) -> None:
        contact_ms = role.majority_contact_ms(self._quorum.voters.majority)
        if contact_ms >= 0:
            deadline_ms = contact_ms + self._config.check_quorum_timeout_ms
            role.check_quorum_deadline_ms = max(role.check_quorum_deadline_ms, deadline_ms)

    def _maybe_advance_high_watermark(self) -> bool:
        """Commit what a majority has (rule 3); return whether that is more than before."""
        role = self._quorum.role
        assert isinstance(role, Leader)
        majority_end = role.majority_end_offset(
            self._log.stable_end_offset, self._quorum.voters.majority
        )
        return majority_end > role.epoch_start_offset and self._log.advance_high_watermark(
            majority_end
        )

    # ---- fetches that wait

    def next_deadlines_ms(self) -> Iterable[float]:
        """Give the times at which fetches have waited long enough."""
        return (parked.deadline_ms for parked in self._parked.values())

    def on_time(self, now_ms: float) -> None:
        """Answer the fetches that have waited long enough."""
        for key in [key for key, p in self._parked.items() if p.deadline_ms <= now_ms]:
            self._answer(self._parked.pop(key).fetch)

    def take_parked(self) -> list[Fetch]:
        """Return the fetches that wait, and forget them: the caller answers them."""
        parked, self._parked = self._parked, {}
        return [entry.fetch for entry in parked.values()]

    def refuse(self, fetches: Iterable[Fetch]) -> None:
        """Refuse fetches that waited: this node does not lead any more."""
        for fetch in fetches:
            self._refuse(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _supersede(self, source: int) -> None:
        """Answer what a replica asked before: it waits for that no longer."""
        if source >= 0:
            for key in [key for key in self._parked if key[0] == source]:
                self._answer(self._parked.pop(key).fetch)

    def _wake_parked(self) -> None:
        """Answer parked fetches: there are records for them, or a new high watermark."""
        for fetch in self.take_parked():
            self._answer(fetch)

    # ---- answers

    def _answer(self, fetch: Fetch) -> None:
        assert self._state.is_leader, "what waits is refused when leadership ends"
        max_bytes = min(self._config.fetch_max_bytes, fetch.max_bytes)
        batches = self._log.read(fetch.fetch_offset, max_bytes)
        self._state.outbox.send(self._response(fetch, batches=batches))

    def _refuse(self, fetch: Fetch, error: ErrorCode) -> None:
        self._state.outbox.send(self._response(fetch, error=error))

    def _response(
        self,
        fetch: Fetch,
        *,
        error: ErrorCode = ErrorCode.NONE,
        batches: tuple[LogBatch, ...] = (),
        diverging: OffsetAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
    ) -> FetchReply:
        state, log = self._state, self._log
        return FetchReply(
            source=state.node_id,
            destination=fetch.source,
            epoch=state.epoch,
            leader_id=state.leader_id,
            fetch_offset=fetch.fetch_offset,
            last_fetched_epoch=fetch.last_fetched_epoch,
            error=error,
            high_watermark=-1 if log.high_watermark is None else log.high_watermark,
            batches=batches,
            diverging=diverging,
            snapshot_id=snapshot_id,
            log_start_offset=log.epochs.log_start_offset,
            request_id=fetch.request_id,
            fetch_id=fetch.fetch_id,
        )
