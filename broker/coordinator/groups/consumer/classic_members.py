"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat.

The broker assigns to them as to the others. A member is told by its heartbeats to join again for
each step of its reconciliation; the generation that it hears of is its member epoch (KIP-848).
There is no leader.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.broker.coordinator.groups.classic.joins import Client, JoinAttempt, requires_member_id
from kraftrio.broker.coordinator.groups.consumer.checks import check_instance, check_room
from kraftrio.broker.coordinator.groups.consumer.conversions import Conversions, MigrationPolicy
from kraftrio.broker.coordinator.groups.consumer.member_updates import (
    MemberUpdate,
    MemberUpdates,
    joining,
    replacing_records,
)
from kraftrio.broker.coordinator.groups.consumer.parts import HeartbeatClient, Parts
from kraftrio.broker.coordinator.groups.consumer.reconciliation import ConsumerTarget
from kraftrio.broker.coordinator.groups.consumer.regular_expressions import (
    RegexChange,
    RegularExpressions,
)
from kraftrio.broker.coordinator.groups.consumer.state.group import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerGroup,
)
from kraftrio.broker.coordinator.groups.consumer.state.member import ClassicMetadata, ConsumerMember
from kraftrio.broker.coordinator.groups.modern.member_state import JOIN_EPOCH, MemberState
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.messages.group_records.classic import (
    ConsumerProtocolSubscription,
    decode_subscription,
)
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatTopicPartitions,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


class _Join(NamedTuple):
    """A JoinGroup that is about to be served, with what its first protocol says."""

    attempt: JoinAttempt
    member_id: str
    subscription: ConsumerProtocolSubscription


class ClassicMembers:
    """See the module."""

    def __init__(
        self,
        parts: Parts,
        conversions: Conversions,
        updates: MemberUpdates,
        regexes: RegularExpressions,
    ) -> None:
        self._parts = parts
        self._conversions = conversions
        self._updates = updates
        self._regexes = regexes

    # --- JoinGroup ---

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: Client, now: Now
    ) -> Outcome:
        """Serve JoinGroup in a group that has members; the response has the generation.

        Raises:
            KafkaError: the request is refused, and nothing has changed.
        """
        if self._conversions.policy is MigrationPolicy.DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        attempt = JoinAttempt(request, client, None)
        member_id = request.member_id or self._parts.new_member_id()
        check_room(group, member_id, self._parts.properties.group_consumer_max_size)
        names = [name for name, _ in attempt.protocols]
        if not group.supports_classic(request.protocol_type, names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if requires_member_id(request, client.api_version):
            return Outcome(
                response=JoinGroupResponse(
                    member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED
                )
            )
        join = _Join(attempt, member_id, _subscription(attempt))
        records: list[CoordinatorRecord] = []
        former = self._member(group, join, records)
        downgrades = self._conversions.may_downgrade_with(
            group, group.static_member(request.group_instance_id)
        )
        update = MemberUpdate(group, former, _updated(former, join), records)
        outcome = self._update(update, join, now, downgrades=downgrades)
        outcome.response = JoinGroupResponse(
            member_id=member_id,
            generation_id=update.member.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=attempt.protocols[0][0],
        )
        timers = self._parts.timers
        timers.on_joined(group.group_id, member_id)
        if not downgrades:
            session_timeout_ms = request.session_timeout_ms
            timers.prolong_session(group.group_id, member_id, now, session_timeout_ms)
            timers.expect_sync(group.group_id, member_id, request.rebalance_timeout_ms, now)
        return outcome

    def _member(
        self, group: ConsumerGroup, join: _Join, records: list[CoordinatorRecord]
    ) -> ConsumerMember:
        """Return the member that joins, as it was before."""
        member_id, instance_id = join.member_id, join.attempt.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or joining(member_id)
        static = group.static_member(instance_id)
        if join.attempt.member_id:
            return check_instance(static, member_id, instance_id)
        if static is None:
            return joining(member_id)
        member = static._replace(
            member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
        )
        records += replacing_records(group, static, member)
        return member

    def _update(self, update: MemberUpdate, join: _Join, now: Now, *, downgrades: bool) -> Outcome:
        group, client = update.group, join.attempt.client
        is_changed = update.store_member()
        regex_client = HeartbeatClient(
            client.client_id, client.client_host, client.api_version, lambda _topic: True
        )
        change = self._regexes.update(update, regex_client, now)
        is_changed = is_changed or change is not RegexChange.NONE
        self._updates.bump_epoch_if_needed(update, now, is_changed=is_changed)
        rebalances = downgrades and group.target.epoch < update.epoch
        if not rebalances:
            target = ConsumerTarget(group.target.epoch, group.target_of(update.member))
            if not downgrades:
                target = self._updates.compute_target_if_needed(update, now)
            owned = self._owned(join.subscription)
            self._updates.reconcile(update, target, owned, now, has_subscription_changed=is_changed)
        if not downgrades:
            return Outcome(records=update.records, replay=True, stable=True)
        outcome = self._conversions.downgrade(
            group, now, joining=update.member, rebalances=rebalances
        )
        outcome.records = [*update.records, *outcome.records]
        return outcome

    def _owned(
        self, subscription: ConsumerProtocolSubscription
    ) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        """What a member says that it owns, by topic ids."""
        return [
            ConsumerGroupHeartbeatTopicPartitions(
                topic_id=topic.topic_id, partitions=named.partitions
            )
            for named in subscription.owned_partitions
            if (topic := self._parts.metadata.topic(named.topic)) is not None
        ]

    # --- SyncGroup, Heartbeat ---

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: Now) -> Outcome:
        """Serve SyncGroup: what the member has by now.

        Raises:
            KafkaError: the request is refused.
        """
        member = self._checked(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        assert member.classic is not None
        protocol_name = member.classic.protocols[0][0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            request.protocol_name not in (None, protocol_name)
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        timers = self._parts.timers
        if (
            group.target.epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            timers.expect_join(group.group_id, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        timers.on_synced(group.group_id, member.member_id)
        session_timeout_ms = member.classic.session_timeout_ms
        timers.prolong_session(group.group_id, member.member_id, now, session_timeout_ms)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._conversions.assignment_of(member),
        )
        return Outcome(stable=True, response=response)

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, now: Now
    ) -> HeartbeatResponse:
        """Serve Heartbeat: REBALANCE_IN_PROGRESS asks the member to join for its next step.

        Raises:
            KafkaError: the request is refused.
        """
        member = self._checked(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        assert member.classic is not None
        timers = self._parts.timers
        session_timeout_ms = member.classic.session_timeout_ms
        timers.prolong_session(group.group_id, member.member_id, now, session_timeout_ms)
        if (
            member.member_epoch < group.target.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not group.is_waiting_for_partitions(member)
            )
        ):
            timers.expect_join(group.group_id, member, now)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def _checked(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> ConsumerMember:
        """Return the classic member of a generation that a request speaks for."""
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_instance(group.static_member(instance_id), member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.member_epoch != generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member


def _subscription(attempt: JoinAttempt) -> ConsumerProtocolSubscription:
    try:
        return decode_subscription(attempt.protocols[0][1])
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error


def _updated(member: ConsumerMember, join: _Join) -> ConsumerMember:
    """Return a member with what its JoinGroup says."""
    attempt = join.attempt
    request, client = attempt.request, attempt.client
    instance_id = attempt.group_instance_id
    return member._replace(
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=join.subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(join.subscription.topics),
        subscribed_topic_regex="",
        client_id=client.client_id,
        client_host=client.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, attempt.protocols),
    )
