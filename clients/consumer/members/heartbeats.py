"""The heartbeats of a member of a consumer group: what it wants and owns, as far as that is news.

Sans-IO. Called by: `heartbeat_member/member`; `epoch_member` says what is wanted. KIP-848; protocol
guide, "ConsumerGroupHeartbeat".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.heartbeat_member.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
)
from kraftrio.clients.heartbeat_member.ports import Assignment
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)


@dataclass(slots=True)
class _LastSent:
    """What was sent last; None: nothing, or the coordinator may not have got it."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    owned: Assignment | None = None


@dataclass(slots=True)
class ConsumerHeartbeatRequests:
    """See the module.

    Attributes:
        topics: what the member subscribes to by name.
        pattern: what topics must match, besides, in the broker's syntax.
    """

    group_id: str
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    _last_sent: _LastSent = field(default_factory=_LastSent)

    @classmethod
    def of(cls, group_id: str, config: ConsumerConfig) -> ConsumerHeartbeatRequests:
        """Make those of a consumer's member."""
        return cls(
            group_id,
            config.group_instance_id,
            config.client_rack or None,
            config.max_poll_interval_ms,
            config.group_remote_assignor,
        )

    @property
    def leave_epoch(self) -> int:
        """A static member keeps its assignment for a while."""
        return LEAVE_EPOCH if self.instance_id is None else LEAVE_STATIC_EPOCH

    def make(
        self, member_id: str, member_epoch: int, owned: Assignment | None
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat; with epoch 0, and after `forget`, it has every field.

        One that does is answered with the assignment, also if that has not changed.
        """
        sent = self._last_sent
        sends_all = member_epoch == JOIN_EPOCH or sent.topics is None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            instance_id=self.instance_id,
        )
        if sends_all:
            request.rack_id = self.rack_id
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.server_assignor = self.server_assignor
        if sends_all or sent.topics != self.topics:
            request.subscribed_topic_names = sorted(self.topics)
        if self.pattern != sent.pattern or (sends_all and self.pattern is not None):
            request.subscribed_topic_regex = self.pattern or ""  # empty: none any more
        if sends_all or (owned is not None and owned != sent.owned):
            request.topic_partitions = [
                ConsumerGroupHeartbeatTopicPartitions(
                    topic_id=topic_id, partitions=sorted(partitions)
                )
                for topic_id, partitions in (owned or {}).items()
            ]
        self._last_sent = _LastSent(self.topics, self.pattern, owned)
        return request

    def leave(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat by which the member leaves."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=self.leave_epoch,
            instance_id=self.instance_id,
        )

    def forget(self) -> None:
        """Send every field again: it is unknown what the coordinator has got."""
        self._last_sent = _LastSent()
