"""Describes consumer groups for administration; reads a group and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


class _MemberView(NamedTuple):
    """A member as it was when the group was asked."""

    member: ConsumerMember
    target: MemberAssignment


def describe_consumer_group(
    group: ConsumerGroup, default_assignor: str, metadata: MetadataCache
) -> ConsumerGroupDescribeDescribedGroup:
    """Describe a group as it is now; authorized operations are left out."""
    members = [_MemberView(one, group.target.of(one.member_id)) for one in group.members.values()]
    return ConsumerGroupDescribeDescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=group.preferred_assignor(None, None) or default_assignor,
        members=each(lambda described: _member(described, metadata), members),
    )


def described_topics(group: ConsumerGroup, metadata: MetadataCache) -> set[str]:
    """The topics that a description of a group names."""
    topic_ids: set[bytes] = set()
    for member in group.members.values():
        topic_ids.update(member.assigned, member.pending_revocation)
        topic_ids.update(group.target.of(member.member_id))
    return {name for topic_id in topic_ids if (name := metadata.topic_name(topic_id)) is not None}


def _member(described: _MemberView, metadata: MetadataCache) -> ConsumerGroupDescribeMember:
    member = described.member
    held: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, indexes in partitions.items():
            held.setdefault(topic_id, []).extend(sorted(indexes))
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(held, metadata),
        target_assignment=_assignment(described.target, metadata),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(
    partitions: Mapping[bytes, Iterable[int]], metadata: MetadataCache
) -> ConsumerGroupDescribeAssignment:
    """Name the partitions; those of topics that are gone are left out."""
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=sorted(indexes)
            )
            for topic_id, indexes in partitions.items()
            if (name := metadata.topic_name(topic_id)) is not None
        ]
    )
