"""The share groups of one shard: the kind of group of KIP-932, as Apache Kafka 4.3 has it.

`heartbeats` and `states` decide on requests. All of them make records; what a record changes is
here (`rules`).

Sans-IO: called by the shard with the time as a `Now`, answers with an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.assignors.builtin import SHARE_ASSIGNORS
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
)
from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.coordinator.groups.share.group import ShareGroup
from kraftrio.broker.coordinator.groups.share.heartbeats import ShareHeartbeats, StatesWanted
from kraftrio.broker.coordinator.groups.share.member import ShareMember
from kraftrio.broker.coordinator.groups.share.parts import SESSION_DEADLINE, ShareParts
from kraftrio.broker.coordinator.groups.share.ports import StateInitializer
from kraftrio.broker.coordinator.groups.share.records import (
    assignment_of,
    group_tombstones,
    states_of,
    with_current,
    with_metadata,
)
from kraftrio.broker.coordinator.groups.share.states import ShareStates
from kraftrio.broker.coordinator.outcome import (
    COMMITTED,
    CoordinatorRecord,
    FollowUp,
    Now,
    Outcome,
)
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import (
    GroupRecordKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from kraftrio.wire.messages.group_records.share import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from kraftrio.wire.messages.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_RETRY_MS = 500  # Kafka's: a member that could not be fenced, since the record was not appended


@dataclass(frozen=True, slots=True)
class ShareMemberFenced(FollowUp):
    """Follows the append of the records that fence a member whose session is over."""

    key: DeadlineKey


class ShareGroups:
    """See the module.

    Attributes:
        states: serves what is asked about the states of share partitions.
    """

    group_type: ClassVar[type[Group]] = ShareGroup
    deadline_kinds: ClassVar[Collection[str]] = (SESSION_DEADLINE,)
    follow_ups: ClassVar[Collection[type[FollowUp]]] = (StatesWanted, ShareMemberFenced)

    def __init__(
        self,
        registry: GroupRegistry,
        properties: GroupProperties,
        settings: GroupSettingsPort,
        deadlines: DeadlineQueue,
        metadata: MetadataCache,
        times: HeartbeatTimes,
        hashes: TopicHashes,
        initializer: StateInitializer,
    ) -> None:
        assignor = SHARE_ASSIGNORS[properties.group_share_assignors[0]]
        parts = ShareParts(
            registry=registry,
            properties=properties,
            settings=settings,
            metadata=metadata,
            hashes=hashes,
            deadlines=deadlines,
            times=times,
            assignor=assignor,
        )
        self._parts = parts
        self._initializer = initializer
        self._heartbeats = ShareHeartbeats(parts)
        self.states = ShareStates(parts)

    @property
    def assignor(self) -> str:
        """The assignor of all share groups, by name."""
        return self._parts.assignor.name

    # --- requests ---

    def heartbeat_unchanged(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str, now: Now
    ) -> ShareGroupHeartbeatResponse | None:
        """Answer at once a heartbeat that changes nothing; None: it may change something."""
        return self._heartbeats.unchanged(request, client_id, client_host, now)

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str, now: Now
    ) -> Outcome:
        """Serve ShareGroupHeartbeat.

        Raises:
            KafkaError: the request is refused, and nothing has changed.
        """
        return self._heartbeats.serve(request, client_id, client_host, now)

    def find(self, group_id: str) -> ShareGroup:
        """Return a share group; GROUP_ID_NOT_FOUND if there is none."""
        return self._parts.find(group_id)

    def has(self, group_id: str) -> bool:
        """Whether a group is there, and is a share group."""
        return self.group_of(group_id) is not None

    # --- a kind of group ---

    def on_loaded(self, now: Now) -> Outcome:
        """Start the sessions of the members that were read from the log."""
        for group in self._parts.registry.all_of(ShareGroup):
            for member_id in group.members:
                self._parts.prolong_session(group.group_id, member_id, now)
        return Outcome()

    def unload(self, now: Now) -> Outcome:
        """No request is parked here."""
        return Outcome()

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Remove a member that was silent for too long."""
        _, group_id, member_id = key
        group = self._parts.registry.find(group_id, ShareGroup)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Outcome()
        outcome = self._heartbeats.remove(group, member)
        outcome.follow_up = ShareMemberFenced(key)
        return outcome

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """Request the states that were noted; fence a member later if its records failed."""
        if isinstance(follow_up, StatesWanted):
            if error in COMMITTED:
                self._initializer.initialize(follow_up.states)
        elif isinstance(follow_up, ShareMemberFenced):
            _, group_id, member_id = follow_up.key
            group = self._parts.registry.find(group_id, ShareGroup)
            if group is not None and group.has_member(member_id):
                self._parts.deadlines.schedule(follow_up.key, now.monotonic_ms + _RETRY_MS)
        return Outcome()

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Have groups that subscribe to one of the topics look at them at their next heartbeat."""
        changed = frozenset(names)
        for group in self._parts.registry.all_of(ShareGroup):
            if not changed.isdisjoint(group.topics()):
                group.refresh.request()

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> list[CoordinatorRecord]:
        """Make the records that forget the states of deleted topics."""
        return self.states.forget_topics(topics.values())

    def tombstones(self, group: ShareGroup) -> list[CoordinatorRecord]:
        """Give the records that remove a group."""
        return group_tombstones(group)

    # --- records ---

    def replay(self, key: GroupRecordKey, value: Any, now: Now) -> None:
        """Apply one record.

        Raises:
            RemoteProtocolError: the value cannot be read.
        """
        replay(self, key, value, now)

    def group_of(self, group_id: str) -> ShareGroup | None:
        """The group with an id; None if there is none."""
        return self._parts.registry.find(group_id, ShareGroup)

    def make_group(self, group_id: str) -> ShareGroup:
        """Return a group, a new one if there is none; one of another kind gives way."""
        group = self.group_of(group_id)
        if group is None:
            group = ShareGroup(group_id)
            self._parts.registry.remove(group_id)
            self._parts.registry.add(group)
        return group

    def _drop(self, group: ShareGroup, _key: ShareGroupMetadataKey) -> None:
        for member_id in group.members:
            self._forget_session(group.group_id, member_id)
        self._parts.registry.remove(group.group_id)

    def _drop_member(self, group: ShareGroup, key: ShareGroupMemberMetadataKey) -> None:
        group.remove(key.member_id)
        self._forget_session(key.group_id, key.member_id)

    def _forget_session(self, group_id: str, member_id: str) -> None:
        self._parts.deadlines.cancel((SESSION_DEADLINE, group_id, member_id))

    def _store_target(
        self,
        group: ShareGroup,
        key: ShareGroupTargetAssignmentMemberKey,
        value: ShareGroupTargetAssignmentMemberValue,
        _now: Now,
    ) -> None:
        group.target.members[key.member_id] = assignment_of(value)
        group.on_changed()

    def _drop_target(self, group: ShareGroup, key: ShareGroupTargetAssignmentMemberKey) -> None:
        drop_target(self, group, key)
        group.on_changed()

    def _store_states(
        self,
        group: ShareGroup,
        _key: object,
        value: ShareGroupStatePartitionMetadataValue,
        now: Now,
    ) -> None:
        group.set_states(states_of(value, now.wall_ms))

    def _drop_states(self, group: ShareGroup, _key: object) -> None:
        group.set_states(None)

    rules: ClassVar[Mapping[type[GroupRecordKey], Rule]] = {
        ShareGroupMetadataKey: Rule(ShareGroupMetadataValue, store_epoch, _drop),
        ShareGroupMemberMetadataKey: Rule(
            ShareGroupMemberMetadataValue, storing_member(ShareMember, with_metadata), _drop_member
        ),
        ShareGroupTargetAssignmentMetadataKey: Rule(
            ShareGroupTargetAssignmentMetadataValue, store_target_epoch, drop_target_epoch
        ),
        ShareGroupTargetAssignmentMemberKey: Rule(
            ShareGroupTargetAssignmentMemberValue, _store_target, _drop_target
        ),
        ShareGroupCurrentMemberAssignmentKey: Rule(
            ShareGroupCurrentMemberAssignmentValue,
            storing_member(ShareMember, with_current),
            reset_member,
        ),
        ShareGroupStatePartitionMetadataKey: Rule(
            ShareGroupStatePartitionMetadataValue, _store_states, _drop_states
        ),
    }
    record_keys: ClassVar[Collection[type[GroupRecordKey]]] = rules.keys()
