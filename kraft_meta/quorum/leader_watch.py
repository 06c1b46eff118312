"""Follows who leads the quorum, for callbacks and for the log: `LeaderWatch`.

Rules: callbacks run on every change of leader or epoch. A line is logged when there is another
leader; when there has been none for longer than an election takes, a warning; while a new cluster
waits for its voters, or a voter for a leader to catch up with, one now and then.

Called by: quorum/service.py.
Tested by: tests/unit/kraft_meta/quorum/test_service.py and controller/test_quorum_peers.py.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.values import NO_NODE

_log = logging.getLogger("kraftrio.metadata")

_FIRST_WAIT_MS = 3_000.0
_WAIT_INTERVAL_MS = 15_000.0
_LOST_AFTER_MS = 2_000.0

LeaderCallback = Callable[[int, int], object]
"""Takes the leader's id (-1: unknown) and the epoch."""


class LeaderWatch:
    """See the module.

    Attributes:
        leader_changes_total: how often leader or epoch have changed since the start.
    """

    def __init__(self) -> None:
        self.leader_changes_total = 0
        self._callbacks: list[LeaderCallback] = []
        self._leader = (NO_NODE, -1)
        self._last_leader = NO_NODE  # that was announced
        self._leaderless_since_ms: float | None = None
        self._is_lost = False
        self._is_catching_up = False
        self._next_hint_ms = math.inf
        self._next_wait_ms = math.inf

    def subscribe(self, callback: LeaderCallback) -> None:
        """Call `callback(leader_id, leader_epoch)` now and at every change."""
        self._callbacks.append(callback)
        callback(*self._leader)

    def check(self, core: RaftCore, now_ms: float) -> None:
        """Report what has changed since the last time."""
        before, self._leader = self._leader, (core.leader_id, core.epoch)
        if self._leader != before:
            self.leader_changes_total += 1
            for callback in self._callbacks:
                callback(*self._leader)
        self._check_leader(now_ms)
        self._check_memory(core, now_ms)
        self._check_missing_voters(core, now_ms)

    def _check_leader(self, now_ms: float) -> None:
        """Log who leads, and that there is no leader if that lasts."""
        leader_id, epoch = self._leader
        if leader_id == NO_NODE:
            if self._leaderless_since_ms is None:
                self._leaderless_since_ms = now_ms
            is_known = self._last_leader != NO_NODE  # else a cluster is founded, or this node new
            waited_ms = now_ms - self._leaderless_since_ms
            if is_known and not self._is_lost and waited_ms >= _LOST_AFTER_MS:
                self._is_lost = True
                _log.warning(
                    "metadata quorum lost last_leader=%d epoch=%d", self._last_leader, epoch
                )
            return
        if self._is_lost and self._leaderless_since_ms is not None:
            _log.warning(
                "metadata quorum found leader=%d epoch=%d after_ms=%d",
                leader_id, epoch, now_ms - self._leaderless_since_ms,
            )  # fmt: skip
        elif leader_id != self._last_leader or self._leaderless_since_ms is not None:
            _log.info("metadata quorum leader=%d epoch=%d", leader_id, epoch)
        self._last_leader, self._is_lost = leader_id, False
        self._leaderless_since_ms = None

    def _check_memory(self, core: RaftCore, now_ms: float) -> None:
        is_catching_up = not core.memory.is_proven and not core.log.has_nothing
        if core.leader_id != NO_NODE or not is_catching_up:
            self._next_hint_ms = now_ms + _WAIT_INTERVAL_MS
        elif now_ms >= self._next_hint_ms:
            self._next_hint_ms = now_ms + 4 * _WAIT_INTERVAL_MS
            _log.warning(
                "no leader is there to catch up with; if the disks of a majority of the voters are"
                " lost for good, see kraftrio recover-quorum"
            )
        if is_catching_up == self._is_catching_up:
            return
        self._is_catching_up = is_catching_up
        if is_catching_up:
            _log.warning(
                "this voter has lost its log or its votes: it neither votes nor counts until it"
                " has caught up offset=%d epoch=%d known_committed=%d",
                core.log.end_offset,
                core.epoch,
                core.log.committed_floor,
            )
        else:
            _log.info("this voter votes and counts again offset=%d", core.log.end_offset)

    def _check_missing_voters(self, core: RaftCore, now_ms: float) -> None:
        missing = core.missing_votes
        if not missing:
            self._next_wait_ms = math.inf
        elif self._next_wait_ms == math.inf:
            self._next_wait_ms = now_ms + _FIRST_WAIT_MS
        elif now_ms >= self._next_wait_ms:
            self._next_wait_ms = now_ms + _WAIT_INTERVAL_MS
            _log.info(
                "no metadata yet: every voter is needed to found a new cluster, or the leader of"
                " the one they have missing=%s",
                ",".join(map(str, missing)),
            )
