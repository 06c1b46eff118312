"""Consumer groups as records of `__consumer_offsets`, and back: each record, and who applies it.

Order, as Kafka's: what a member is, the group's epoch, the target, what a member has; deleted the
other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.member import (
    ClassicMetadata,
    ConsumerMember,
    Partitions,
)
from kraftrio.broker.coordinator.groups.consumer.state.subscriptions import ResolvedRegex
from kraftrio.broker.coordinator.groups.modern.member_state import MemberState
from kraftrio.broker.coordinator.groups.modern.records import record_of, tombstone_of
from kraftrio.broker.coordinator.groups.modern.target_assignment import TargetRecords
from kraftrio.broker.coordinator.outcome import CoordinatorRecord
from kraftrio.wire.messages.group_records.consumer import (
    ConsumerGroupClassicMember,
    ConsumerGroupClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentTopicPartitions,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetTopicPartition,
)
from kraftrio.wire.messages.group_records.keys import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

# --- what there is ---


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Make the record of what a member is and subscribes to."""
    classic = None
    if member.classic is not None:
        classic = ConsumerGroupClassicMember(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return record_of(key, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Make the record of a group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return record_of(ConsumerGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, assignment: MemberAssignment) -> CoordinatorRecord:
    """Make the record of what a member is to have."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ConsumerGroupTargetTopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return record_of(key, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Make the record that completes a target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return record_of(key, value)


TARGET_RECORDS: Final = TargetRecords(target_record, target_epoch_record)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Make the record of what a member has; what the member is must be recorded already."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.pending_revocation),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return record_of(key, value, member)


def _with_epochs(partitions: Partitions) -> list[ConsumerGroupCurrentTopicPartitions]:
    return [
        ConsumerGroupCurrentTopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[index] for index in sorted(epochs)],
        )
        for topic_id, epochs in partitions.items()
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Make the record of what a regular expression matches."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return record_of(key, value)


def group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Make the records of a whole group that has none yet, without regular expressions."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, group.epoch, group.metadata_hash),
        *(
            target_record(group_id, member_id, group.target.of(member_id))
            for member_id in group.members
        ),
        target_epoch_record(group_id, group.target.epoch, group.target.timestamp_ms),
        *(current_record(group_id, member) for member in members),
    ]


# --- tombstones ---


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Make the record that removes what a regular expression matches."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return tombstone_of(key)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Make the record that removes what Kafka 4.0 and older kept of the topics."""
    return tombstone_of(ConsumerGroupPartitionMetadataKey(group_id=group_id))


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Make the records that remove a member."""
    keys = (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
    )
    return [tombstone_of(key(group_id=group_id, member_id=member_id)) for key in keys]


def group_tombstones(
    group: ConsumerGroup, *, replaced: str | None = None, by: str = ""
) -> list[CoordinatorRecord]:
    """Make the records that remove a group with all of its members.

    Args:
        replaced: a member that has another id (`by`) in the log already.
    """
    group_id = group.group_id
    members = [by if member_id == replaced else member_id for member_id in group.members]
    removed: Iterable[list[CoordinatorRecord]] = [member_tombstones(group_id, m) for m in members]
    currents, targets, metadata = zip(*removed, strict=True) if members else ((), (), ())
    return [
        *currents,
        *targets,
        tombstone_of(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)),
        *metadata,
        *(regex_tombstone(group_id, regex) for regex in group.subscriptions.resolved),
        partition_metadata_tombstone(group_id),
        tombstone_of(ConsumerGroupMetadataKey(group_id=group_id)),
    ]


# --- back ---


def with_metadata(
    member: ConsumerMember, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMember:
    """Return a member as its record says what it is."""
    classic = None
    if value.classic_member_metadata is not None:
        classic = ClassicMetadata(
            value.classic_member_metadata.session_timeout_ms,
            tuple((p.name, p.metadata) for p in value.classic_member_metadata.supported_protocols),
        )
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def with_current(
    member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    """Return a member as its record says what it has."""
    epoch = max(value.member_epoch, 0)  # of partitions of a version before 4.3
    return member._replace(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.from_record(value.state),
        assigned=_partitions(value.assigned_partitions, epoch),
        pending_revocation=_partitions(value.partitions_pending_revocation, epoch),
    )


def _partitions(
    topics: list[ConsumerGroupCurrentTopicPartitions], default_epoch: int
) -> Partitions:
    partitions = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            partitions[topic.topic_id] = dict.fromkeys(topic.partitions, default_epoch)
        else:
            partitions[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return partitions


def assignment_of(value: ConsumerGroupTargetAssignmentMemberValue) -> MemberAssignment:
    """Return what a member is to have, as its record says."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def resolved_of(value: ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    """Return what a regular expression matches, as its record says."""
    return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
