"""Moves that operators make, and that a program must bear: of leaders, coordinators, partitions.

Each is done with an admin client, or by a member that joins and leaves, so that what happens is
what happens in production.

Called by: `on_demand`, and `cluster` for nodes with real sockets.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftrio.broker.coordinator.partitioning import partition_for
from kraftrio.clients.admin.types import ElectionType, GroupDescription, OffsetSpec
from kraftrio.clients.arguments.values import whole_number
from kraftrio.clients.errors import UnknownMemberIdError
from kraftrio.testing.contents import Contents
from kraftrio.wire.primitives import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
_LOOK_EVERY_S = 0.02
_MOVE_DEADLINE_S = 30.0
_GUEST_STAYS_S = 60.0  # at the most: members that work for long are waited for


async def move_leader(contents: Contents, partition: TopicPartition, to: int | None) -> int:
    """Let another in-sync replica lead a partition, and wait until it does.

    Args:
        to: the id of its node; None: any.

    Returns:
        the id of the node that leads.

    Raises:
        ValueError: no such replica is in sync; the text says which are.
    """
    found = await contents.partition(partition)
    name = f"{partition.topic}-{partition.partition}"
    others = sorted(set(found.isr) - {found.leader_id})
    if to is None:
        if not others:
            raise ValueError(
                f"nobody else can lead {name}: only node {found.leader_id} is in sync;"
                " wait with `healthy()`, or make the topic with more replicas"
            )
        to = others[0]
    elif to == found.leader_id:
        return to
    elif to not in others:
        raise ValueError(
            f"node {to} cannot lead {name}: its replicas in sync are"
            f" {', '.join(map(str, sorted(found.isr)))}"
        )
    order = [to, *(replica for replica in found.replicas if replica != to)]
    await contents.admin.alter_partition_reassignments({partition: order})
    with trio.fail_after(_MOVE_DEADLINE_S):
        while (await contents.partition(partition)).leader_id != to:
            await contents.admin.elect_leaders(
                ElectionType.PREFERRED, [partition], raise_errors=False
            )
            await trio.sleep(_LOOK_EVERY_S)
    return to


async def coordinator_of(
    contents: Contents, *, group: str | None, transactional_id: str | None
) -> TopicPartition:
    """The partition whose leader coordinates a group or a transactional id.

    Raises:
        ValueError: not one of the two is named, or it has no coordinator yet.
    """
    if (group is None) == (transactional_id is None):
        raise ValueError('name one of the two: group="billing", or transactional_id="t"')
    topic = OFFSETS_TOPIC if transactional_id is None else TRANSACTIONS_TOPIC
    partitions = await _partition_count(contents, topic)
    if not partitions:
        what = f"group {group!r}" if transactional_id is None else f"{transactional_id!r}"
        raise ValueError(f"{what} has no coordinator yet: let the program use it first")
    return TopicPartition(topic, partition_for(group or transactional_id or "", partitions))


async def _partition_count(contents: Contents, topic: str) -> int:
    found = (await contents.topics(internal=True)).get(topic)
    return 0 if found is None else len(found.partitions)


async def move_all_from(contents: Contents, node_id: int, *, coordinators: bool) -> int:
    """Let others lead all partitions that a node leads, as far as others are in sync.

    Args:
        coordinators: those of internal topics; False: those of the program's.

    Returns:
        how many have moved.
    """
    moved = 0
    for name, topic in (await contents.topics(internal=True)).items():
        if (name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)) is not coordinators:
            continue
        for number, partition in topic.partitions.items():
            if partition.leader_id == node_id and len(partition.isr) > 1:
                await move_leader(contents, TopicPartition(name, number), None)
                moved += 1
    return moved


# -- groups ---------------------------------------------------------------------------------------


async def _members_of(contents: Contents, group_id: str) -> GroupDescription:
    """A group with members.

    Raises:
        ValueError: it has none.
    """
    found = await contents.group(group_id)
    if found is None or not found.members:
        raise ValueError(
            f"group {group_id!r} has no members: wait with `group({group_id!r}).stable()`"
        )
    return found


async def rebalance(contents: Contents, group_id: str) -> None:
    """Let a member join a group and leave it again, without reading anything.

    Raises:
        ValueError: the group has no members with partitions.
    """
    group = await _members_of(contents, group_id)
    topics = sorted({each.topic for member in group.members for each in member.assignment})
    if not topics:
        raise ValueError(
            f"no member of group {group_id!r} has a partition yet: wait with"
            f" `await group({group_id!r}).stable()`"
        )
    is_classic = group.type.lower() == "classic"
    async with contents.guest(group_id, topics, group.partition_assignor if is_classic else None):
        with trio.move_on_after(_GUEST_STAYS_S):
            while not await _has_settled(contents, group_id, len(group.members) + 1):  # noqa: ASYNC110
                await trio.sleep(_LOOK_EVERY_S)


async def _has_settled(contents: Contents, group_id: str, members: int) -> bool:
    group = await contents.group(group_id)
    return group is not None and group.state == "Stable" and len(group.members) >= members


async def deliver_again(contents: Contents, group_id: str, record_count: int) -> None:
    """Remove a group's members, and reset its committed offsets: records come once more.

    Args:
        record_count: how many of each partition, if so many are there.

    Raises:
        ValueError: the group has no members, or has committed nothing.
    """
    await _members_of(contents, group_id)
    committed = await contents.committed(group_id)
    if not committed:
        raise ValueError(
            f"group {group_id!r} has committed nothing, so that all comes again by itself"
        )
    starts = await contents.offsets(committed, OffsetSpec.EARLIEST)
    earlier = {
        each: max(offset - record_count, min(starts[each], offset))
        for each, offset in committed.items()
    }
    with trio.fail_after(_MOVE_DEADLINE_S):
        while True:
            await contents.admin.remove_members(group_id, raise_errors=False)
            try:
                await contents.admin.alter_group_offsets(group_id, earlier)
            except UnknownMemberIdError:  # one of them was faster
                await trio.sleep(_LOOK_EVERY_S)
            else:
                return


# -- for tests ------------------------------------------------------------------------------------


class Moves:
    """The moves of a cluster, noted in its story.

    Args:
        note: writes a line of the story.
    """

    def __init__(self, contents: Contents, note: Callable[[str], None]) -> None:
        self._contents = contents
        self._note = note

    async def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        """See `move_leader`."""
        self._note(f"{topic}-{partition} gets another leader")
        return await move_leader(self._contents, TopicPartition(topic, partition), to)

    async def move_coordinator(
        self, group: str | None, transactional_id: str | None, to: int | None
    ) -> int:
        """See `coordinator_of` and `move_leader`."""
        place = await coordinator_of(self._contents, group=group, transactional_id=transactional_id)
        self._note(f"{group or transactional_id} gets another coordinator")
        return await move_leader(self._contents, place, to)

    async def move_all_from(self, node_id: int, *, coordinators: bool) -> int:
        """See `move_all_from`."""
        return await move_all_from(self._contents, node_id, coordinators=coordinators)

    async def rebalance(self, group: str) -> None:
        """See `rebalance`."""
        self._note(f"a member joins {group}, and leaves it again")
        await rebalance(self._contents, group)

    async def deliver_again(self, group: str, records: int) -> None:
        """See `deliver_again`."""
        whole_number("records", records, 1)
        self._note(f"{records} records of each partition come to {group} again")
        await deliver_again(self._contents, group, records)

    async def groups_with_partitions(self) -> list[str]:
        """The groups that can be rebalanced."""
        groups = await self._contents.groups()
        return sorted(
            group_id
            for group_id, group in groups.items()
            if any(member.assignment for member in group.members)
        )
