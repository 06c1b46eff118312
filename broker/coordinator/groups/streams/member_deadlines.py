"""When members of streams groups count as gone, and when a new group's first tasks are due.

A member has to heartbeat within its session, and to give up tasks within its rebalance timeout. A
new group waits a little for more members before anybody gets a task. Deadlines of members that have
left are harmless: they find no member. Called by the streams groups of a shard, which act on the
deadlines that have come.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import HeartbeatTimes
from kraftrio.broker.coordinator.groups.properties import GroupSettingsPort
from kraftrio.broker.coordinator.groups.streams.member import StreamsMember
from kraftrio.broker.coordinator.outcome import Now

SESSION_DEADLINE = "streams-session"
REBALANCE_DEADLINE = "streams-rebalance"
FIRST_ASSIGNMENT_DEADLINE = "streams-first-assignment"
_RETRY_MS = 500


class MemberDeadlines:
    """See the module.

    Attributes:
        times: how often members heartbeat, and for how long they need not.
    """

    def __init__(
        self, deadlines: DeadlineQueue, settings: GroupSettingsPort, times: HeartbeatTimes
    ) -> None:
        self.times = times
        self._deadlines = deadlines
        self._settings = settings

    def prolong_session(self, group_id: str, member_id: str, now: Now) -> None:
        """A member has shown that it lives."""
        timeout_ms = self.times.of(group_id).session_timeout_ms
        self._deadlines.schedule(
            (SESSION_DEADLINE, group_id, member_id), now.monotonic_ms + timeout_ms
        )

    def await_revocation(self, group_id: str, member: StreamsMember, now: Now) -> None:
        """A member has to give up tasks."""
        self._deadlines.schedule(
            (REBALANCE_DEADLINE, group_id, member.member_id),
            now.monotonic_ms + member.metadata.rebalance_timeout_ms,
        )

    def revocation_is_over(self, group_id: str, member_id: str) -> None:
        """A member has given up what it had to."""
        self._deadlines.cancel((REBALANCE_DEADLINE, group_id, member_id))

    def try_again(self, key: DeadlineKey, now: Now) -> None:
        """A deadline has come: have it come again shortly, which finds nobody if all goes well."""
        self._deadlines.schedule(key, now.monotonic_ms + _RETRY_MS)

    def delay_first_assignment(self, group_id: str, now: Now) -> None:
        """A group gets its first member: wait for more, unless it is waiting already."""
        delay_ms = self._settings.number(group_id, "streams.initial.rebalance.delay.ms")
        key = (FIRST_ASSIGNMENT_DEADLINE, group_id)
        if delay_ms > 0 and key not in self._deadlines:
            self._deadlines.schedule(key, now.monotonic_ms + delay_ms)

    def is_first_assignment_delayed(self, group_id: str) -> bool:
        """Whether a group is waiting for more members."""
        return (FIRST_ASSIGNMENT_DEADLINE, group_id) in self._deadlines

    def forget_group(self, group_id: str) -> None:
        """A group is deleted; its members have left before."""
        self._deadlines.cancel((FIRST_ASSIGNMENT_DEADLINE, group_id))
