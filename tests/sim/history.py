"""What clients did and saw, and an independent model of what a log may hold after that.

Owns: `History`. It knows nothing of brokers; clients report to it, it is asked at the end, and
raises at once for what no later event can mend. The promises it checks
1. A record acknowledged with acks=all is in the log, at the offset that was returned.
2. What an idempotent producer sent is there at most once, in the order in which it was sent.
3. What a consumer saw at an offset is there for ever, and nothing else is ever seen there.
4. Nobody finds a record that was not sent to that partition.
5. A commit that was acknowledged is never taken back: who asks later finds it or a later one.
6. In one generation of a group, a partition has one owner; who owned it in an earlier generation
   commits no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.known_commits import KnownCommits


class Promise(NamedTuple):
    """What a producer may expect."""

    acks_all: bool
    idempotent: bool


@dataclass(slots=True)
class Sender:
    """Everything one producer sent to one partition; record n has the value `name/n`."""

    name: str
    topic_partition: TopicPartition
    promise: Promise
    sent: int = 0
    acknowledged: dict[int, int | None] = field(default_factory=dict)  # n -> offset, if returned


class History:
    """See the module.

    Args:
        has_old_coordinator: see `known_commits`.
    """

    def __init__(self, has_old_coordinator: Callable[[], bool] = lambda: False) -> None:
        self.senders: dict[str, Sender] = {}
        self.seen: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        self._commits = KnownCommits(has_old_coordinator)
        self._newest_generations: dict[str, int] = {}
        self.owners: dict[tuple[str, int, TopicPartition], str] = {}
        self.may_lose: set[TopicPartition] = set()

    # -- what clients report ----------------------------------------------------------------------

    def sender(self, name: str, topic_partition: TopicPartition, promise: Promise) -> Sender:
        """Begin a producer's sequence to a partition; names are unique."""
        assert name not in self.senders
        sender = self.senders[name] = Sender(name, topic_partition, promise)
        return sender

    def acknowledge(self, sender: Sender, first: int, count: int, base_offset: int | None) -> None:
        """A broker has acknowledged records."""
        for i in range(count):
            offset = None if base_offset is None else base_offset + i
            sender.acknowledged[first + i] = offset

    def see(self, reader: str, topic_partition: TopicPartition, offset: int, value: str) -> None:
        """A consumer has read a record."""
        seen = self.seen[topic_partition]
        before = seen.setdefault(offset, value)
        if before != value:
            raise SimulationFailure(
                f"{reader} read {value} at {_at(topic_partition, offset)}, where {before} was read"
                " before: a committed record was lost"
            )
        self._check_was_sent(reader, topic_partition, offset, value)

    def _check_was_sent(
        self, reader: str, topic_partition: TopicPartition, offset: int, value: str
    ) -> None:
        name, _, number = value.rpartition("/")
        sender = self.senders.get(name)
        if sender is None or sender.topic_partition != topic_partition:
            raise SimulationFailure(
                f"{reader} read {value} at {_at(topic_partition, offset)}: nobody sent it there"
            )
        if int(number) >= sender.sent:
            raise SimulationFailure(f"{reader} read {value}, which was not sent yet")

    def commit(self, group: str, topic_partition: TopicPartition, offset: int) -> None:
        """A commit was acknowledged."""
        self._commits.acknowledge(group, topic_partition, offset)

    def committed(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """What is committed at least; ask it before OffsetFetch is sent."""
        return {tp: self._commits.least(group, tp) for tp in topic_partitions}

    def check_committed(
        self, group: str, topic_partition: TopicPartition, known: int, found: int
    ) -> None:
        """A member has asked for the committed offset; `committed` was `known` when it asked."""
        if found < known:
            raise SimulationFailure(
                f"group {group} finds offset {found} committed for {_name(topic_partition)}, but"
                f" {known} was acknowledged before"
            )

    def own(
        self, group: str, generation: int, topic_partition: TopicPartition, member: str
    ) -> None:
        """A member was given a partition."""
        newest = self._newest_generations
        newest[group] = max(newest.get(group, -1), generation)
        key = (group, generation, topic_partition)
        owner = self.owners.setdefault(key, member)
        if owner != member:
            raise SimulationFailure(
                f"group {group} gives {_name(topic_partition)} to {owner} and {member} in"
                f" generation {generation}"
            )

    def newest_generation(self, group: str) -> int:
        """The newest in which a member was given a partition; ask it before a commit."""
        return self._newest_generations.get(group, -1)

    def check_generation(self, group: str, generation: int, newest: int) -> None:
        """A commit was acknowledged; `newest` is what was known when it was sent."""
        if generation < newest:
            raise SimulationFailure(
                f"group {group} took a commit of generation {generation}, though others owned its"
                f" partitions in {newest}"
            )

    # -- the end ----------------------------------------------------------------------------------

    def check_log(
        self, topic_partition: TopicPartition, log_start_offset: int, records: list[tuple[int, str]]
    ) -> None:
        """Compare the final log of a partition (offsets and values) with all of the above."""
        where: dict[str, int] = {}
        last_of: dict[str, tuple[int, int]] = {}
        found = dict(records)
        for offset, value in records:
            self._check_was_sent("the end", topic_partition, offset, value)
            name, _, number = value.rpartition("/")
            sender = self.senders[name]
            if sender.promise.idempotent:
                if value in where:
                    raise SimulationFailure(
                        f"{value} is twice in {_name(topic_partition)}: at {where[value]} and"
                        f" {offset}"
                    )
                last, last_offset = last_of.get(name, (-1, -1))
                if int(number) < last:
                    raise SimulationFailure(
                        f"{_name(topic_partition)} has {value} at {offset} after {name}/{last} at"
                        f" {last_offset}"
                    )
                last_of[name] = (int(number), offset)
            where.setdefault(value, offset)
        for offset, value in self.seen[topic_partition].items():
            if offset >= log_start_offset and found.get(offset) != value:
                raise SimulationFailure(
                    f"{value} was read at {_at(topic_partition, offset)}, where"
                    f" {found.get(offset)} is in the end"
                )
        for sender in self.senders.values():
            if sender.topic_partition == topic_partition and sender.promise.acks_all:
                self._check_acknowledged(sender, log_start_offset, where, found)

    def _check_acknowledged(
        self, sender: Sender, log_start_offset: int, where: dict[str, int], found: dict[int, str]
    ) -> None:
        if sender.topic_partition in self.may_lose:
            return
        for number, offset in sender.acknowledged.items():
            value = f"{sender.name}/{number}"
            if offset is not None and offset < log_start_offset:
                continue
            if offset is not None and found.get(offset) != value:
                raise SimulationFailure(
                    f"{value} was acknowledged at {_at(sender.topic_partition, offset)}, where"
                    f" {found.get(offset)} is in the end"
                )
            if value not in where and log_start_offset == 0:
                raise SimulationFailure(
                    f"{value} was acknowledged, but is not in {_name(sender.topic_partition)}"
                )

    def counts(self) -> str:
        """Tell how much was done."""
        sent = sum(sender.sent for sender in self.senders.values())
        acknowledged = sum(len(sender.acknowledged) for sender in self.senders.values())
        seen = sum(map(len, self.seen.values()))
        return f"sent={sent} acknowledged={acknowledged} read={seen} commits={len(self._commits)}"


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def _at(topic_partition: TopicPartition, offset: int) -> str:
    return f"{_name(topic_partition)}:{offset}"
