"""Serves ConsumerGroupHeartbeat: joins, changes of subscriptions, steps to the target (KIP-848)."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.classic.replies import release_parked
from kraftrio.broker.coordinator.groups.consumer.checks import (
    check_epoch,
    check_instance,
    check_released,
    check_request,
    check_room,
)
from kraftrio.broker.coordinator.groups.consumer.conversions import Conversions
from kraftrio.broker.coordinator.groups.consumer.departures import Departures
from kraftrio.broker.coordinator.groups.consumer.member_updates import (
    MemberUpdate,
    MemberUpdates,
    joining,
    replacing_records,
)
from kraftrio.broker.coordinator.groups.consumer.parts import HeartbeatClient, Parts
from kraftrio.broker.coordinator.groups.consumer.regular_expressions import (
    RegexChange,
    RegularExpressions,
)
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember
from kraftrio.broker.coordinator.groups.modern.member_state import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

Request = ConsumerGroupHeartbeatRequest
Response = ConsumerGroupHeartbeatResponse


class ConsumerHeartbeats:
    """See the module."""

    def __init__(
        self,
        parts: Parts,
        conversions: Conversions,
        updates: MemberUpdates,
        regexes: RegularExpressions,
        departures: Departures,
    ) -> None:
        self._parts = parts
        self._conversions = conversions
        self._updates = updates
        self._regexes = regexes
        self._departures = departures

    # --- what changes nothing ---

    def unchanged(
        self, request: Request, client_id: str, client_host: str, now: Now
    ) -> Response | None:
        """Answer a heartbeat that changes nothing; None if it may change something.

        The answer has nothing that the member has not just said, so that it need not wait for
        records that are not committed yet.
        """
        group = self._parts.registry.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        member = group.members.get(request.member_id)
        epoch = group.epoch
        if (
            member is None
            or not epoch == group.target.epoch == member.member_epoch == request.member_epoch
            or member.state is not MemberState.STABLE
            or not _is_as_known(member, request, client_id, client_host)
            or group.refresh.is_due(epoch, now.monotonic_ms)
            or (group.subscriptions.regexes and self._regexes.is_due(group, now))
        ):
            return None
        times = self._parts.times.of(group.group_id)
        self._parts.timers.prolong_session(
            group.group_id, member.member_id, now, times.session_timeout_ms
        )
        return Response(
            member_id=member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=times.interval_ms,
        )

    def _response(self, group: ConsumerGroup, member: ConsumerMember) -> Response:
        return Response(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._parts.times.of(group.group_id).interval_ms,
        )

    # --- the whole course ---

    def serve(self, request: Request, client: HeartbeatClient, now: Now) -> Outcome:
        """Serve a heartbeat.

        Raises:
            KafkaError: the request is refused, and nothing has changed.
        """
        check_request(request, client.api_version, self._parts.assignors)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._departures.leave(request, now)
        records: list[CoordinatorRecord] = []
        is_join = request.member_epoch == JOIN_EPOCH
        group = self._conversions.group_for(request.group_id, records, may_be_new=is_join)
        check_room(group, request.member_id, self._parts.properties.group_consumer_max_size)
        former = self._member(group, request, records)
        update = MemberUpdate(group, former, _updated(former, request, client), records)
        self._update(update, request, client, now)
        self._parts.timers.prolong_session(group.group_id, former.member_id, now)
        response = self._response(group, update.member)
        if is_join or _is_full(request) or update.member.assigned != former.assigned:
            response.assignment = _assignment(update.member)
        outcome = Outcome(records=records, replay=True, stable=True, response=response)
        self._release_classic(group, outcome, now)
        return outcome

    def _member(
        self, group: ConsumerGroup, request: Request, records: list[CoordinatorRecord]
    ) -> ConsumerMember:
        """Return the member that a request is of, as it was before."""
        is_join = request.member_epoch == JOIN_EPOCH
        member_id = request.member_id or self._parts.new_member_id()
        instance_id = request.instance_id
        if instance_id is None:
            known = group.members.get(member_id)
            if known is None and is_join:
                return joining(member_id)
            member = known or group.member(member_id)
            check_epoch(member, request.member_epoch, request.topic_partitions)
            return member
        static = group.static_member(instance_id)
        if not is_join:
            static = check_instance(static, member_id, instance_id)
            check_epoch(static, request.member_epoch, request.topic_partitions)
            return static
        if static is None:
            return group.members.get(member_id) or joining(member_id)
        if static.classic is None:
            check_released(static, member_id)
        member = static._replace(
            member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
        )
        records += replacing_records(group, static, member)
        return member

    def _update(
        self, update: MemberUpdate, request: Request, client: HeartbeatClient, now: Now
    ) -> None:
        names_changed = update.store_member()
        change = self._regexes.update(update, client, now)
        is_changed = names_changed or change is RegexChange.RESOLVED
        self._updates.bump_epoch_if_needed(update, now, is_changed=is_changed)
        target = self._updates.compute_target_if_needed(update, now)
        self._updates.reconcile(
            update,
            target,
            request.topic_partitions,
            now,
            has_subscription_changed=names_changed or change is not RegexChange.NONE,
        )

    def _release_classic(self, group: ConsumerGroup, outcome: Outcome, now: Now) -> None:
        """Make the parked members of a classic group that becomes this one rejoin."""
        classic = self._parts.registry.find(group.group_id, ClassicGroup)
        if classic is None:
            return
        for member in classic.members.values():
            release_parked(classic, member, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
            self._parts.timers.prolong_session(
                group.group_id, member.member_id, now, member.session_timeout_ms
            )


def _is_as_known(
    member: ConsumerMember, request: Request, client_id: str, client_host: str
) -> bool:
    """Whether a heartbeat says of its member what is known, but for what the member owns."""
    return (
        request.member_epoch > JOIN_EPOCH
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and member.client_id == client_id
        and member.client_host == client_host
        and member.classic is None
    )


def _is_full(request: Request) -> bool:
    """Whether a request has all that a member has to say, as after a lost answer."""
    return (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _updated(member: ConsumerMember, request: Request, client: HeartbeatClient) -> ConsumerMember:
    """Return a member with what a request says of it; what is null stays as it was."""
    if _is_as_known(member, request, client.client_id, client.client_host):
        return member
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topic_names=(
            member.subscribed_topic_names if names is None else frozenset(names)
        ),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
    )


def _assignment(member: ConsumerMember) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )
