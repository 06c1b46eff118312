"""The streams groups of one shard (KIP-1071): one of the shard's kinds of groups.

A heartbeat makes records, which `heartbeats` decides on; `replay` builds the groups from them. Here
are the other ways in which a group changes: members leave, do not heartbeat, or do not give up
their tasks in time; topics change; the group is deleted.

Sans-IO: called by the shard with the time as a `Now`, answers with an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.group import Group, GroupRegistry
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import HeartbeatTimes, KeptSettings
from kraftrio.broker.coordinator.groups.modern.member_state import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.coordinator.groups.streams.group_state import STREAMS_GROUP_TYPE, StreamsGroup
from kraftrio.broker.coordinator.groups.streams.heartbeats import (
    HeartbeatResult,
    HeartbeatSender,
    StreamsHeartbeats,
)
from kraftrio.broker.coordinator.groups.streams.member import StreamsMember, StreamsMemberState
from kraftrio.broker.coordinator.groups.streams.member_deadlines import (
    FIRST_ASSIGNMENT_DEADLINE,
    REBALANCE_DEADLINE,
    SESSION_DEADLINE,
    MemberDeadlines,
)
from kraftrio.broker.coordinator.groups.streams.records import (
    group_record,
    group_tombstones,
    member_tombstones,
)
from kraftrio.broker.coordinator.groups.streams.replay import StreamsReplay
from kraftrio.broker.coordinator.groups.streams.target_assignment import assignment_configs
from kraftrio.broker.coordinator.groups.streams.topology.topics import GroupTopics
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.keys import GroupRecordKey
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


class StreamsGroups:
    """See the module.

    Args:
        registry: the shard's groups of all kinds.
        deadlines: the shard's.
    """

    group_type: ClassVar[type[Group]] = StreamsGroup
    record_keys: ClassVar[Collection[type[GroupRecordKey]]] = StreamsReplay.record_keys
    deadline_kinds: ClassVar[Collection[str]] = (
        SESSION_DEADLINE,
        REBALANCE_DEADLINE,
        FIRST_ASSIGNMENT_DEADLINE,
    )
    follow_ups: ClassVar[Collection[type[FollowUp]]] = ()

    def __init__(
        self,
        registry: GroupRegistry,
        properties: GroupProperties,
        settings: GroupSettingsPort,
        deadlines: DeadlineQueue,
        metadata: MetadataCache,
        times: HeartbeatTimes,
        hashes: TopicHashes,
    ) -> None:
        self._registry = registry
        self._deadlines = MemberDeadlines(deadlines, settings, times)
        self._heartbeats = StreamsHeartbeats(
            registry,
            properties,
            settings,
            GroupTopics(metadata, hashes),
            self._deadlines,
            KeptSettings(metadata, partial(assignment_configs, settings)),
        )
        self._replay = StreamsReplay(registry, metadata.topic_name)

    # --- a kind of group ---

    def replay(self, key: GroupRecordKey, value: Any, now: Now) -> None:
        """Apply one record."""
        self._replay.apply(key, value, now)

    def on_loaded(self, now: Now) -> Outcome:
        """Start the sessions of the members that were read from the log."""
        for group in self._registry.all_of(StreamsGroup):
            for member in group.members.values():
                self._deadlines.prolong_session(group.group_id, member.member_id, now)
                if member.state is StreamsMemberState.UNREVOKED_TASKS:
                    self._deadlines.await_revocation(group.group_id, member, now)
        return Outcome()

    def unload(self, _now: Now) -> Outcome:
        """No request is parked here."""
        return Outcome()

    def on_append_done(self, _follow_up: FollowUp, _error: ErrorCode, _now: Now) -> Outcome:
        """No outcome has a follow-up."""
        return Outcome()

    def on_topics_changed(self, names: Collection[str], _now: Now) -> None:
        """Have the groups that need the topics look at them with the next heartbeat."""
        changed = frozenset(names)
        for group in self._registry.all_of(StreamsGroup):
            if group.topology is not None and not changed.isdisjoint(
                group.topology.required_topics
            ):
                group.refresh.request()

    def tombstones(self, group: StreamsGroup) -> list[CoordinatorRecord]:
        """Give the records that remove a group."""
        self._deadlines.forget_group(group.group_id)
        return group_tombstones(group)

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Act on one deadline that has come."""
        kind, group_id, *rest = key
        group = self._registry.find(group_id, StreamsGroup)
        if group is None:
            return Outcome()
        if kind == FIRST_ASSIGNMENT_DEADLINE:
            return self._assign_first(group, now)
        member = group.members.get(rest[0])
        if member is None or (
            kind == REBALANCE_DEADLINE and member.state is not StreamsMemberState.UNREVOKED_TASKS
        ):
            return Outcome()
        self._deadlines.try_again(key, now)  # in case the records cannot be stored
        return Outcome(records=_removal(group, member), replay=True)

    def _assign_first(self, group: StreamsGroup, now: Now) -> Outcome:
        """Give a group that has waited for members its first target."""
        try:
            records = self._heartbeats.first_target(group, now)
        except KafkaError:
            return Outcome()  # the next heartbeat fails in the same way, and its answer says so
        return Outcome(records=records, replay=True)

    # --- requests ---

    def heartbeat_unchanged(
        self, request: StreamsGroupHeartbeatRequest, sender: HeartbeatSender, now: Now
    ) -> StreamsGroupHeartbeatResponse | None:
        """Answer at once a heartbeat that changes nothing; None: it may change something."""
        return self._heartbeats.unchanged(request, sender, now)

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, sender: HeartbeatSender, now: Now
    ) -> Outcome:
        """Serve StreamsGroupHeartbeat; the response is a `HeartbeatResult`."""
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(request)
            answer, records = self._heartbeats.serve(request, sender, now)
        except KafkaError as error:
            refused = StreamsGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message or error.code.sentence
            )
            return Outcome(response=HeartbeatResult(refused))
        return Outcome(records=records, replay=True, response=answer, stable=True)

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> Outcome:
        group = self.find(request.group_id)
        member = group.member(request.member_id)
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = request.member_id
        response = StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        return Outcome(
            records=_removal(group, member), replay=True, response=HeartbeatResult(response)
        )

    def find(self, group_id: str) -> StreamsGroup:
        """Return a group; KafkaError GROUP_ID_NOT_FOUND."""
        return self._registry.require(group_id, StreamsGroup, STREAMS_GROUP_TYPE)


def _removal(group: StreamsGroup, member: StreamsMember) -> list[CoordinatorRecord]:
    """Give the records that remove a member, for whatever reason."""
    return [
        *member_tombstones(group.group_id, member.member_id),
        group_record(
            group.group_id,
            group.epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        ),
    ]
