"""Applies the records of streams groups: what loading does, and what follows each append.

A group begins with its first record, whichever that is: compaction leaves them in any order. It
ends with the tombstone of its epoch. Tombstones of what is not there are passed over. A group that
was made for offsets alone, which were read first, gives way; records of a group that is of another
kind cannot be applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.modern.member_state import LEAVE_EPOCH
from kraftrio.broker.coordinator.groups.streams.group_state import (
    NO_ASSIGNMENT_EPOCH,
    StreamsGroup,
)
from kraftrio.broker.coordinator.groups.streams.member import (
    Endpoint,
    MemberMetadata,
    StreamsMember,
    StreamsMemberState,
)
from kraftrio.broker.coordinator.groups.streams.tasks import (
    NO_ASSIGNED_TASKS,
    AssignedTasks,
    TaskEpochs,
    Tasks,
    TaskSets,
    task_sets,
)
from kraftrio.broker.coordinator.groups.streams.topology.topology import topology_from_record
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.group_records.keys import (
    GroupRecordKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from kraftrio.wire.messages.group_records.streams import (
    StreamsGroupCurrentAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)
from kraftrio.wire.messages.group_records.values import decode_value
from kraftrio.wire.primitives import Buffer


class StreamsReplay:
    """See the module. One for each shard.

    Attributes:
        record_keys: the keys of the records that are applied here.

    Args:
        topic_name: tells the name of the topic that has an id now.
    """

    def __init__(self, registry: GroupRegistry, topic_name: Callable[[bytes], str | None]) -> None:
        self._registry = registry
        self._topic_name = topic_name

    def apply(self, key: GroupRecordKey, value: Buffer | None) -> None:
        """Apply one record; RemoteProtocolError if its value cannot be read."""
        self._appliers[type(key)](self, key, value)

    def _find(self, group_id: str) -> StreamsGroup | None:
        return self._registry.find(group_id, StreamsGroup)

    def _find_or_make(self, group_id: str) -> StreamsGroup:
        group = self._registry.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is not None:
            is_for_offsets = isinstance(group, ClassicGroup) and group.protocol_type is None
            if not (is_for_offsets and group.is_unused):
                raise RemoteProtocolError(f"group {group_id!r} is not a streams group")
            self._registry.remove(group_id)
        made = StreamsGroup(group_id, self._topic_name)
        self._registry.add(made)
        return made

    def _apply_group(self, key: StreamsGroupMetadataKey, value: Buffer | None) -> None:
        if value is None:
            if self._find(key.group_id) is not None:
                self._registry.remove(key.group_id)
            return
        read = decode_value(StreamsGroupMetadataValue, value)
        group = self._find_or_make(key.group_id)
        group.group_epoch = read.epoch
        group.metadata_hash = read.metadata_hash
        group.validated_topology_epoch = read.validated_topology_epoch
        group.assignment_configs = {
            config.key: config.value for config in read.last_assignment_configs or ()
        }

    def _apply_member(self, key: StreamsGroupMemberMetadataKey, value: Buffer | None) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                group.remove(key.member_id)
            return
        metadata = _member_metadata(decode_value(StreamsGroupMemberMetadataValue, value))
        group = self._find_or_make(key.group_id)
        member = group.members.get(key.member_id, StreamsMember(key.member_id))
        group.put(replace(member, metadata=metadata))

    def _apply_target_epoch(
        self, key: StreamsGroupTargetAssignmentMetadataKey, value: Buffer | None
    ) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                group.assignment_epoch, group.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
            return
        read = decode_value(StreamsGroupTargetAssignmentMetadataValue, value)
        group = self._find_or_make(key.group_id)
        group.assignment_epoch = read.assignment_epoch
        group.assignment_timestamp_ms = read.assignment_timestamp

    def _apply_target(
        self, key: StreamsGroupTargetAssignmentMemberKey, value: Buffer | None
    ) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                group.target.pop(key.member_id, None)
            return
        read = decode_value(StreamsGroupTargetAssignmentMemberValue, value)
        tasks = Tasks(*map(_sets, (read.active_tasks, read.standby_tasks, read.warmup_tasks)))
        self._find_or_make(key.group_id).target[key.member_id] = tasks

    def _apply_current_assignment(
        self, key: StreamsGroupCurrentMemberAssignmentKey, value: Buffer | None
    ) -> None:
        if value is None:
            group = self._find(key.group_id)
            member = None if group is None else group.members.get(key.member_id)
            if group is not None and member is not None:
                group.put(
                    replace(
                        member,
                        member_epoch=LEAVE_EPOCH,
                        previous_member_epoch=LEAVE_EPOCH,
                        assigned=NO_ASSIGNED_TASKS,
                        pending_revocation=NO_ASSIGNED_TASKS,
                    )
                )
            return
        read = decode_value(StreamsGroupCurrentMemberAssignmentValue, value)
        group = self._find_or_make(key.group_id)
        member = group.members.get(key.member_id, StreamsMember(key.member_id))
        group.put(_with_assignment(member, read))

    def _apply_topology(self, key: StreamsGroupTopologyKey, value: Buffer | None) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                group.topology = None
            return
        topology = topology_from_record(decode_value(StreamsGroupTopologyValue, value))
        self._find_or_make(key.group_id).topology = topology

    _appliers: ClassVar[Mapping[type[GroupRecordKey], Callable[..., None]]] = {
        StreamsGroupMetadataKey: _apply_group,
        StreamsGroupMemberMetadataKey: _apply_member,
        StreamsGroupTargetAssignmentMetadataKey: _apply_target_epoch,
        StreamsGroupTargetAssignmentMemberKey: _apply_target,
        StreamsGroupCurrentMemberAssignmentKey: _apply_current_assignment,
        StreamsGroupTopologyKey: _apply_topology,
    }
    record_keys: ClassVar[Collection[type[GroupRecordKey]]] = _appliers.keys()


def _member_metadata(read: StreamsGroupMemberMetadataValue) -> MemberMetadata:
    endpoint = read.user_endpoint
    return MemberMetadata(
        instance_id=read.instance_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        rebalance_timeout_ms=read.rebalance_timeout_ms,
        topology_epoch=read.topology_epoch,
        process_id=read.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=tuple((tag.key, tag.value) for tag in read.client_tags),
    )


def _with_assignment(
    member: StreamsMember, read: StreamsGroupCurrentMemberAssignmentValue
) -> StreamsMember:
    epoch = read.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=read.previous_member_epoch,
        state=StreamsMemberState.from_record(read.state),
        assigned=AssignedTasks(
            _epochs(read.active_tasks, epoch), _sets(read.standby_tasks), _sets(read.warmup_tasks)
        ),
        pending_revocation=AssignedTasks(
            _epochs(read.active_tasks_pending_revocation, epoch),
            _sets(read.standby_tasks_pending_revocation),
            _sets(read.warmup_tasks_pending_revocation),
        ),
    )


def _sets(ids: Iterable[Any]) -> TaskSets:
    return task_sets((one.subtopology_id, one.partitions) for one in ids)


def _epochs(ids: Iterable[StreamsGroupCurrentAssignmentTaskIds], member_epoch: int) -> TaskEpochs:
    """Active tasks with their epochs; a record that has none, or too few, means the member's."""
    epochs: dict[str, Mapping[int, int]] = {}
    for one in ids:
        own = one.assignment_epochs or ()
        if len(own) != len(one.partitions):
            own = [member_epoch] * len(one.partitions)
        epochs[one.subtopology_id] = dict(zip(one.partitions, own, strict=True))
    return epochs
