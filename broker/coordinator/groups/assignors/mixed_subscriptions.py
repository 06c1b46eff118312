"""The assignor `uniform` for a group whose members subscribe to different topics.

Owns `MixedSubscriptions`. Its steps: everybody keeps what it still subscribes to; what nobody has
goes to whoever has least among the topic's subscribers, topics that leave the least choice first;
then, topic by topic, partitions move from those who have most to those who have least, until a
round changes nothing. With subscriptions that overlap that may take long: it ends after 16 rounds,
in Kafka as here.

Members are numbers in here: their places in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.broker.coordinator.groups.assignors.spec import (
    Assignment,
    AssignmentSpec,
    MemberAssignment,
    topic_id_order,
)

_NO_OWNER = -1
_MOST_ROUNDS = 16


class MixedSubscriptions:
    """One computation; see the module."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self._spec = spec
        self._member_ids = spec.members_in_order()
        self._subscribers: dict[bytes, list[int]] = {}
        for member, member_id in enumerate(self._member_ids):
            for topic_id in spec.members[member_id].subscribed_topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member)
        self._owners = {
            topic_id: [_NO_OWNER] * spec.partition_count(topic_id) for topic_id in self._subscribers
        }
        self._counts = [0] * len(self._member_ids)  # of the partitions of each member
        self._loads = _Loads(self._counts)

    def assign(self) -> Assignment:
        """Keep, hand out, balance."""
        if not self._subscribers:
            return {}
        self._keep()
        free = [topic_id for topic_id, owners in self._owners.items() if _NO_OWNER in owners]
        for topic_id in self._by_choice(free):
            self._hand_out(topic_id)
        shared = [topic_id for topic_id, members in self._subscribers.items() if len(members) > 1]
        self._balance(self._by_choice(shared))
        return self._assignment()

    def _by_choice(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Topics with most partitions for each subscriber first, then those with few of these."""

        def order(topic_id: bytes) -> tuple[float, int, tuple[int, ...]]:
            subscribers = len(self._subscribers[topic_id])
            partitions = len(self._owners[topic_id])
            return -partitions / subscribers, subscribers, topic_id_order(topic_id)

        return sorted(topic_ids, key=order)

    def _keep(self) -> None:
        for member, member_id in enumerate(self._member_ids):
            spec = self._spec.members[member_id]
            for topic_id, partitions in spec.assigned.items():
                if topic_id in spec.subscribed_topic_ids:
                    self._counts[member] += len(partitions)
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = member

    def _hand_out(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        self._loads.start(self._subscribers[topic_id])
        for partition, owner in enumerate(owners):
            if owner == _NO_OWNER:
                owners[partition] = member = self._loads.next_least()
                self._counts[member] += 1

    def _balance(self, topic_ids: list[bytes]) -> None:
        last_changed = -1
        for _round in range(_MOST_ROUNDS):
            for index, topic_id in enumerate(topic_ids):
                if index == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed == -1:
                    last_changed = index

    def _balance_topic(self, topic_id: bytes) -> int:
        """Move a topic's partitions to those who have less; return how many moved."""
        loads, owners = self._loads, self._owners[topic_id]
        if loads.difference(self._subscribers[topic_id]) <= 1:
            return 0
        loads.start(self._subscribers[topic_id])
        left: dict[int, list[int]] = {}  # what may still be taken from each member, the last first
        for partition, owner in enumerate(owners):
            left.setdefault(owner, []).append(partition)
        moved = 0
        while not loads.is_balanced:
            giver = loads.next_most()
            while giver is not None and not left.get(giver):
                loads.exclude_last_most()
                giver = loads.next_most()
            if giver is None:
                break
            partition = left[giver].pop()
            taker = loads.next_least()
            if loads.is_balanced:
                break
            owners[partition] = taker
            self._counts[giver] -= 1
            self._counts[taker] += 1
            moved += 1
        return moved

    def _assignment(self) -> Assignment:
        found: list[dict[bytes, set[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                found[owner].setdefault(topic_id, set()).add(partition)
        assignment: dict[str, MemberAssignment] = {}
        for member_id, partitions in zip(self._member_ids, found, strict=True):
            before = self._spec.members[member_id].assigned
            assignment[member_id] = (
                before
                if partitions == before
                else {topic_id: frozenset(got) for topic_id, got in partitions.items()}
            )
        return assignment


class _Loads:
    """Some members in the order of how many partitions they have, while these move between them.

    Those with least take turns, and as each gets one they become as many as the next ones, who then
    take part; those with most take turns in the same way from the other end. So both ends approach
    each other without sorting again.
    """

    def __init__(self, counts: list[int]) -> None:
        self._counts = counts
        self._members: list[int] = []
        self._least_end = self._next_least = 0  # the first ones up to here take turns
        self._least_count = 0
        self._most_start = self._most_end = 0  # these take turns, the last one first
        self._next_most = -1
        self._most_count = 0

    def difference(self, members: list[int]) -> int:
        """How many partitions the fullest of these members has more than the emptiest."""
        counts = [self._counts[member] for member in members]
        return max(counts) - min(counts)

    def start(self, members: list[int]) -> None:
        """Begin with these members."""
        counts = self._counts
        # One number for count and member sorts several times faster than a key function.
        in_order = sorted(counts[member] * len(counts) + member for member in members)
        self._members = [number % len(counts) for number in in_order]
        least, most = counts[self._members[0]], counts[self._members[-1]]
        self._least_end = self._next_least = 0
        self._least_count = least - 1
        self._most_start = self._most_end = len(self._members)
        self._next_most = len(self._members) - 1
        self._most_count = most + 1

    @property
    def is_balanced(self) -> bool:
        """Whether both ends have met, or nearly."""
        return self._most_count - self._least_count <= 1

    def next_least(self) -> int:
        """The next one to get a partition."""
        if self._next_least >= self._least_end:
            self._least_count += 1
            while (
                self._least_end < len(self._members)
                and self._counts[self._members[self._least_end]] == self._least_count
            ):
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._members[self._next_least - 1]

    def next_most(self) -> int | None:
        """The next one to give a partition away; None: none can."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:  # all are excluded
                self._most_count = self._counts[self._members[self._most_start - 1]]
            else:
                self._most_count -= 1
            while (
                self._most_start > 0
                and self._counts[self._members[self._most_start - 1]] == self._most_count
            ):
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        self._next_most -= 1
        return self._members[self._next_most + 1]

    def exclude_last_most(self) -> None:
        """Let the one that `next_most` gave last take no more turns."""
        place, last = self._next_most + 1, self._most_end - 1
        self._members[place], self._members[last] = self._members[last], self._members[place]
        self._most_end -= 1
