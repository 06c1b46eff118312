"""What a test waits for: a group, a topic, a partition, a transaction, the cluster as a whole.

Owns: `GroupSubject`, `TopicSubject`, `PartitionSubject` and `TransactionSubject`, and `Subjects`,
which hands them to tests. Each names what it waits for and how to look at it through `Contents`;
`waiting` does the rest.

Called by: `cluster` and `kafka_world`, which are `Subjects`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kraftrio.clients.admin.types import GroupDescription, MemberDescription, OffsetSpec
from kraftrio.clients.arguments.values import whole_number
from kraftrio.clients.metadata import PartitionMetadata
from kraftrio.testing.contents import Contents
from kraftrio.testing.waiting import Seen, Wait
from kraftrio.wire.primitives import TopicPartition

LookAt = Callable[[Contents], Awaitable[Seen]]
Watch = Callable[[str, LookAt, float], Wait]
"""Makes a `Wait`: what is waited for, how to look, the seconds it may take."""

DEFAULT_TIMEOUT_S = 10.0
_HEAL_TIMEOUT_S = 60.0
_ENDED = ("Empty", "CompleteCommit", "CompleteAbort")


@dataclass(frozen=True, slots=True)
class GroupSubject:
    """A consumer group of the classic or the consumer protocol."""

    group_id: str
    watch: Watch

    def stable(self, members: int | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wait:
        """Wait until it is stable, with so many members (None: any number but 0).

        Raises:
            TypeError, ValueError: `members` is not a number of members.
        """
        if members is not None and whole_number("members", members) == 0:
            raise ValueError("stable(members=0): a group without members is waited for by empty()")
        wanted = "members" if members is None else f"{members} members"

        async def look(contents: Contents) -> Seen:
            group = await contents.group(self.group_id)
            if group is None:
                return Seen(False, f"there is no group {self.group_id}")
            count = len(group.members)
            is_so = group.state == "Stable" and (count > 0 if members is None else count == members)
            return Seen(is_so, _group_text(group))

        return self.watch(f"group {self.group_id} is stable with {wanted}", look, timeout_s)

    def empty(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wait:
        """Wait until it has no members any more."""

        async def look(contents: Contents) -> Seen:
            group = await contents.group(self.group_id)
            if group is None:
                return Seen(True, f"there is no group {self.group_id}")
            return Seen(not group.members, _group_text(group))

        return self.watch(f"group {self.group_id} has no members", look, timeout_s)


def _group_text(group: GroupDescription) -> str:
    members = ", ".join(map(_member_text, group.members)) or "nobody"
    return f"{group.state} with {len(group.members)} members: {members}"


def _member_text(member: MemberDescription) -> str:
    owned = " ".join(f"{topic}-{number}" for topic, number in sorted(member.assignment))
    return f"{member.client_id}@{member.host.lstrip('/')} ({owned or 'no partitions'})"


@dataclass(frozen=True, slots=True)
class PartitionSubject:
    """One partition of a topic."""

    topic_partition: TopicPartition
    watch: Watch

    def high_watermark(self, at_least: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wait:
        """Wait until so many offsets are committed to all in-sync replicas."""
        name = _name(self.topic_partition)

        async def look(contents: Contents) -> Seen:
            state = await _partition_text(contents, self.topic_partition)
            ends = await contents.offsets([self.topic_partition], OffsetSpec.LATEST)
            end = ends[self.topic_partition]
            return Seen(end >= at_least, f"{name} has high watermark {end}, {state}")

        what = f"{name} has high watermark {at_least}"
        return self.watch(what, look, timeout_s)

    def led_by(self, node_id: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wait:
        """Wait until this node leads it."""

        async def look(contents: Contents) -> Seen:
            found = await contents.partition(self.topic_partition)
            return Seen(found.leader_id == node_id, _replicas_text(found))

        what = f"node {node_id} leads {_name(self.topic_partition)}"
        return self.watch(what, look, timeout_s)


async def _partition_text(contents: Contents, topic_partition: TopicPartition) -> str:
    return _replicas_text(await contents.partition(topic_partition))


def _replicas_text(partition: PartitionMetadata) -> str:
    leader = "no leader" if partition.leader_id < 0 else f"leader {partition.leader_id}"
    isr = " ".join(map(str, sorted(partition.isr))) or "empty"
    return f"{leader}, ISR {isr} of replicas {' '.join(map(str, sorted(partition.replicas)))}"


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


@dataclass(frozen=True, slots=True)
class TopicSubject:
    """All partitions of a topic."""

    name: str
    watch: Watch

    def drained(self, by: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wait:
        """Wait until a group has committed all that is in it by then."""

        async def look(contents: Contents) -> Seen:
            ends = await contents.end_offsets(self.name)
            committed = await contents.committed(by)
            behind = {each: end - committed.get(each, 0) for each, end in ends.items()}
            lag = sum(count for count in behind.values() if count > 0)
            places = ", ".join(
                f"{_name(each)} {committed.get(each, 'nothing')} of {ends[each]}"
                for each, count in behind.items()
                if count > 0
            )
            group = await contents.group(by)
            state = "no such group" if group is None else _group_text(group)
            return Seen(lag == 0, f"lag {lag}{f' ({places})' if lag else ''}; {state}")

        return self.watch(f"topic {self.name} is drained by {by}", look, timeout_s)


@dataclass(frozen=True, slots=True)
class TransactionSubject:
    """The transactions of a transactional id."""

    transactional_id: str
    watch: Watch

    def ended(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wait:
        """Wait until its newest transaction is committed or aborted, its markers written."""
        name = self.transactional_id

        async def look(contents: Contents) -> Seen:
            found = await contents.admin.transactions.describe([name])
            state = found[name].state
            places = " ".join(map(_name, sorted(found[name].topic_partitions)))
            return Seen(state in _ENDED, f"{state} with {places or 'no partitions'}")

        return self.watch(f"the transaction of {name} has ended", look, timeout_s)


class Subjects(ABC):
    """What a test waits for in a cluster; how to look at it is the cluster's."""

    @abstractmethod
    def _watch(self, what: str, look: LookAt, timeout_s: float) -> Wait:
        """Make a `Wait` of this cluster."""

    @abstractmethod
    def _nodes_up(self) -> dict[int, bool]:
        """Which nodes run, by id: the cluster may not have noticed yet that one does not."""

    def group(self, group_id: str) -> GroupSubject:
        """A consumer group to wait for."""
        return GroupSubject(group_id, self._watch)

    def topic(self, name: str) -> TopicSubject:
        """A topic to wait for."""
        return TopicSubject(name, self._watch)

    def partition(self, topic: str, number: int = 0) -> PartitionSubject:
        """A partition to wait for."""
        return PartitionSubject(TopicPartition(topic, number), self._watch)

    def transaction(self, transactional_id: str) -> TransactionSubject:
        """A transactional id to wait for."""
        return TransactionSubject(transactional_id, self._watch)

    def healthy(self, *, timeout_s: float = _HEAL_TIMEOUT_S) -> Wait:
        """Wait until every broker is there, and every replica of every partition in sync."""
        self._nodes_up()  # which raises now if there is no cluster to wait for

        async def look(contents: Contents) -> Seen:
            return await _health(contents, self._nodes_up())

        return self._watch("the cluster is healthy", look, timeout_s)


async def _health(contents: Contents, up: dict[int, bool]) -> Seen:
    faults = [f"node {node_id} does not run" for node_id, is_up in up.items() if not is_up]
    if len(faults) == len(up):
        return Seen(False, "; ".join(faults))
    there = sorted(node.node_id for node in (await contents.admin.describe_cluster()).nodes)
    faults += [
        f"{topic}-{number}: {_replicas_text(partition)}"
        for topic, metadata in (await contents.topics(internal=True)).items()
        for number, partition in metadata.partitions.items()
        if partition.leader_id < 0 or set(partition.isr) != set(partition.replicas)
    ]
    text = f"brokers {' '.join(map(str, there))} of {len(up)}"
    return Seen(len(there) == len(up) and not faults, "; ".join([text, *faults]))
