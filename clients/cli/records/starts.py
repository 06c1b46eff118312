"""Where `consume` begins and ends in each partition, according to its options.

Called by: the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import OffsetSpec
from kraftrio.wire.primitives import TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: one of these, or at the beginning.

    Attributes:
        offset: of each partition; a negative one counts from the end.
        at_ms: with the first record at or after this time, in milliseconds since 1970.
        at_end: with new records only.
    """

    offset: int | None = None
    at_ms: int | None = None
    at_end: bool = False


async def begin_and_end(
    admin: Admin,
    items: Sequence[TopicPartition],
    start: Start,
    until_ms: int | None,
    *,
    read_committed: bool,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the first offset to be read of each partition, and the offset to end at.

    Args:
        until_ms: end at the first record at or after this time; None: at the present end.
    """
    earliest = await admin.list_offsets(dict.fromkeys(items, OffsetSpec.EARLIEST))
    latest = await admin.list_offsets(
        dict.fromkeys(items, OffsetSpec.LATEST), read_committed=read_committed
    )
    firsts = {item: earliest[item].offset for item in items}
    ends = {item: latest[item].offset for item in items}
    if start.at_end:
        begins = dict(ends)
    elif start.at_ms is not None:
        begins = await _offsets_at(admin, items, start.at_ms, ends)
    elif start.offset is not None and start.offset < 0:
        begins = {item: ends[item] + start.offset for item in items}
    elif start.offset is not None:
        begins = dict.fromkeys(items, start.offset)
    else:
        begins = dict(firsts)
    begins = {item: max(begins[item], firsts[item]) for item in items}
    if until_ms is not None:
        untils = await _offsets_at(admin, items, until_ms, ends)
        ends = {item: min(untils[item], ends[item]) for item in items}
    return begins, ends


async def _offsets_at(
    admin: Admin, items: Sequence[TopicPartition], at_ms: int, ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found = await admin.list_offsets(dict.fromkeys(items, at_ms))
    return {item: found[item].offset if found[item].offset >= 0 else ends[item] for item in items}
