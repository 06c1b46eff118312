"""A snapshot from the leader, in the place of this node's log (KIP-630): `SnapshotInstall`.

Owns: the snapshot that the leader offered, and whether it is being installed. Rules:
1. A snapshot replaces the log only while the log still ends where it did when the leader offered
   it: then nothing in the log is lost that may be committed, for the log either ends before the
   snapshot, or leaves the committed log before the snapshot's end.
2. While it is being installed nothing else changes the log, and this node does not stand for
   election. A snapshot holds what is committed, so it is right no matter who leads meanwhile.

Called by: fetch_requests.py (offers), role_transitions.py, the quorum's shell (everything else).
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.kraft_meta.raft.core_state import CoreState
from kraftrio.kraft_meta.raft.messages import Fetch
from kraftrio.kraft_meta.raft.quorum_state import Follower
from kraftrio.kraft_meta.raft.values import OffsetAndEpoch, SnapshotId


@dataclass(slots=True)
class FetchSchedule:
    """The fetch that waits for its answer, if one does, and when to send another all the same."""

    next_ms: float
    sent: Fetch | None = None


@dataclass(frozen=True, slots=True)
class _SnapshotOffer:
    """The snapshot that the leader offered, and where the log ended then."""

    snapshot_id: SnapshotId
    log_end: OffsetAndEpoch


class SnapshotInstall:
    """See the module."""

    def __init__(self, state: CoreState, schedule: FetchSchedule) -> None:
        self._config = state.config
        self._quorum = state.quorum
        self._log = state.log
        self._schedule = schedule
        self._offer: _SnapshotOffer | None = None
        self._to_fetch: tuple[int, SnapshotId] | None = None
        self.is_running = False

    @property
    def is_wanted(self) -> bool:
        """The shell has yet to learn which snapshot it is to fetch."""
        return self._to_fetch is not None

    def take_wanted(self) -> tuple[int, SnapshotId] | None:
        """Return the snapshot to be fetched and from whom, once per offer."""
        to_fetch, self._to_fetch = self._to_fetch, None
        return to_fetch

    def on_offer(self, leader_id: int, snapshot_id: SnapshotId, now_ms: float) -> None:
        """Take the leader's answer that its log starts at a snapshot."""
        self._to_fetch = (leader_id, snapshot_id)
        self._offer = _SnapshotOffer(snapshot_id, self._log.end)
        self._schedule.next_ms = now_ms + self._config.request_timeout_ms

    def withdraw_offer(self) -> None:
        """Take it that the leader's log goes on from this one."""
        self._offer = None

    def on_progress(self, source: int, now_ms: float) -> bool:
        """Take a piece of the offered snapshot for the leader's sign of life.

        False: it comes from no leader, or there is no such offer any more.
        """
        role = self._quorum.role
        if self._offer is None or not isinstance(role, Follower) or role.leader_id != source:
            return False
        role.fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms
        self._schedule.next_ms = now_ms + self._config.request_timeout_ms
        return True

    def begin(self, snapshot_id: SnapshotId) -> bool:
        """Return whether a snapshot that was received may replace the log (rule 1).

        If so, rule 2 holds until `on_installed` or `on_install_failed`.
        """
        offer, high_watermark = self._offer, self._log.high_watermark
        self.is_running = (
            offer is not None
            and isinstance(self._quorum.role, Follower)
            and offer.snapshot_id == snapshot_id
            and offer.log_end == self._log.end
            and (high_watermark is None or high_watermark < snapshot_id.end_offset)
        )
        return self.is_running

    def on_failed(self, now_ms: float) -> None:
        """Give up the snapshot that was offered; ask the leader again."""
        if self.is_running:
            return  # it is about another one
        self._offer = None
        self._schedule.next_ms = now_ms + self._config.retry_backoff_ms

    def on_install_failed(self, now_ms: float) -> None:
        """Learn that the snapshot being installed is of no use; the log is as it was."""
        self.is_running = False
        self.on_failed(now_ms)

    def on_installed(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """Learn that the snapshot is on disk and the log starts at its end."""
        self.is_running = False
        offer, self._offer = self._offer, None
        assert offer is not None and offer.log_end == self._log.end, "nothing was appended"
        self._log.reset_to(snapshot_id)
        self._schedule.next_ms = now_ms
