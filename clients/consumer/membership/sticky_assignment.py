"""The sticky algorithm: partitions shared out evenly, with as few of them moved as can be.

Owns the two ways of the Java clients (KIP-54, KAFKA-9987): `assign_alike`, for members that all
want the same topics, in one pass over what they own; `assign_unlike`, for all others, which starts
from what they own and moves single partitions from members with many to members with few while
that makes it more even. Rules:
1. Nothing here depends on anything but the arguments and their order, which is that of Java's
   hash tables; so the results are Java's.
2. Of two members that claim a partition the one with the higher generation has it; of two with
   the same generation neither.

Called by: `assignors`.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping, Sequence

from kraftrio.wire.primitives import TopicPartition

Claims = Mapping[str, tuple[Sequence[TopicPartition], int | None]]
"""Member -> what it says it owns, and in which generation (None: it does not say)."""
Assignments = dict[str, list[TopicPartition]]

_NO_GENERATION = -1


def _settle_claims(
    topics: Collection[str], claims: Claims, reported: Mapping[str, int]
) -> tuple[Assignments, set[TopicPartition]]:
    """Return what each member owns, and what two members of one generation both claim.

    Args:
        reported: the generation in the member's subscription itself, apart from the assignor's own.
    """
    owned: Assignments = {}
    disputed: set[TopicPartition] = set()
    owners: dict[TopicPartition, str] = {}
    for member, (partitions, claimed_generation) in claims.items():
        generation = _NO_GENERATION if claimed_generation is None else claimed_generation
        mine = owned[member] = []
        for partition in partitions:
            if partition.topic not in topics:
                continue
            other = owners.get(partition)
            if other is None:
                mine.append(partition)
            elif generation < reported[other]:
                continue
            else:
                if partition in owned[other]:
                    owned[other].remove(partition)
                if generation == reported[other]:
                    disputed.add(partition)
                else:
                    mine.append(partition)
            owners[partition] = member
    return owned, disputed


def moved_partitions(
    assigned: Assignments, owned: Mapping[str, Sequence[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Return what one member is assigned that another one owned: partition -> new member."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, partitions in assigned.items():
        before = set(owned[member])
        added |= {partition: member for partition in partitions if partition not in before}
        revoked |= before.difference(partitions)
    return {partition: member for partition, member in added.items() if partition in revoked}


# All members want the same topics


def assign_alike(
    counts: Mapping[str, int], claims: Claims, reported: Mapping[str, int]
) -> tuple[Assignments, dict[TopicPartition, str]]:
    """Share out among members that want the same topics.

    Returns:
        The assignment, and of it what others owned: partition -> new member.
    """
    owned, disputed = _settle_claims(counts, claims, reported)
    builder = _AlikeBuilder(counts, owned, disputed)
    builder.keep_owned()
    builder.fill()
    return builder.assigned, builder.moved


class _AlikeBuilder:
    """Every member gets `low` partitions and some of them one more."""

    def __init__(
        self, counts: Mapping[str, int], owned: Assignments, disputed: set[TopicPartition]
    ) -> None:
        self.assigned: Assignments = {member: [] for member in owned}
        self.moved: dict[TopicPartition, str] = {}
        self._counts = counts
        self._owned = owned
        self._disputed = disputed
        self._given_up: dict[TopicPartition, str] = {}
        self._low, self._larger_wanted = divmod(sum(counts.values()), len(owned))
        self._high = self._low + (self._larger_wanted > 0)
        self._larger = 0  # members with `high`
        self._below: list[str] = []  # members with less than `low`
        self._exactly: list[str] = []  # members with `low` that may get one more

    def keep_owned(self) -> None:
        """Let the members keep what they own, up to their share."""
        for member, claimed in self._owned.items():
            owned = sorted(
                (partition for partition in claimed if partition not in self._disputed),
                key=lambda partition: (partition.partition, partition.topic),
            )
            kept = len(owned)
            if kept < self._low:
                self._below.append(member)
            elif kept >= self._high and self._larger < self._larger_wanted:
                self._larger += 1
                if self._larger == self._larger_wanted:
                    self._exactly.clear()
                kept = self._high
            else:
                kept = self._low
                if self._larger < self._larger_wanted:
                    self._exactly.append(member)
            self.assigned[member] += owned[:kept]
            self._given_up |= dict.fromkeys(owned[kept:], member)

    def fill(self) -> None:
        """Give what is left to the members below their share, in turn."""
        below, exactly = sorted(self._below), sorted(self._exactly)
        turn = 0
        for partition in self._left():
            if turn == len(below) and below:
                turn = 0
            if below:
                member = below[turn]
            else:
                assert exactly, "the shares are counted such that all is assigned"
                member = exactly.pop(0)
            self._give(partition, member)
            size = len(self.assigned[member])
            if below:
                if size == self._low:
                    del below[turn]
                    exactly.append(member)
                else:
                    turn += 1

    def _left(self) -> list[TopicPartition]:
        taken = {partition for partitions in self.assigned.values() for partition in partitions}
        return [
            partition
            for topic in sorted(self._counts)
            for number in range(self._counts[topic])
            if (partition := TopicPartition(topic, number)) not in taken
        ]

    def _give(self, partition: TopicPartition, member: str) -> None:
        self.assigned[member].append(partition)
        before = self._given_up.get(partition, member)
        if before != member or partition in self._disputed:
            self.moved[partition] = member


# Members want different topics


def assign_unlike(
    counts: Mapping[str, int],
    topics: Mapping[str, Sequence[str]],
    claims: Claims,
    reported: Mapping[str, int],
) -> Assignments:
    """Share out among members that want different topics."""
    owned, _ = _settle_claims(counts, claims, reported)
    builder = _UnlikeBuilder(counts, topics, owned, _previous_owners(claims))
    builder.keep_owned()
    builder.balance()
    return builder.assigned


def _previous_owners(claims: Claims) -> dict[TopicPartition, str]:
    """Return who had a partition in the newest generation before the newest one."""
    newest = max(
        [_NO_GENERATION]
        + [generation for _, generation in claims.values() if generation is not None]
    )
    previous: dict[TopicPartition, tuple[str, int]] = {}
    for member, (partitions, claimed_generation) in claims.items():
        generation = _NO_GENERATION if claimed_generation is None else claimed_generation
        if generation >= newest:
            continue
        for partition in partitions:
            if partition not in previous or generation > previous[partition][1]:
                previous[partition] = (member, generation)
    return {partition: member for partition, (member, _) in previous.items()}


class _UnlikeBuilder:
    """Single partitions move until it is as even as it gets."""

    def __init__(
        self,
        counts: Mapping[str, int],
        topics: Mapping[str, Sequence[str]],
        owned: Assignments,
        previous: dict[TopicPartition, str],
    ) -> None:
        self.assigned = owned
        self._counts = counts
        self._topics = {
            member: [topic for topic in dict.fromkeys(wanted) if topic in counts]
            for member, wanted in topics.items()
        }
        self._takers: dict[str, list[str]] = {topic: [] for topic in counts}
        for member, wanted in self._topics.items():
            for topic in wanted:
                self._takers[topic].append(member)
        self._most = {
            member: sum(counts[topic] for topic in wanted)
            for member, wanted in self._topics.items()
        }
        self._owner: dict[TopicPartition, str] = {}
        self._previous = previous
        self._by_size: list[tuple[int, str]] = []  # members that may still change, by their sizes
        self._moves = _Moves()
        self._gave_up_some = False

    def keep_owned(self) -> None:
        """Take from the members what they no longer want."""
        for member, partitions in self.assigned.items():
            wanted = set(self._topics[member])
            kept = [partition for partition in partitions if partition.topic in wanted]
            self._gave_up_some |= len(kept) < len(partitions)
            partitions[:] = kept
            self._owner |= dict.fromkeys(kept, member)

    def balance(self) -> None:
        """Assign what nobody owns, then move partitions while that helps."""
        self._by_size = sorted((len(each), member) for member, each in self.assigned.items())
        starts_empty = self._by_size[-1][0] == 0
        everything = [
            TopicPartition(topic, number)
            for topic in sorted(self._counts, key=lambda topic: (len(self._takers[topic]), topic))
            for number in range(self._counts[topic])
        ]
        unassigned = [partition for partition in everything if partition not in self._owner]
        for partition in unassigned:
            self._assign(partition)
        movable = [each for each in everything if len(self._takers[each.topic]) >= 2]
        fixed = {
            member: self.assigned.pop(member)
            for member in list(self._topics)
            if not self._may_change(member)
        }
        self._by_size = [entry for entry in self._by_size if entry[1] not in fixed]
        before = {member: list(partitions) for member, partitions in self.assigned.items()}
        if not self._gave_up_some:
            self._reassign([each for each in unassigned if len(self._takers[each.topic]) >= 2])
        moved = self._reassign(movable)
        if moved and not starts_empty and _unevenness(self.assigned) >= _unevenness(before):
            self.assigned = before
        self.assigned |= fixed

    def _assign(self, partition: TopicPartition) -> None:
        takers = set(self._takers[partition.topic])
        for _, member in self._by_size:
            if member in takers:
                self._resize(member, add=partition)
                self._owner[partition] = member
                return

    def _resize(
        self, member: str, *, add: TopicPartition | None = None, drop: TopicPartition | None = None
    ) -> None:
        partitions = self.assigned[member]
        entry = (len(partitions), member)
        del self._by_size[bisect.bisect_left(self._by_size, entry)]
        if add is not None:
            partitions.append(add)
        if drop is not None:
            partitions.remove(drop)
        bisect.insort(self._by_size, (len(partitions), member))

    def _may_change(self, member: str) -> bool:
        partitions = self.assigned[member]
        return len(partitions) < self._most[member] or any(
            len(self._takers[partition.topic]) >= 2 for partition in partitions
        )

    def _is_balanced(self) -> bool:
        if not self._by_size or self._by_size[0][0] >= self._by_size[-1][0] - 1:
            return True
        largest: dict[str, int] = {}  # topic -> the size of its largest owner
        for size, member in self._by_size:
            largest |= dict.fromkeys({each.topic for each in self.assigned[member]}, size)
        return not any(
            size + 1 < largest.get(topic, 0)
            for size, member in self._by_size
            if size < self._most[member]
            for topic in self._topics[member]
        )

    def _reassign(self, movable: Sequence[TopicPartition]) -> bool:
        """Move partitions until a whole pass moves none, or it is balanced."""
        any_moved = False
        while True:
            moved = False
            for partition in movable:
                if self._is_balanced():
                    break
                target = self._better_owner(partition)
                if target is not None:
                    self._move(partition, target)
                    moved = any_moved = True
            if not moved:
                return any_moved

    def _better_owner(self, partition: TopicPartition) -> str | None:
        size = len(self.assigned[self._owner[partition]])
        takers = self._takers[partition.topic]
        previous = self._previous.get(partition)
        if previous in takers and size > len(self.assigned[previous]) + 1:
            return previous
        if any(size > len(self.assigned[member]) + 1 for member in takers):
            wanted = set(takers)
            return next(member for _, member in self._by_size if member in wanted)
        return None

    def _move(self, partition: TopicPartition, target: str) -> None:
        partition = self._moves.better_choice(partition, self._owner[partition], target)
        source = self._owner[partition]
        self._moves.note(partition, source, target)
        self._resize(source, drop=partition)
        self._resize(target, add=partition)
        self._owner[partition] = target


def _unevenness(assigned: Assignments) -> int:
    """Return the sum of the differences in size over all pairs of members."""
    sizes = sorted(map(len, assigned.values()))
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))


class _Moves:
    """What moved from whom to whom, so that of two partitions of a topic neither crosses over."""

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], dict[TopicPartition, None]] = {}
        self._peaks: dict[tuple[str, str, str], int] = {}

    def note(self, partition: TopicPartition, source: str, target: str) -> None:
        """Take note of a move; a partition that comes back has not moved."""
        before = self._pairs.pop(partition, None)
        if before is not None:
            key = (partition.topic, *before)
            del self._moved[key][partition]
            if not self._moved[key]:
                del self._moved[key], self._peaks[key]
            source = before[0]
            if source == target:
                return
        self._pairs[partition] = (source, target)
        key = (partition.topic, source, target)
        moved = self._moved.setdefault(key, {})
        moved[partition] = None
        self._peaks[key] = max(self._peaks.get(key, 0), len(moved))

    def better_choice(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """Return a partition that moved the other way, which had better move back; or the same."""
        if partition in self._pairs:
            source = self._pairs[partition][0]
        key = (partition.topic, target, source)
        moved = self._moved.get(key)
        if not moved:
            return partition
        # The first one of Java's hash table: its hash codes are 31 apart, plus that of the topic.
        buckets = 16
        while self._peaks[key] > buckets * 3 // 4:
            buckets *= 2
        topic_hash = _topic_hash(partition.topic)

        def bucket(candidate: TopicPartition) -> int:
            code = (31 * (31 + candidate.partition) + topic_hash) & 0xFFFF_FFFF
            return (code ^ code >> 16) & (buckets - 1)

        return min(moved, key=bucket)


def _topic_hash(topic: str) -> int:
    code = 0
    for unit in topic.encode():  # the names of topics are ASCII
        code = (31 * code + unit) & 0xFFFF_FFFF
    return code
