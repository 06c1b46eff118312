"""A group as a table: its committed offsets, its lag, and which member reads what.

Owns `GroupView` and `view_group`, for groups of every kind. A partition that is assigned but has
nothing committed is there, too, and so is a member that reads nothing.

Called by: the commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import GroupListing, OffsetSpec
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.output import Row
from kraftrio.wire.primitives import TopicPartition

SHARE = "share"
STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member, and the partitions that it reads."""

    member_id: str
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    instance_id: str | None = None

    @property
    def row(self) -> Row:
        """The columns of the member."""
        return {
            "member_id": self.member_id,
            "client_id": self.client_id,
            "host": self.host,
            "instance_id": self.instance_id,
        }


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment.

    Attributes:
        offsets: the committed ones; None: nothing is committed.
        ends: the log end offsets, without partitions that do not exist any more.
    """

    group_id: str
    kind: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[DescribedMember, ...]
    offsets: Mapping[TopicPartition, int | None]
    ends: Mapping[TopicPartition, int]

    @property
    def summary(self) -> Row:
        """The group as a whole."""
        return {
            "group": self.group_id,
            "type": self.kind,
            "state": self.state,
            "assignor": self.assignor or None,
            "coordinator": self.coordinator,
            "members": len(self.members),
            "lag": sum(row["lag"] or 0 for row in self.rows if row["topic"] is not None),
        }

    @property
    def rows(self) -> list[Row]:
        """A row for each partition, and for each member that reads none."""
        readers = {item: member for member in self.members for item in member.assignment}
        no_member: Row = dict.fromkeys(("member_id", "client_id", "host", "instance_id"))
        rows: list[Row] = []
        for item in sorted(readers.keys() | self.offsets.keys()):
            offset, end = self.offsets.get(item), self.ends.get(item)
            rows.append(
                {
                    "group": self.group_id,
                    "state": self.state,
                    "topic": item.topic,
                    "partition": item.partition,
                    "current_offset": offset,
                    "log_end_offset": end,
                    "lag": None if offset is None or end is None else max(end - offset, 0),
                    **(readers[item].row if item in readers else no_member),
                }
            )
        nothing = dict.fromkeys(("topic", "partition", "current_offset", "log_end_offset", "lag"))
        rows += [
            {"group": self.group_id, "state": self.state, **nothing, **member.row}
            for member in self.members
            if not member.assignment
        ]
        return rows


async def find_groups(admin: Admin, group_ids: Iterable[str]) -> dict[str, GroupListing]:
    """Return groups by their ids.

    Raises:
        CommandError: there is no such group; it suggests the nearest name.
    """
    known = {group.group_id: group for group in await admin.list_groups()}
    found = {}
    for group_id in dict.fromkeys(group_ids):
        if group_id not in known:
            hint = did_you_mean(group_id, known) or "; kraftrio group list shows them"
            raise CommandError(f"there is no group {group_id!r}{hint}")
        found[group_id] = known[group_id]
    return found


async def view_group(admin: Admin, listing: GroupListing) -> GroupView:
    """Return a group as it is now."""
    group_id, kind = listing.group_id, listing.type.lower()
    members: list[DescribedMember] = []
    assignor, coordinator, state = "", -1, listing.state
    if kind == SHARE:
        share = (await admin.share_groups.describe([group_id]))[group_id]
        state, assignor, coordinator = share.state, share.assignor, share.coordinator
        members = [
            DescribedMember(each.member_id, each.client_id, each.host, each.assignment)
            for each in share.members
        ]
    elif kind == STREAMS:
        streams = (await admin.streams_groups.describe([group_id]))[group_id]
        state, coordinator = streams.state, streams.coordinator
        members = [
            DescribedMember(
                each.member_id, each.client_id, each.host, frozenset(), each.group_instance_id
            )
            for each in streams.members
        ]
    else:
        found = (await admin.describe_groups([group_id]))[group_id]
        state, assignor, coordinator = found.state, found.partition_assignor, found.coordinator
        members = [
            DescribedMember(
                each.member_id, each.client_id, each.host, each.assignment, each.group_instance_id
            )
            for each in found.members
        ]
    offsets = await committed_offsets(admin, group_id, kind)
    items = {*offsets, *(item for member in members for item in member.assignment)}
    ends = await _ends(admin, items)
    return GroupView(group_id, kind, state, assignor, coordinator, tuple(members), offsets, ends)


async def committed_offsets(
    admin: Admin, group_id: str, kind: str
) -> dict[TopicPartition, int | None]:
    """Return the committed offset of each partition that a group has read; None: there is none."""
    if kind == SHARE:
        share = await admin.share_groups.list_offsets(group_id)
        return {
            item: None if found is None else found.start_offset for item, found in share.items()
        }
    committed = await admin.list_group_offsets(group_id)
    return {item: None if found is None else found.offset for item, found in committed.items()}


async def _ends(admin: Admin, items: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(items, OffsetSpec.LATEST)
    if not wanted:
        return {}
    found = await admin.list_offsets(wanted, raise_errors=False)
    return {item: found[item].offset for item in wanted if item not in found.errors}
