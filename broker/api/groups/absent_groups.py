"""Requests about kinds of groups that are not served: share groups (KIP-932), streams groups
(KIP-1071).

Behaviour (Apache Kafka's)
- Descriptions are answered as for a group of another kind: GROUP_ID_NOT_FOUND, which makes tools
  fall back to DescribeGroups; INVALID_GROUP_ID for an empty name. A share group that does not exist
  has no offsets, which is no error.
- Heartbeats are not served at all.
"""

from __future__ import annotations

from typing import TypeVar

from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    ShareGroupDescribeDescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeDescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from kraftrio.wire.protocol.api import ApiKey

G = TypeVar(
    "G",
    ShareGroupDescribeDescribedGroup,
    StreamsGroupDescribeDescribedGroup,
)


class AbsentGroupHandlers:
    """Handlers of APIs about groups that cannot exist here."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.SHARE_GROUP_DESCRIBE: self.share_group_describe,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self.describe_share_group_offsets,
            ApiKey.STREAMS_GROUP_DESCRIBE: self.streams_group_describe,
        }

    def share_group_describe(
        self, request: ShareGroupDescribeRequest, _context: RequestContext
    ) -> ShareGroupDescribeResponse:
        """Report that no group is of this kind."""

        def describe(group_id: str) -> ShareGroupDescribeDescribedGroup:
            return self._refuse(ShareGroupDescribeDescribedGroup(), group_id, "share")

        return ShareGroupDescribeResponse(groups=each(describe, request.group_ids))

    def streams_group_describe(
        self, request: StreamsGroupDescribeRequest, _context: RequestContext
    ) -> StreamsGroupDescribeResponse:
        """Report that no group is of this kind."""

        def describe(group_id: str) -> StreamsGroupDescribeDescribedGroup:
            return self._refuse(StreamsGroupDescribeDescribedGroup(), group_id, "streams")

        return StreamsGroupDescribeResponse(groups=each(describe, request.group_ids))

    def _refuse(self, group: G, group_id: str, kind: str) -> G:
        group.group_id = group_id
        if not group_id:
            group.error_code = ErrorCode.INVALID_GROUP_ID
            return group
        try:
            group.error_message = self._coordinator.read(
                group_id, lambda shard, _now: shard.refusal(kind, group_id)
            )
            group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        except KafkaError as error:
            group.error_code = error.code
        return group

    def describe_share_group_offsets(
        self, request: DescribeShareGroupOffsetsRequest, _context: RequestContext
    ) -> DescribeShareGroupOffsetsResponse:
        """Report that there are no offsets."""
        return DescribeShareGroupOffsetsResponse(groups=each(_no_offsets, request.groups))


def _no_offsets(
    asked: DescribeShareGroupOffsetsRequestGroup,
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=each(_no_offsets_of_topic, asked.topics or [])
    )


def _no_offsets_of_topic(
    topic: DescribeShareGroupOffsetsRequestTopic,
) -> DescribeShareGroupOffsetsResponseTopic:
    def no_offset(index: int) -> DescribeShareGroupOffsetsResponsePartition:
        return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=-1)

    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, partitions=each(no_offset, topic.partitions)
    )
