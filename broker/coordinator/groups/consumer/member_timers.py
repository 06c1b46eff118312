"""How long members of consumer groups live without a request, and how long a step may take them.

Owns the deadlines of members:
- session: without a heartbeat for that long a member is fenced. A classic member brings its own.
- rebalance: a member that has partitions to give up does so within its rebalance timeout.
- join, sync: a classic member that is asked to join again does so within its rebalance timeout, and
  then asks for its assignment within the same time.

They are not in the records: all begin again when a shard is loaded.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import HeartbeatTimes
from kraftrio.broker.coordinator.groups.modern.member_state import MemberState
from kraftrio.broker.coordinator.outcome import Now

SESSION_DEADLINE = "consumer-session"
REBALANCE_DEADLINE = "consumer-rebalance"
JOIN_DEADLINE = "consumer-join"
SYNC_DEADLINE = "consumer-sync"
MEMBER_DEADLINES = (SESSION_DEADLINE, REBALANCE_DEADLINE, JOIN_DEADLINE, SYNC_DEADLINE)
"""First parts of a member's deadline keys; then come group id and member id."""

_RETRY_MS = 500  # Kafka's: a member that could not be fenced, since the record was not appended


class MemberTimers:
    """See the module."""

    def __init__(self, deadlines: DeadlineQueue, times: HeartbeatTimes) -> None:
        self._deadlines = deadlines
        self._times = times

    def prolong_session(
        self, group_id: str, member_id: str, now: Now, timeout_ms: int | None = None
    ) -> None:
        """A request showed that a member lives.

        Args:
            timeout_ms: of a classic member; None: the group's.
        """
        if timeout_ms is None:
            timeout_ms = self._times.of(group_id).session_timeout_ms
        self._deadlines.schedule(
            (SESSION_DEADLINE, group_id, member_id), now.monotonic_ms + timeout_ms
        )

    def after_step(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """A member made a step: it has to give up partitions in time, or no longer has to."""
        if member.classic is not None:
            return
        key = (REBALANCE_DEADLINE, group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.schedule(key, now.monotonic_ms + member.rebalance_timeout_ms)
        else:
            self._deadlines.cancel(key)

    def expect_join(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """A classic member was asked to join again; an earlier deadline stays."""
        key = (JOIN_DEADLINE, group_id, member.member_id)
        if key not in self._deadlines:
            self._deadlines.schedule(key, now.monotonic_ms + member.rebalance_timeout_ms)

    def on_joined(self, group_id: str, member_id: str) -> None:
        """A classic member has joined."""
        self._deadlines.cancel((JOIN_DEADLINE, group_id, member_id))

    def expect_sync(
        self, group_id: str, member_id: str, rebalance_timeout_ms: int, now: Now
    ) -> None:
        """A classic member that has joined is to ask for its assignment."""
        key = (SYNC_DEADLINE, group_id, member_id)
        self._deadlines.schedule(key, now.monotonic_ms + rebalance_timeout_ms)

    def on_synced(self, group_id: str, member_id: str) -> None:
        """A classic member has asked for its assignment."""
        self._deadlines.cancel((SYNC_DEADLINE, group_id, member_id))

    def forget(self, group_id: str, member_id: str) -> None:
        """A member is gone: drop its deadlines."""
        for kind in MEMBER_DEADLINES:
            self._deadlines.cancel((kind, group_id, member_id))

    def retry(self, key: DeadlineKey, now: Now) -> None:
        """A member could not be fenced: try again soon."""
        self._deadlines.schedule(key, now.monotonic_ms + _RETRY_MS)

    def start(self, group: ConsumerGroup, now: Now) -> None:
        """Start the deadlines of a group that was loaded."""
        for member in group.members.values():
            self.prolong_session(group.group_id, member.member_id, now)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.after_step(group.group_id, member, now)
