"""Share groups as records of `__consumer_offsets`, and back.

Order, as Kafka's: what a member is, then the group's epoch, then the target, then what a member
has, then the states of share partitions; deleted the other way round. Topics and partitions are
written in order, where Kafka's order is that of its hash tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.modern.member_state import MemberState
from kraftrio.broker.coordinator.groups.modern.records import record_of, tombstone_of
from kraftrio.broker.coordinator.groups.modern.target_assignment import TargetRecords
from kraftrio.broker.coordinator.groups.share.group import ShareGroup
from kraftrio.broker.coordinator.groups.share.member import ShareMember
from kraftrio.broker.coordinator.groups.share.state_progress import (
    StateProgress,
    TopicProgress,
    Topics,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord
from kraftrio.wire.messages.group_records.keys import (
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
    ShareGroupTopicInfo,
    ShareGroupTopicPartitions,
    ShareGroupTopicPartitionsInfo,
)

# --- writing ---


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Make the record of what a member is and subscribes to."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return record_of(key, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Make the record of a group's epoch."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return record_of(ShareGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, assignment: MemberAssignment) -> CoordinatorRecord:
    """Make the record of what a member is to have."""
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=_topics(assignment))
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return record_of(key, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Make the record that completes a target assignment."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    key = ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    return record_of(key, value)


TARGET_RECORDS: Final = TargetRecords(target_record, target_epoch_record)


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Make the record of what a member has; what the member is must be recorded already."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_topics(member.assigned),
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return record_of(key, value, member)


def states_record(
    group_id: str, states: StateProgress, topic_name: Callable[[bytes], str]
) -> CoordinatorRecord:
    """Make the record of the states of share partitions.

    Args:
        topic_name: the name of a topic, for those that are being deleted.
    """
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_progress(states.initializing),
        initialized_topics=_progress(states.initialized),
        deleting_topics=[
            ShareGroupTopicInfo(topic_id=topic_id, topic_name=topic_name(topic_id))
            for topic_id in sorted(states.deleting)
        ],
    )
    key = ShareGroupStatePartitionMetadataKey(group_id=group_id)
    return record_of(key, value)


def _topics(assignment: MemberAssignment) -> list[ShareGroupTopicPartitions]:
    return [
        ShareGroupTopicPartitions(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
    ]


def _progress(topics: Topics) -> list[ShareGroupTopicPartitionsInfo]:
    return [
        ShareGroupTopicPartitionsInfo(
            topic_id=topic_id,
            topic_name=topics[topic_id].name,
            partitions=sorted(topics[topic_id].partitions),
        )
        for topic_id in sorted(topics)
    ]


# --- tombstones ---


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Make the records that remove a member."""
    return [
        tombstone_of(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)),
        tombstone_of(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)),
        tombstone_of(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)),
    ]


def group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Make the records that remove a group without members."""
    group_id = group.group_id
    return [
        tombstone_of(ShareGroupTargetAssignmentMetadataKey(group_id=group_id)),
        tombstone_of(ShareGroupStatePartitionMetadataKey(group_id=group_id)),
        tombstone_of(ShareGroupMetadataKey(group_id=group_id)),
    ]


# --- reading ---


def with_metadata(member: ShareMember, value: ShareGroupMemberMetadataValue) -> ShareMember:
    """Return a member as its record says what it is."""
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
    )


def with_current(member: ShareMember, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    """Return a member as its record says what it has."""
    return member._replace(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.from_record(value.state),
        assigned=_assignment(value.assigned_partitions),
    )


def assignment_of(value: ShareGroupTargetAssignmentMemberValue) -> MemberAssignment:
    """Return what a member is to have, as its record says."""
    return _assignment(value.topic_partitions)


def _assignment(topics: Iterable[ShareGroupTopicPartitions]) -> MemberAssignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def states_of(value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> StateProgress:
    """Return the states of share partitions, as the record says at some time."""
    return StateProgress(
        _read_progress(value.initializing_topics, now_ms),
        _read_progress(value.initialized_topics, now_ms),
        frozenset(topic.topic_id for topic in value.deleting_topics),
    )


def _read_progress(
    topics: Iterable[ShareGroupTopicPartitionsInfo], now_ms: int
) -> dict[bytes, TopicProgress]:
    return {
        topic.topic_id: TopicProgress(topic.topic_name, frozenset(topic.partitions), now_ms)
        for topic in topics
    }
