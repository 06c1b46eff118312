"""How far a consumer group is behind: what it has committed beside the ends of its partitions.

Called by: `admin`.
"""

from __future__ import annotations

from kraftrio.clients.admin.calls import AdminCalls, Deadline
from kraftrio.clients.admin.groups import describe_groups, list_group_offsets
from kraftrio.clients.admin.topics import list_offsets
from kraftrio.clients.admin.types import OffsetSpec, PartitionLag
from kraftrio.clients.arguments.values import text
from kraftrio.wire.primitives import TopicPartition


async def consumer_group_lag(
    calls: AdminCalls, deadline: Deadline, group_id: str
) -> dict[TopicPartition, PartitionLag]:
    """Return the lag of each partition that a group has committed of, or reads.

    A partition that is not there any more is left out.
    """
    group_id = text("group_id", group_id)
    described = (await describe_groups(calls, deadline, group_id))[group_id]
    committed = await list_group_offsets(calls, deadline, group_id)
    read = {item for member in described.members for item in member.assignment}
    items = sorted({*committed, *read})
    ends = await list_offsets(calls, deadline, dict.fromkeys(items, OffsetSpec.LATEST))
    found = {}
    for item in items:
        if item in ends.errors:
            continue
        end_offset = ends[item].offset
        offset = None if (at := committed.get(item)) is None else at.offset
        lag = None if offset is None else max(end_offset - offset, 0)
        found[item] = PartitionLag(offset, end_offset, lag)
    return found
