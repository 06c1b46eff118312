"""The offsets of partitions that a reset is computed from.

Called by: `kraftrio group reset`, and the console.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import OffsetSpec
from kraftrio.clients.cli.groups.reset import KnownOffsets
from kraftrio.wire.primitives import TopicPartition


async def known_offsets(
    admin: Admin,
    items: Sequence[TopicPartition],
    current: Mapping[TopicPartition, int | None],
    at_ms: int | None,
) -> dict[TopicPartition, KnownOffsets]:
    """Return the offsets of partitions.

    Args:
        current: the offsets that the group has committed.
        at_ms: a moment whose offsets are wanted, too, in milliseconds since 1970.
    """
    if not items:
        return {}
    earliest = await admin.list_offsets(dict.fromkeys(items, OffsetSpec.EARLIEST))
    latest = await admin.list_offsets(dict.fromkeys(items, OffsetSpec.LATEST))
    at: Mapping[TopicPartition, int | None] = {}
    if at_ms is not None:
        found = await admin.list_offsets(dict.fromkeys(items, at_ms))
        at = {item: found[item].offset if found[item].offset >= 0 else None for item in items}
    return {
        item: KnownOffsets(
            earliest[item].offset, latest[item].offset, current.get(item), at.get(item)
        )
        for item in items
    }
