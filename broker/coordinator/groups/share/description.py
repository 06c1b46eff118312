"""Describes share groups for administration; reads groups and changes nothing."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.share.group import ShareGroup
from kraftrio.broker.coordinator.groups.share.member import ShareMember
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.messages.share_groups import (
    ShareGroupDescribeAssignment,
    ShareGroupDescribeDescribedGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeTopicPartitions,
)


def describe_share_group(
    group: ShareGroup, assignor: str, metadata: MetadataCache
) -> ShareGroupDescribeDescribedGroup:
    """Describe a group; authorized operations are left out."""
    return ShareGroupDescribeDescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=assignor,
        members=[_describe(member, metadata) for member in group.members.values()],
    )


def _describe(member: ShareMember, metadata: MetadataCache) -> ShareGroupDescribeMember:
    return ShareGroupDescribeMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=ShareGroupDescribeAssignment(
            topic_partitions=[
                ShareGroupDescribeTopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=sorted(partitions)
                )
                for topic_id, partitions in sorted(member.assigned.items())
                if (name := metadata.topic_name(topic_id)) is not None
            ]
        ),
    )
