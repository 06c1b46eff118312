"""Requests of the classic protocol, to the kind of group that has the member.

Classic members are in classic groups, and in consumer groups (KIP-848). A group of another kind
without members gives way to a classic one, but for share groups; one with members refuses them.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.classic.groups import ClassicGroups
from kraftrio.broker.coordinator.groups.classic.joins import Client
from kraftrio.broker.coordinator.groups.classic.replies import refuse_join
from kraftrio.broker.coordinator.groups.consumer.groups import ConsumerGroups
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.shard.kind_table import KindTable
from kraftrio.broker.coordinator.outcome import Now, Outcome, Ticket
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

_GIVING_WAY = frozenset({"consumer", "streams"})


class ClassicRequests:
    """See the module."""

    def __init__(self, registry: GroupRegistry, kinds: KindTable) -> None:
        self._registry = registry
        self._kinds = kinds
        self._classic = kinds.of(ClassicGroups)

    def join(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: Now) -> Outcome:
        """Serve JoinGroup: answered by the outcome's response, or by the ticket later.

        Raises:
            KafkaError: the request is refused.
        """
        group = self._registry.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return self._classic.join(request, client, ticket, now)
        if isinstance(group, ConsumerGroup) and group.members:
            return self._kinds.of(ConsumerGroups).classic_members.join(group, request, client, now)
        if group.is_unused and group.group_type in _GIVING_WAY:
            return self._classic.join_in_place_of(
                group, self._kinds.tombstones(group), request, client, ticket, now
            )
        outcome = Outcome()
        refuse_join(ticket, "", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, outcome)
        return outcome

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now: Now) -> Outcome:
        """Serve SyncGroup in the same way.

        Raises:
            KafkaError: the request is refused.
        """
        group = self._registry.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return self._classic.sync(request, ticket, now)
        if isinstance(group, ConsumerGroup) and group.members:
            return self._kinds.of(ConsumerGroups).classic_members.sync(group, request, now)
        outcome = Outcome()
        outcome.reply(ticket, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        return outcome

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        """Serve Heartbeat.

        Raises:
            KafkaError: the request is refused.
        """
        group = self._registry.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._kinds.of(ConsumerGroups).classic_members.heartbeat(group, request, now)
        return self._classic.heartbeat(request, now)

    def leave(self, group_id: str, members: list[MemberIdentity], now: Now) -> Outcome:
        """Serve LeaveGroup for several members; the response says of each how it went.

        In a group of another kind, or none, each of them is an unknown member.

        Raises:
            KafkaError: the request is refused.
        """
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._kinds.of(ConsumerGroups).departures.leave_classic(group, members, now)
        return self._classic.leave(group_id, members, now)
