"""The heartbeats of a member of a share group, with its topics where they have changed.

Sans-IO. Called by: `heartbeat_member/member`; `share/member` says what is wanted. KIP-932; protocol
guide, "ShareGroupHeartbeat".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftrio.clients.heartbeat_member.member import JOIN_EPOCH, LEAVE_EPOCH
from kraftrio.clients.heartbeat_member.ports import Assignment
from kraftrio.wire.messages.share_groups import ShareGroupHeartbeatRequest


@dataclass(slots=True)
class ShareHeartbeatRequests:
    """See the module.

    Attributes:
        topics: what the member subscribes to.
    """

    group_id: str
    rack_id: str | None = None
    topics: frozenset[str] = frozenset()
    _last_sent: frozenset[str] | None = field(default=None)

    def make(
        self, member_id: str, member_epoch: int, owned: Assignment | None
    ) -> ShareGroupHeartbeatRequest:
        """Return the next heartbeat; what the member owns is not part of it."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=member_id, member_epoch=member_epoch
        )
        is_full = member_epoch == JOIN_EPOCH or self._last_sent is None
        if is_full:
            request.rack_id = self.rack_id
        if is_full or self._last_sent != self.topics:
            request.subscribed_topic_names = sorted(self.topics)
        self._last_sent = self.topics
        return request

    def leave(self, member_id: str) -> ShareGroupHeartbeatRequest:
        """Return the heartbeat by which the member leaves."""
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=member_id, member_epoch=LEAVE_EPOCH
        )

    def forget(self) -> None:
        """Send everything with the next one: the coordinator may not have got the last one."""
        self._last_sent = None
