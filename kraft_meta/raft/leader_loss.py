"""What a follower does when its leader is gone: `LeaderLoss`.

Rules:
1. The first in line tries to be elected at once: the first that the leader named when it resigned,
   else the voter with the lowest id. A voter that may not stand for election looks for the next
   leader.
2. A follower whose leader's address refuses connections does not wait for the fetch timeout: it
   asks for pre-votes, in the order of the voters' ids.

Called by: raft.py.
Tested by: tests/unit/kraft_meta/raft/test_raft.py, by whole cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftrio.kraft_meta.raft.core_state import CoreState
from kraftrio.kraft_meta.raft.election_pace import ElectionPace
from kraftrio.kraft_meta.raft.quorum_state import Follower
from kraftrio.kraft_meta.raft.role_transitions import RoleTransitions


class LeaderLoss:
    """See the module."""

    def __init__(self, state: CoreState, pace: ElectionPace, roles: RoleTransitions) -> None:
        self._state = state
        self._pace = pace
        self._roles = roles

    def on_resigned(self, role: Follower, successors: Sequence[int], now_ms: float) -> None:
        """Act on the leader's message that it has resigned."""
        node_id = self._state.node_id
        rank = successors.index(node_id) if node_id in successors else len(successors)
        self._end_epoch(role, rank, now_ms)

    def on_no_longer_leads(self, role: Follower, now_ms: float) -> None:
        """Act on the leader's answer that this epoch has no leader any more."""
        rank = self._rank_behind(role.leader_id) if self._state.may_stand else 0
        self._end_epoch(role, rank, now_ms)

    def on_refused(self, role: Follower, now_ms: float) -> None:
        """Learn that nothing listens at the leader's address (rule 2)."""
        if role.is_suspected:
            return
        deadline_ms = self._pace.after_suspicion_ms(self._rank_behind(role.leader_id), now_ms)
        role.is_suspected = True
        role.has_fetched = False
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, deadline_ms)

    def _end_epoch(self, role: Follower, rank: int, now_ms: float) -> None:
        self._roles.end_epoch()
        if not self._state.may_stand:
            self._roles.become_unattached(self._state.epoch, now_ms)
            return
        role.has_fetched = False
        deadline_ms = self._pace.after_resignation_ms(rank, now_ms)
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, deadline_ms)

    def _rank_behind(self, leader_id: int) -> int:
        """Return this voter's place in the order in which voters try when none was named."""
        return self._state.quorum.voters.others(leader_id).index(self._state.node_id)
