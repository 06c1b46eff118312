"""When a voter tries to be elected: `ElectionPace`, the random pauses between elections.

Rules:
1. Election timeouts are random each time, between one and two times the configured one.
2. An election that cannot be won is tried again after a random pause, which doubles each time until
   a leader is met (Kafka's binary exponential election backoff).
3. Voters that try because the leader's address refuses connections do so in the order of their
   ranks. The pause between two such attempts doubles as long as they go on, so that a link that
   flaps costs the others next to nothing.

Called by: role_transitions.py, elections.py, leader_loss.py.
"""

from __future__ import annotations

import math
import random

from kraftrio.kraft_meta.raft.ready import RaftConfig

_BACKOFF_BASE_MS = 100
_BACKOFF_MAX_DOUBLINGS = 10


class ElectionPace:
    """See the module."""

    def __init__(self, config: RaftConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self._lost_elections = 0
        self._suspicions = 0
        self._suspected_until_ms = -math.inf
        self.has_met_leader = False  # since the start

    def election_deadline_ms(self, now_ms: float) -> float:
        """Return when to give up waiting for an election to end (rule 1)."""
        timeout_ms = self._config.election_timeout_ms
        return now_ms + timeout_ms + self._rng.random() * timeout_ms

    def first_election_ms(self, now_ms: float) -> float:
        """Return when a voter that has just started asks for pre-votes: soon.

        A pre-vote does no harm, and its answers show who leads, if anybody does.
        """
        return now_ms + self._rng.random() * self._config.election_timeout_ms / 10

    def after_lost_election_ms(self, now_ms: float) -> float:
        """Return when to try again after an election that cannot be won (rule 2)."""
        doublings = min(self._lost_elections, _BACKOFF_MAX_DOUBLINGS)
        self._lost_elections += 1
        longest_ms = _BACKOFF_BASE_MS * float(2 ** (doublings + 1))
        return now_ms + min(self._rng.random() * longest_ms, self._config.election_backoff_max_ms)

    def on_leader_met(self) -> None:
        """Learn that some node leads, maybe this one."""
        self._lost_elections = 0
        self.has_met_leader = True

    def after_resignation_ms(self, rank: int, now_ms: float) -> float:
        """Return when to try after the leader has resigned: at once for the first in line."""
        step_ms = self._config.election_backoff_max_ms / 10
        return now_ms + rank * step_ms * (1 + self._rng.random())

    def after_suspicion_ms(self, rank: int, now_ms: float) -> float:
        """Return when to try after the leader's address has refused a connection (rule 3)."""
        fetch_timeout_ms = self._config.fetch_timeout_ms
        if now_ms - self._suspected_until_ms > 2 * fetch_timeout_ms:
            self._suspicions = 0
        step_ms = self._config.election_backoff_max_ms / 20
        deadline_ms = now_ms + rank * step_ms * (1 + self._rng.random())
        if self._suspicions:
            pause_ms = min(step_ms * 2**self._suspicions, fetch_timeout_ms)
            deadline_ms = max(deadline_ms, self._suspected_until_ms + pause_ms)
        self._suspicions += 1
        self._suspected_until_ms = deadline_ms
        return deadline_ms
