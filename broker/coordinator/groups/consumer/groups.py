"""The consumer groups of one shard: the kind of group of KIP-848, as Apache Kafka 4.3 has it.

What each request comes to is decided by the parts that this module puts together: heartbeats
(`heartbeats`), members that go (`departures`), those of the classic protocol (`classic_members`),
groups that change their kind (`conversions`). All of them make records; what a record changes is
here (`rules`).

Sans-IO: called by the shard with the time as a `Now`, answers with an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.assignors.builtin import CONSUMER_ASSIGNORS
from kraftrio.broker.coordinator.groups.consumer.classic_members import ClassicMembers
from kraftrio.broker.coordinator.groups.consumer.conversions import Conversions
from kraftrio.broker.coordinator.groups.consumer.departures import Departures, MemberFenced
from kraftrio.broker.coordinator.groups.consumer.heartbeats import ConsumerHeartbeats
from kraftrio.broker.coordinator.groups.consumer.member_timers import (
    MEMBER_DEADLINES,
    MemberTimers,
)
from kraftrio.broker.coordinator.groups.consumer.member_updates import MemberUpdates
from kraftrio.broker.coordinator.groups.consumer.parts import HeartbeatClient, Parts
from kraftrio.broker.coordinator.groups.consumer.records import (
    assignment_of,
    group_tombstones,
    resolved_of,
    with_current,
    with_metadata,
)
from kraftrio.broker.coordinator.groups.consumer.regular_expressions import (
    LOOKUP_DEADLINE,
    RegularExpressions,
)
from kraftrio.broker.coordinator.groups.consumer.state.group import (
    CONSUMER_GROUP_TYPE,
    ConsumerGroup,
)
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember
from kraftrio.broker.coordinator.groups.group import Group, GroupRegistry
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import HeartbeatTimes
from kraftrio.broker.coordinator.groups.modern.replay import (
    Rule,
    drop_target,
    drop_target_epoch,
    replay,
    reset_member,
    store_epoch,
    store_target_epoch,
    storing_member,
    storing_target,
)
from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.consumer import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kraftrio.wire.messages.group_records.keys import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupRecordKey,
)
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroups:
    """See the module.

    Attributes:
        classic_members: serves the requests of classic members in consumer groups.
        departures: serves members that leave.
    """

    group_type: ClassVar[type[Group]] = ConsumerGroup
    deadline_kinds: ClassVar[Collection[str]] = (*MEMBER_DEADLINES, LOOKUP_DEADLINE)
    follow_ups: ClassVar[Collection[type[FollowUp]]] = (MemberFenced,)

    def __init__(
        self,
        registry: GroupRegistry,
        properties: GroupProperties,
        settings: GroupSettingsPort,
        deadlines: DeadlineQueue,
        new_member_id: Callable[[], str],
        metadata: MetadataCache,
        times: HeartbeatTimes,
        hashes: TopicHashes,
    ) -> None:
        parts = Parts(
            registry=registry,
            properties=properties,
            settings=settings,
            metadata=metadata,
            hashes=hashes,
            times=times,
            timers=MemberTimers(deadlines, times),
            assignors={
                name: CONSUMER_ASSIGNORS[name] for name in properties.group_consumer_assignors
            },
            new_member_id=new_member_id,
        )
        conversions, updates = Conversions(parts), MemberUpdates(parts)
        self._parts = parts
        self._regexes = RegularExpressions(parts, deadlines)
        self.departures = Departures(parts, conversions)
        self._heartbeats = ConsumerHeartbeats(
            parts, conversions, updates, self._regexes, self.departures
        )
        self.classic_members = ClassicMembers(parts, conversions, updates, self._regexes)

    @property
    def default_assignor(self) -> str:
        """The assignor of groups whose members ask for none."""
        return self._parts.default_assignor

    # --- requests ---

    def heartbeat_unchanged(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        now: Now,
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Answer a heartbeat that changes nothing at once; None if it may change something."""
        return self._heartbeats.unchanged(request, client_id, client_host, now)

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatClient, now: Now
    ) -> Outcome:
        """Serve ConsumerGroupHeartbeat.

        Raises:
            KafkaError: the request is refused, and nothing has changed.
        """
        return self._heartbeats.serve(request, client, now)

    def find(self, group_id: str) -> ConsumerGroup:
        """Return a group; KafkaError GROUP_ID_NOT_FOUND."""
        return self._parts.registry.require(group_id, ConsumerGroup, CONSUMER_GROUP_TYPE)

    # --- the kind ---

    def on_loaded(self, now: Now) -> Outcome:
        """Start the sessions of the members that were read from the log."""
        self._regexes.on_topics_changed()
        for group in self._parts.registry.all_of(ConsumerGroup):
            self._parts.timers.start(group, now)
        return Outcome()

    def unload(self, now: Now) -> Outcome:
        """No request is parked here."""
        return Outcome()

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Act on one deadline that has come."""
        kind, group_id, *rest = key
        group = self._parts.registry.find(group_id, ConsumerGroup)
        if kind == LOOKUP_DEADLINE:
            return self._regexes.on_deadline(group_id, group, now)
        member = None if group is None else group.members.get(rest[0])
        if group is None or member is None:
            return Outcome()
        return self.departures.on_deadline(group, member, key, now)

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """Try again to fence a member, if the records could not be appended."""
        assert isinstance(follow_up, MemberFenced)
        self.departures.on_fenced(follow_up, error, now)
        return Outcome()

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Have groups that subscribe to one of the topics look at them at their next heartbeat."""
        changed = frozenset(names)
        self._regexes.on_topics_changed()
        for group in self._parts.registry.all_of(ConsumerGroup):
            if not changed.isdisjoint(group.subscriptions.topics()):
                group.refresh.request()

    def tombstones(self, group: ConsumerGroup) -> list[CoordinatorRecord]:
        """Give the records that remove a group."""
        return group_tombstones(group)

    def give_way(self, group_id: str) -> None:
        """Drop a group whose records are gone, for one of another kind."""
        former = self.group_of(group_id)
        assert former is not None
        self._remove(former)

    def _remove(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self._parts.timers.forget(group.group_id, member_id)
        self._parts.registry.remove(group.group_id)

    # --- records ---

    def replay(self, key: GroupRecordKey, value: Any, now: Now) -> None:
        """Apply one record.

        Raises:
            RemoteProtocolError: the value cannot be read.
        """
        replay(self, key, value, now)

    def group_of(self, group_id: str) -> ConsumerGroup | None:
        """The group with an id; None if there is none."""
        return self._parts.registry.find(group_id, ConsumerGroup)

    def make_group(self, group_id: str) -> ConsumerGroup:
        """Return a group, a new one if there is none, or only offsets under its id so far."""
        group = self.group_of(group_id)
        if group is None:
            group = ConsumerGroup(group_id)
            self._parts.registry.remove(group_id)
            self._parts.registry.add(group)
        return group

    def _drop(self, group: ConsumerGroup, _key: ConsumerGroupMetadataKey) -> None:
        self._remove(group)

    def _drop_member(self, group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey) -> None:
        group.remove(key.member_id)
        self._parts.timers.forget(key.group_id, key.member_id)

    def _store_partition_metadata(
        self, group: ConsumerGroup, _key: object, _value: None, _now: Now
    ) -> None:
        group.has_partition_metadata = True

    def _drop_partition_metadata(self, group: ConsumerGroup, _key: object) -> None:
        group.has_partition_metadata = False

    def _store_regex(
        self,
        group: ConsumerGroup,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue,
        _now: Now,
    ) -> None:
        group.subscriptions.resolve(key.regular_expression, resolved_of(value))

    def _drop_regex(self, group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey) -> None:
        group.subscriptions.resolve(key.regular_expression, None)

    rules: ClassVar[Mapping[type[GroupRecordKey], Rule]] = {
        ConsumerGroupMetadataKey: Rule(ConsumerGroupMetadataValue, store_epoch, _drop),
        ConsumerGroupPartitionMetadataKey: Rule(
            None, _store_partition_metadata, _drop_partition_metadata
        ),
        ConsumerGroupMemberMetadataKey: Rule(
            ConsumerGroupMemberMetadataValue,
            storing_member(ConsumerMember, with_metadata),
            _drop_member,
        ),
        ConsumerGroupTargetAssignmentMetadataKey: Rule(
            ConsumerGroupTargetAssignmentMetadataValue, store_target_epoch, drop_target_epoch
        ),
        ConsumerGroupTargetAssignmentMemberKey: Rule(
            ConsumerGroupTargetAssignmentMemberValue, storing_target(assignment_of), drop_target
        ),
        ConsumerGroupCurrentMemberAssignmentKey: Rule(
            ConsumerGroupCurrentMemberAssignmentValue,
            storing_member(ConsumerMember, with_current),
            reset_member,
        ),
        ConsumerGroupRegularExpressionKey: Rule(
            ConsumerGroupRegularExpressionValue, _store_regex, _drop_regex
        ),
    }
    record_keys: ClassVar[Collection[type[GroupRecordKey]]] = rules.keys()
