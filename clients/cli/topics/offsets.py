"""Offsets of a topic: where its partitions begin and end, and the offset for a moment.

Called by: the commands of topics.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import OffsetSpec
from kraftrio.clients.cli.output import Row
from kraftrio.clients.cli.times import moment_text, parse_moment_ms
from kraftrio.wire.primitives import TopicPartition


def moment_option(name: str, text: str, now_ms: int) -> int:
    """Return the moment that an option gives, in milliseconds since 1970.

    Raises:
        click.UsageError: it is not a moment.
    """
    try:
        return parse_moment_ms(text, now_ms)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


async def offsets_before(
    admin: Admin, items: Sequence[TopicPartition], before: str, now_ms: int
) -> dict[TopicPartition, int]:
    """Return for each partition the offset that OFFSET, MOMENT or "end" stands for.

    Raises:
        click.UsageError: `before` is something else.
    """
    ends = await admin.list_offsets(dict.fromkeys(items, OffsetSpec.LATEST))
    if before.lower() == "end":
        return {item: ends[item].offset for item in items}
    if before.isascii() and before.isdigit() and len(before) < 12:
        return dict.fromkeys(items, int(before))
    at_ms = moment_option("--before", before, now_ms)
    found = await admin.list_offsets(dict.fromkeys(items, at_ms))
    return {
        item: found[item].offset if found[item].offset >= 0 else ends[item].offset for item in items
    }


async def topic_offsets(
    admin: Admin,
    items: Sequence[TopicPartition],
    at: str | None,
    now_ms: int,
    *,
    read_committed: bool,
) -> list[Row]:
    """Return a row for each partition.

    Args:
        at: a moment whose offset is wanted, too.

    Raises:
        click.UsageError: it is not a moment.
    """
    at_ms = None if at is None else moment_option("--at", at, now_ms)
    earliest = await admin.list_offsets(dict.fromkeys(items, OffsetSpec.EARLIEST))
    latest = await admin.list_offsets(
        dict.fromkeys(items, OffsetSpec.LATEST), read_committed=read_committed
    )
    rows: list[Row] = []
    found = None
    if at_ms is not None:
        found = await admin.list_offsets(dict.fromkeys(items, at_ms))
    for item in items:
        first, last = earliest[item].offset, latest[item].offset
        row = {
            "topic": item.topic,
            "partition": item.partition,
            "earliest": first,
            "latest": last,
            "records": last - first,
        }
        if found is not None:
            is_there = found[item].offset >= 0
            row["offset"] = found[item].offset if is_there else None
            row["timestamp"] = moment_text(found[item].timestamp) if is_there else None
        rows.append(row)
    return rows
