"""The assignor `simple` of share groups (KIP-932): each partition for as many members as needed.

Rules, in this order: each partition has the same number of members, the least with which every
member has one; members have as many partitions as each other, but for one; and each keeps what it
has. Members that subscribe to the same topics are spread over all of their partitions together;
else each topic is spread by itself. Only partitions that are `assignable` are given.

A topic that no member subscribes to any more is taken from all; Kafka leaves it, where members
subscribe to different topics, to those who have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

from kraftrio.broker.coordinator.groups.assignors.spec import (
    Assignment,
    AssignmentSpec,
    MemberAssignment,
    topic_id_order,
)

_Place: TypeAlias = int
"""A partition: its topic's number among those that are spread together, and its index, in one."""

_TOPIC_BITS = 32
_INDEX_MASK = (1 << _TOPIC_BITS) - 1


class SimpleAssignor:
    """See the module."""

    name = "simple"

    def assign(self, spec: AssignmentSpec) -> Assignment:
        """Return the new target assignment; AssignorError as `Assignor.assign`."""
        member_ids = spec.members_in_order()
        subscribed = [spec.members[member_id].subscribed_topic_ids for member_id in member_ids]
        if not any(subscribed):
            return {}
        result: list[dict[bytes, set[int]]] = [{} for _ in member_ids]
        holders = _holders(spec, member_ids)
        if spec.is_homogeneous:
            topic_ids = sorted(subscribed[0], key=topic_id_order)
            _spread_topics(spec, topic_ids, list(range(len(member_ids))), holders, result)
        else:
            for topic_id, members in _subscribers(subscribed).items():
                _spread_topics(spec, [topic_id], members, holders, result)
        return {
            member_id: _as_before(spec.members[member_id].assigned, partitions)
            for member_id, partitions in zip(member_ids, result, strict=True)
        }


def _subscribers(subscribed: list[frozenset[bytes]]) -> dict[bytes, list[int]]:
    """Each topic's members, in order."""
    subscribers: dict[bytes, list[int]] = {}
    for member, topic_ids in enumerate(subscribed):
        for topic_id in topic_ids:
            subscribers.setdefault(topic_id, []).append(member)
    return subscribers


def _as_before(before: MemberAssignment, now: dict[bytes, set[int]]) -> MemberAssignment:
    if now == before:
        return before
    return {topic_id: frozenset(partitions) for topic_id, partitions in now.items()}


def _holders(
    spec: AssignmentSpec, member_ids: list[str]
) -> dict[bytes, list[tuple[int, frozenset[int]]]]:
    """Who has which partitions of each topic now."""
    holders: dict[bytes, list[tuple[int, frozenset[int]]]] = {}
    for member, member_id in enumerate(member_ids):
        for topic_id, partitions in spec.members[member_id].assigned.items():
            holders.setdefault(topic_id, []).append((member, partitions))
    return holders


def _spread_topics(
    spec: AssignmentSpec,
    topic_ids: list[bytes],
    members: list[int],
    holders: dict[bytes, list[tuple[int, frozenset[int]]]],
    result: list[dict[bytes, set[int]]],
) -> None:
    """Spread some topics' partitions together, and put them into what each member is to have."""
    held: dict[int, set[_Place]] = {member: set() for member in members}
    targets: list[_Place] = []
    for number, topic_id in enumerate(topic_ids):
        first = number << _TOPIC_BITS
        targets += [first + partition for partition in _assignable(spec, topic_id)]
        for member, partitions in holders.get(topic_id, ()):
            held.setdefault(member, set()).update(first + partition for partition in partitions)
    _spread(targets, members, held)
    for member, places in held.items():
        partitions_of = result[member]
        for place in places:
            topic_id = topic_ids[place >> _TOPIC_BITS]
            partitions_of.setdefault(topic_id, set()).add(place & _INDEX_MASK)


def _assignable(spec: AssignmentSpec, topic_id: bytes) -> Iterable[int]:
    existing = range(spec.partition_count(topic_id))
    if spec.assignable is None:
        return existing
    allowed = spec.assignable.get(topic_id, frozenset())
    return (partition for partition in existing if partition in allowed)


def _spread(targets: list[_Place], members: list[int], held: dict[int, set[_Place]]) -> None:
    """Spread partitions over members.

    Args:
        targets: the partitions, in order.
        members: those that subscribe, in order.
        held: what everybody has now; changed to what everybody is to have.
    """
    sharing = -(-len(members) // len(targets)) if targets else 0  # members for each partition
    shares = _shares(sharing * len(targets), members)
    for member, places in held.items():
        surplus = len(places) - shares.get(member, 0)
        if surplus > 0:
            places.difference_update(sorted(places)[:surplus])
    holders: dict[_Place, list[int]] = {place: [] for place in targets}
    for member, places in sorted(held.items()):
        for place in places:
            holders.setdefault(place, []).append(member)
    for place, members_of_it in holders.items():
        surplus = max(0, len(members_of_it) - sharing)
        for member in members_of_it[:surplus]:
            held[member].discard(place)
        del members_of_it[:surplus]
    _fill(sharing, shares, {place: holders[place] for place in targets}, held)


def _shares(total: int, members: list[int]) -> dict[int, int]:
    """How many partitions each member is to have: the larger shares are spread evenly, too."""
    exact = total / len(members)
    bounds = [math.ceil(exact * place) for place in range(len(members) + 1)]
    return {member: bounds[place + 1] - bounds[place] for place, member in enumerate(members)}


def _fill(
    sharing: int,
    shares: dict[int, int],
    holders: dict[_Place, list[int]],
    held: dict[int, set[_Place]],
) -> None:
    """Give what has too few members to those who have too little, who take turns.

    As in Kafka a partition may be given twice to the same member, which then counts once; a turn
    of all of them in which nobody could take a partition is the last one.
    """
    wanting = [member for member, share in shares.items() if len(held[member]) < share]
    turn, is_progress = 0, False
    for place, holding in holders.items():
        missing, members_of_it = sharing - len(holding), frozenset(holding)
        while missing > 0:
            if turn == len(wanting):
                if not wanting or not is_progress:
                    return
                turn, is_progress = 0, False
            member = wanting[turn]
            turn += 1
            if member in members_of_it:
                continue
            held[member].add(place)
            missing -= 1
            is_progress = True
            if len(held[member]) >= shares[member]:
                turn -= 1
                del wanting[turn]
