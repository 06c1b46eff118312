"""The admin client's part for share groups: their members, and where their partitions begin.

Owns `ShareGroupAdmin`, which programs reach as `Admin.share_groups`. Listing and deleting groups is
the same for all kinds, and is `Admin`'s.

Called by: `admin`. KIP-932, KIP-1226 (lag).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftrio.clients.admin.calls import (
    Begin,
    by_topic,
    collect,
    describe_one,
    finish,
    for_each_group,
)
from kraftrio.clients.admin.types import (
    Results,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from kraftrio.clients.arguments.several import (
    Partitions,
    Texts,
    by_item,
    topic_partition,
    topic_partitions,
)
from kraftrio.clients.arguments.several import topics as checked_topics
from kraftrio.clients.arguments.times import Duration
from kraftrio.clients.arguments.values import text, whole_number
from kraftrio.clients.errors import error_for
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeDescribedGroup,
    ShareGroupDescribeRequest,
)
from kraftrio.wire.primitives import TopicPartition, indexes_by_topic


class ShareGroupAdmin:
    """Administers share groups.

    Args:
        begin: begins a call, which may take some milliseconds at most.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    async def describe(
        self,
        group_ids: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, ShareGroupDescription]:
        """Return share groups' states and members.

        Raises:
            GroupIdNotFoundError, ...: for a group, if `raise_errors`; other kinds count as unknown.
        """
        calls, deadline = self._begin(timeout_ms)

        async def ask(group_id: str) -> ShareGroupDescription:
            request = ShareGroupDescribeRequest(group_ids=[group_id])
            node_id, reported = await describe_one(calls, group_id, request, deadline)
            return _description(reported, node_id)

        return finish(await for_each_group(group_ids, ask), raise_errors)

    async def list_offsets(
        self,
        group_id: str,
        partitions: Partitions | None = None,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, SharePartitionOffset | None]:
        """Return where the group's partitions begin; None for one that it has not read.

        Args:
            partitions: None: all that it has read.

        Raises:
            GroupIdNotFoundError, ...: of the group; or for a partition, if `raise_errors`.
        """
        text("group_id", group_id)
        topics = None
        if partitions is not None:
            topics = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=indexes)
                for topic, indexes in indexes_by_topic(
                    sorted(topic_partitions("partitions", partitions))
                ).items()
            ]
        calls, deadline = self._begin(timeout_ms)
        group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        _, described = await describe_one(calls, group_id, request, deadline)
        return finish(
            collect(
                (
                    TopicPartition(topic.topic_name, reported.partition_index),
                    reported.error_code,
                    reported.error_message,
                    _offset(reported),
                )
                for topic in described.topics
                for reported in topic.partitions
            ),
            raise_errors,
        )

    async def alter_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Let the partitions of a group that has no members begin at these offsets.

        Raises:
            GroupNotEmptyError, GroupIdNotFoundError, ...: of the group; or for a partition, if
                `raise_errors`.
        """
        text("group_id", group_id)
        wanted = {
            topic_partition(item): whole_number("an offset", offset)
            for item, offset in by_item("offsets", offsets).items()
        }
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=item.partition, start_offset=wanted[item]
                    )
                    for item in part
                ],
            )
            for topic, part in by_topic(wanted)
        ]
        calls, deadline = self._begin(timeout_ms)
        _, response = await calls.ask_coordinator(
            group_id,
            AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics),
            deadline,
            _code_of_group,
        )
        _raise_for(response)
        return finish(
            collect(
                (
                    TopicPartition(topic.topic_name, reported.partition_index),
                    reported.error_code,
                    reported.error_message,
                    None,
                )
                for topic in response.responses
                for reported in topic.partitions
            ),
            raise_errors,
        )

    async def delete_offsets(
        self,
        group_id: str,
        topics: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Forget what a group that has no members has read of topics.

        Raises:
            GroupNotEmptyError, GroupIdNotFoundError, ...: of the group; or for a topic, if
                `raise_errors`.
        """
        text("group_id", group_id)
        wanted = [
            DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
            for topic in checked_topics("topics", topics)
        ]
        calls, deadline = self._begin(timeout_ms)
        _, response = await calls.ask_coordinator(
            group_id,
            DeleteShareGroupOffsetsRequest(group_id=group_id, topics=wanted),
            deadline,
            _code_of_group,
        )
        _raise_for(response)
        return finish(
            collect(
                (reported.topic_name, reported.error_code, reported.error_message, None)
                for reported in response.responses
            ),
            raise_errors,
        )


def _code_of_group(response: Any) -> list[ErrorCode]:
    return [response.error_code]


def _raise_for(reported: Any) -> None:
    if reported.error_code != ErrorCode.NONE:
        raise error_for(reported.error_code, reported.error_message)


def _offset(reported: Any) -> SharePartitionOffset | None:
    if reported.start_offset < 0:
        return None
    return SharePartitionOffset(
        reported.start_offset,
        reported.leader_epoch if reported.leader_epoch >= 0 else None,
        reported.lag if reported.lag >= 0 else None,
    )


def _description(reported: ShareGroupDescribeDescribedGroup, node_id: int) -> ShareGroupDescription:
    members = tuple(
        ShareMemberDescription(
            member.member_id,
            member.member_epoch,
            member.client_id,
            member.client_host,
            frozenset(member.subscribed_topic_names),
            frozenset(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ),
            member.rack_id,
        )
        for member in reported.members
    )
    return ShareGroupDescription(
        reported.group_id,
        reported.group_state,
        reported.assignor_name,
        node_id,
        members,
        reported.group_epoch,
        reported.assignment_epoch,
    )
