"""Streams groups as records of `__consumer_offsets`, byte for byte as Apache Kafka writes them.

Subtopologies are sorted by id, partitions by number. Called by whatever changes a group; `replay`
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftrio.broker.coordinator.groups.modern.records import record_of, tombstone_of
from kraftrio.broker.coordinator.groups.modern.target_assignment import TargetRecords
from kraftrio.broker.coordinator.groups.streams.assignors.java_order import text_order
from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup
from kraftrio.broker.coordinator.groups.streams.member import StreamsMember
from kraftrio.broker.coordinator.groups.streams.tasks import TaskEpochs, Tasks, TaskSets
from kraftrio.broker.coordinator.outcome import CoordinatorRecord
from kraftrio.wire.messages.group_records.keys import (
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
    StreamsGroupMemberMetadataEndpoint,
    StreamsGroupMemberMetadataKeyValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataLastAssignmentConfig,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTargetAssignmentTaskIds,
    StreamsGroupTopologyValue,
)


def group_record(
    group_id: str,
    group_epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_configs: Mapping[str, str],
) -> CoordinatorRecord:
    """Make the record of a group's epoch."""
    value = StreamsGroupMetadataValue(
        epoch=group_epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            StreamsGroupMetadataLastAssignmentConfig(key=name, value=text)
            for name, text in sorted(assignment_configs.items())
        ],
    )
    return record_of(StreamsGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Make the record of what a member says of itself."""
    metadata = member.metadata
    endpoint = None
    if metadata.user_endpoint is not None:
        host, port = metadata.user_endpoint
        endpoint = StreamsGroupMemberMetadataEndpoint(host=host, port=port)
    value = StreamsGroupMemberMetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=endpoint,
        client_tags=[
            StreamsGroupMemberMetadataKeyValue(key=key, value=tag)
            for key, tag in metadata.client_tags
        ],
    )
    key = StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return record_of(key, value)


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    """Make the record of a group's topology."""
    return record_of(StreamsGroupTopologyKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, tasks: Tasks) -> CoordinatorRecord:
    """Make the record of what a member is to have."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target_ids(tasks.active),
        standby_tasks=_target_ids(tasks.standby),
        warmup_tasks=_target_ids(tasks.warmup),
    )
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return record_of(key, value)


def target_epoch_record(
    group_id: str, assignment_epoch: int, timestamp_ms: int
) -> CoordinatorRecord:
    """Make the record that says which group epoch the target assignment is for."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms
    )
    key = StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
    return record_of(key, value)


TARGET_RECORDS: Final = TargetRecords(target_record, target_epoch_record)


def current_assignment_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Make the record of what a member has; what the member is must be recorded already."""
    assigned, revoked = member.assigned, member.pending_revocation
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        active_tasks=_active_ids(assigned.active),
        standby_tasks=_current_ids(assigned.standby),
        warmup_tasks=_current_ids(assigned.warmup),
        active_tasks_pending_revocation=_active_ids(revoked.active),
        standby_tasks_pending_revocation=_current_ids(revoked.standby),
        warmup_tasks_pending_revocation=_current_ids(revoked.warmup),
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return record_of(key, value, member)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Make the records that remove a member."""
    ids = {"group_id": group_id, "member_id": member_id}
    return [
        tombstone_of(StreamsGroupCurrentMemberAssignmentKey(**ids)),
        tombstone_of(StreamsGroupTargetAssignmentMemberKey(**ids)),
        tombstone_of(StreamsGroupMemberMetadataKey(**ids)),
    ]


def group_tombstones(group: StreamsGroup) -> list[CoordinatorRecord]:
    """Make the records that remove a group; its members' first."""
    by_member = [member_tombstones(group.group_id, member_id) for member_id in group.members]
    current, target, metadata = zip(*by_member, strict=True) if by_member else ((), (), ())
    group_id = group.group_id
    return [
        *current,
        *target,
        tombstone_of(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)),
        *metadata,
        tombstone_of(StreamsGroupMetadataKey(group_id=group_id)),
        tombstone_of(StreamsGroupTopologyKey(group_id=group_id)),
    ]


def _target_ids(sets: TaskSets) -> list[StreamsGroupTargetAssignmentTaskIds]:
    return [
        StreamsGroupTargetAssignmentTaskIds(subtopology_id=name, partitions=sorted(sets[name]))
        for name in sorted(sets, key=text_order)
    ]


def _current_ids(sets: TaskSets) -> list[StreamsGroupCurrentAssignmentTaskIds]:
    if not sets:  # as most are
        return []
    return [
        StreamsGroupCurrentAssignmentTaskIds(subtopology_id=name, partitions=sorted(sets[name]))
        for name in sorted(sets, key=text_order)
    ]


def _active_ids(epochs: TaskEpochs) -> list[StreamsGroupCurrentAssignmentTaskIds]:
    if not epochs:
        return []
    return [
        StreamsGroupCurrentAssignmentTaskIds(
            subtopology_id=name,
            partitions=sorted(epochs[name]),
            assignment_epochs=[epochs[name][partition] for partition in sorted(epochs[name])],
        )
        for name in sorted(epochs, key=text_order)
    ]
