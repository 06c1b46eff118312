"""The assignor `uniform`, the default of consumer groups: as many partitions for each member.

Rules, in this order: members have as many partitions as each other, but for one; and each keeps
what it has. How that is reached depends on whether all subscribe to the same topics, which is the
rule, and is done here in one pass; else see `mixed_subscriptions`. Racks do not count, as in
Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftrio.broker.coordinator.groups.assignors.mixed_subscriptions import MixedSubscriptions
from kraftrio.broker.coordinator.groups.assignors.spec import (
    Assignment,
    AssignmentSpec,
    AssignorError,
    MemberAssignment,
    topic_id_order,
)


class UniformAssignor:
    """See the module."""

    name = "uniform"

    def assign(self, spec: AssignmentSpec) -> Assignment:
        """Return the new target assignment; AssignorError as `Assignor.assign`."""
        if not spec.members:
            return {}
        if spec.is_homogeneous:
            return _SameSubscriptions(spec).assign()
        return MixedSubscriptions(spec).assign()


class _SameSubscriptions:
    """A group whose members all subscribe to the same topics."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self._spec = spec
        self._member_ids = spec.members_in_order()
        self._topic_ids = spec.members[self._member_ids[0]].subscribed_topic_ids
        self._kept: dict[str, MemberAssignment] = {}
        self._free: list[tuple[bytes, int]] = []  # partitions that nobody has, in order
        self._wanting: list[tuple[str, int]] = []  # members, and how many each is to get

    def assign(self) -> Assignment:
        """Take from those who have too many, then give to the others."""
        if not self._topic_ids:
            return {}
        topic_ids = sorted(self._topic_ids, key=topic_id_order)
        partition_count = sum(map(self._spec.partition_count, topic_ids))
        self._free.extend(self._unassigned(topic_ids))
        self._take(*divmod(partition_count, len(self._member_ids)))
        self._give()
        return self._kept

    def _unassigned(self, topic_ids: list[bytes]) -> Iterator[tuple[bytes, int]]:
        taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in topic_ids}
        for member in self._spec.members.values():
            for topic_id, partitions in member.assigned.items():
                if topic_id in taken:
                    taken[topic_id] |= partitions
        for topic_id in topic_ids:
            for partition in range(self._spec.partition_count(topic_id)):
                if partition not in taken[topic_id]:
                    yield topic_id, partition

    def _take(self, least: int, larger_shares: int) -> None:
        """Leave each member its share at most.

        Args:
            least: the share of each member.
            larger_shares: how many members have one partition more.

        The larger shares are for the first ones that have so many already, but for what is needed
        to give away all of them.
        """
        for index, member_id in enumerate(self._member_ids):
            is_larger = larger_shares > 0
            share = least + is_larger
            kept, missing = self._keep(member_id, share)
            members_left = len(self._member_ids) - index
            if missing and is_larger and members_left > larger_shares:
                missing -= 1
                is_larger = False
            if missing:
                self._wanting.append((member_id, missing))
            larger_shares -= is_larger
            self._kept[member_id] = kept

    def _keep(self, member_id: str, share: int) -> tuple[MemberAssignment, int]:
        """What the member keeps, and how much is missing for its share."""
        assigned = self._spec.members[member_id].assigned
        kept: dict[bytes, frozenset[int]] = {}
        for topic_id in sorted(assigned, key=topic_id_order):
            partitions = assigned[topic_id]
            if topic_id not in self._topic_ids:
                continue
            if len(partitions) > share:
                in_order = sorted(partitions)
                self._free.extend((topic_id, partition) for partition in in_order[share:])
                partitions = frozenset(in_order[:share])
            share -= len(partitions)
            if partitions:
                kept[topic_id] = partitions
        return (assigned if kept == assigned else kept), share

    def _give(self) -> None:
        start = 0
        for member_id, count in self._wanting:
            more: dict[bytes, set[int]] = {}
            for topic_id, partition in self._free[start : start + count]:
                more.setdefault(topic_id, set()).add(partition)
            start += count
            kept = self._kept[member_id]
            self._kept[member_id] = {
                **kept,
                **{
                    topic_id: kept.get(topic_id, frozenset()) | got
                    for topic_id, got in more.items()
                },
            }
        if start < len(self._free):
            raise AssignorError("Partitions were left unassigned")
