"""The admin client's part for log directories: how large replicas are, how much room is left.

Called by: `admin`. KIP-113, KIP-827.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.clients.admin.calls import AdminCalls, Deadline, for_each
from kraftrio.clients.admin.types import LogDirDescription, ReplicaInfo, Results
from kraftrio.clients.arguments.several import broker_ids
from kraftrio.clients.errors import error_for
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kraftrio.wire.primitives import TopicPartition


async def describe_log_dirs(
    calls: AdminCalls, deadline: Deadline, brokers: int | Iterable[int]
) -> Results[int, dict[str, LogDirDescription]]:
    """Return the log directories of brokers, by path; a broker that does not answer is an error."""
    request = DescribeLogDirsRequest(topics=None)

    async def ask(broker_id: int) -> dict[str, LogDirDescription]:
        response: DescribeLogDirsResponse = await calls.ask_node(broker_id, request, deadline)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code)
        return {each.log_dir: _directory(each) for each in response.results}

    return await for_each(broker_ids(brokers), ask)


def _directory(reported: DescribeLogDirsResult) -> LogDirDescription:
    is_fine = reported.error_code == ErrorCode.NONE
    return LogDirDescription(
        None if is_fine else error_for(reported.error_code),
        {
            TopicPartition(topic.name, each.partition_index): ReplicaInfo(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in reported.topics
            for each in topic.partitions
        },
        reported.total_bytes if reported.total_bytes >= 0 else None,
        reported.usable_bytes if reported.usable_bytes >= 0 else None,
    )
