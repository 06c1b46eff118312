"""Requests about kinds of groups that are not served: streams groups (KIP-1071).

Behaviour (Apache Kafka's)
- Descriptions are answered as for a group of another kind: GROUP_ID_NOT_FOUND, which makes tools
  fall back to DescribeGroups; INVALID_GROUP_ID for an empty name.
- Heartbeats are not served at all.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeDescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from kraftrio.wire.protocol.api import ApiKey


class AbsentGroupHandlers:
    """Handlers of APIs about groups that cannot exist here."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.STREAMS_GROUP_DESCRIBE: self.streams_group_describe,
        }

    def streams_group_describe(
        self, request: StreamsGroupDescribeRequest, _context: RequestContext
    ) -> StreamsGroupDescribeResponse:
        """Report that no group is of this kind."""

        def describe(group_id: str) -> StreamsGroupDescribeDescribedGroup:
            return self._refuse(StreamsGroupDescribeDescribedGroup(), group_id, "streams")

        return StreamsGroupDescribeResponse(groups=each(describe, request.group_ids))

    def _refuse(
        self, group: StreamsGroupDescribeDescribedGroup, group_id: str, kind: str
    ) -> StreamsGroupDescribeDescribedGroup:
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
