"""Applies the records of streams groups: what loading does, and what follows each append.

A group begins with its first record, whichever that is: compaction leaves them in any order. It
ends with the tombstone of its epoch. Tombstones of what does not exist are ignored. A group that
was only made for its offsets, since those were read first, is replaced; records of a group that is
of another kind cannot be applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.group import GroupRegistry
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
from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup
from kraftrio.broker.coordinator.groups.streams.member import (
    StreamsMember,
    StreamsMemberMetadata,
    StreamsMemberState,
    UserEndpoint,
)
from kraftrio.broker.coordinator.groups.streams.tasks import (
    NO_ASSIGNED_TASKS,
    NO_TASK_SETS,
    AssignedTasks,
    TaskEpochs,
    Tasks,
    TaskSets,
    task_sets,
)
from kraftrio.broker.coordinator.groups.streams.topology.topology import topology_from_record
from kraftrio.broker.coordinator.outcome import Now
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


def _with_metadata(member: StreamsMember, read: StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = read.user_endpoint
    metadata = StreamsMemberMetadata(
        instance_id=read.instance_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        rebalance_timeout_ms=read.rebalance_timeout_ms,
        topology_epoch=read.topology_epoch,
        process_id=read.process_id,
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=tuple((tag.key, tag.value) for tag in read.client_tags),
    )
    return member._replace(metadata=metadata)


def _with_assignment(
    member: StreamsMember, read: StreamsGroupCurrentMemberAssignmentValue
) -> StreamsMember:
    epoch = read.member_epoch
    return StreamsMember(
        member.member_id,
        member.metadata,
        epoch,
        read.previous_member_epoch,
        StreamsMemberState.from_record(read.state),
        _assigned(read.active_tasks, read.standby_tasks, read.warmup_tasks, epoch),
        _assigned(
            read.active_tasks_pending_revocation,
            read.standby_tasks_pending_revocation,
            read.warmup_tasks_pending_revocation,
            epoch,
        ),
    )


def _assigned(
    active: Collection[StreamsGroupCurrentAssignmentTaskIds],
    standby: Collection[Any],
    warmup: Collection[Any],
    member_epoch: int,
) -> AssignedTasks:
    if not (active or standby or warmup):
        return NO_ASSIGNED_TASKS
    return AssignedTasks(_epochs(active, member_epoch), _sets(standby), _sets(warmup))


def _tasks(read: StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    return Tasks(*map(_sets, (read.active_tasks, read.standby_tasks, read.warmup_tasks)))


def _sets(ids: Collection[Any]) -> TaskSets:
    if not ids:  # as most are
        return NO_TASK_SETS
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


class StreamsReplay:
    """See the module. One for each shard.

    Args:
        topic_name: returns the name of the topic that has an id now.
    """

    def __init__(self, registry: GroupRegistry, topic_name: Callable[[bytes], str | None]) -> None:
        self._registry = registry
        self._topic_name = topic_name

    def apply(self, key: GroupRecordKey, value: Any, now: Now) -> None:
        """Apply one record; RemoteProtocolError if its value cannot be read."""
        replay(self, key, value, now)

    def group_of(self, group_id: str) -> StreamsGroup | None:
        """The group with an id; None if there is none."""
        return self._registry.find(group_id, StreamsGroup)

    def make_group(self, group_id: str) -> StreamsGroup:
        """Return the group with an id, a new one if there is none.

        Raises:
            RemoteProtocolError: a group of another kind has the id, and stays.
        """
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

    def _store_group(
        self, group: StreamsGroup, key: object, value: StreamsGroupMetadataValue, now: Now
    ) -> None:
        store_epoch(self, group, key, value, now)
        group.validated_topology_epoch = value.validated_topology_epoch
        group.assignment_configs = {
            config.key: config.value for config in value.last_assignment_configs or ()
        }

    def _drop_group(self, group: StreamsGroup, _key: StreamsGroupMetadataKey) -> None:
        self._registry.remove(group.group_id)

    def _drop_member(self, group: StreamsGroup, key: StreamsGroupMemberMetadataKey) -> None:
        group.remove(key.member_id)

    def _store_topology(
        self, group: StreamsGroup, _key: object, value: StreamsGroupTopologyValue, _now: Now
    ) -> None:
        group.topology = topology_from_record(value)

    def _drop_topology(self, group: StreamsGroup, _key: object) -> None:
        group.topology = None

    rules: ClassVar[Mapping[type[GroupRecordKey], Rule]] = {
        StreamsGroupMetadataKey: Rule(StreamsGroupMetadataValue, _store_group, _drop_group),
        StreamsGroupMemberMetadataKey: Rule(
            StreamsGroupMemberMetadataValue,
            storing_member(StreamsMember, _with_metadata),
            _drop_member,
        ),
        StreamsGroupTargetAssignmentMetadataKey: Rule(
            StreamsGroupTargetAssignmentMetadataValue, store_target_epoch, drop_target_epoch
        ),
        StreamsGroupTargetAssignmentMemberKey: Rule(
            StreamsGroupTargetAssignmentMemberValue, storing_target(_tasks), drop_target
        ),
        StreamsGroupCurrentMemberAssignmentKey: Rule(
            StreamsGroupCurrentMemberAssignmentValue,
            storing_member(StreamsMember, _with_assignment),
            reset_member,
        ),
        StreamsGroupTopologyKey: Rule(StreamsGroupTopologyValue, _store_topology, _drop_topology),
    }
    record_keys: ClassVar[Collection[type[GroupRecordKey]]] = rules.keys()
