"""The times by which a member of a group counts as alive: its polls, heartbeats and session.

Rules:
1. A member whose application has not polled for max_poll_interval_ms leaves the group: nobody works
   on what it is assigned. Before the first poll nobody joins.
2. A heartbeat follows each heartbeat_interval_ms after the last sign of life of the coordinator.
3. A coordinator that has been silent for session_timeout_ms must be looked up again.

Sans-IO: time comes in as milliseconds. Called by: `membership`, `group`.
"""

from __future__ import annotations

import math

from kraftrio.clients.consumer.membership.requests import MembershipConfig


class Liveness:
    """See the module."""

    def __init__(self, config: MembershipConfig) -> None:
        self.next_heartbeat_ms = 0.0
        self._config = config
        self._polled_at_ms = -math.inf
        self._seen_at_ms = 0.0

    def polled(self, now_ms: float) -> None:
        """The application polls."""
        self._polled_at_ms = now_ms

    @property
    def poll_deadline_ms(self) -> float:
        """When the application must have polled again."""
        return self._polled_at_ms + self._config.max_poll_interval_ms

    def poll_is_overdue(self, now_ms: float) -> bool:
        """Whether the application has stayed away too long."""
        return now_ms > self.poll_deadline_ms

    def coordinator_seen(self, now_ms: float) -> None:
        """The coordinator has answered a heartbeat, or is one that was looked up again."""
        self._seen_at_ms = now_ms

    def joined(self, now_ms: float) -> None:
        """The coordinator has answered a JoinGroup or SyncGroup: that counts as a heartbeat."""
        self._seen_at_ms = now_ms
        self.heartbeat_sent(now_ms)

    def heartbeat_sent(self, now_ms: float) -> None:
        """The next heartbeat comes after heartbeat_interval_ms."""
        self.next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms

    def heartbeat_failed(self, now_ms: float) -> None:
        """A heartbeat was not answered, or not by the coordinator: the next one comes soon."""
        self.next_heartbeat_ms = now_ms + self._config.retry_backoff_ms

    def session_is_over(self, now_ms: float) -> bool:
        """Whether the coordinator has been silent for a whole session."""
        return now_ms - self._seen_at_ms > self._config.session_timeout_ms
