"""The assignor `range`: of each topic one run of neighbouring partitions for each subscriber.

Topics with equally many partitions are shared out alike, so that what is joined
finds its partitions at one member. Static members come first, in the order of their instance ids:
one that comes back after a restart gets what it had. What members have now does not count.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.broker.coordinator.groups.assignors.spec import (
    Assignment,
    AssignmentSpec,
    AssignorError,
    text_order,
)


class RangeAssignor:
    """See the module."""

    name = "range"

    def assign(self, spec: AssignmentSpec) -> Assignment:
        """Return the new target assignment; AssignorError as `Assignor.assign`."""
        assignment: dict[str, dict[bytes, frozenset[int]]] = {
            member_id: {} for member_id in spec.members
        }
        for topic_id, subscribers in _subscribers(spec).items():
            topic = spec.topics.get(topic_id)
            if topic is None:
                raise AssignorError("Member is subscribed to a non-existent topic")
            quota, extra = divmod(topic.partition_count, len(subscribers))
            start = 0
            for index, member_id in enumerate(subscribers):
                end = start + quota + (index < extra)
                if end == start:
                    break
                assignment[member_id][topic_id] = frozenset(range(start, end))
                start = end
        return assignment


def _subscribers(spec: AssignmentSpec) -> dict[bytes, list[str]]:
    """Each topic's members, the first of whom gets its first partitions."""
    member_ids = _ordered(spec)
    if spec.is_homogeneous:
        topic_ids: Iterable[bytes] = (
            spec.members[member_ids[0]].subscribed_topic_ids if member_ids else ()
        )
        return dict.fromkeys(topic_ids, member_ids)
    subscribers: dict[bytes, list[str]] = {}
    for member_id in member_ids:
        for topic_id in spec.members[member_id].subscribed_topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


def _ordered(spec: AssignmentSpec) -> list[str]:
    """Static members by instance id, then the others by member id."""

    def order(member_id: str) -> tuple[bool, bytes, bytes]:
        instance_id = spec.members[member_id].instance_id
        own = text_order(member_id)
        return (instance_id is None, own if instance_id is None else text_order(instance_id), own)

    return sorted(spec.members, key=order)
