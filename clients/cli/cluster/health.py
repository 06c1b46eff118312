"""Which partitions are not as they should be, and how bad that is.

Pure. Called by: `kraftrio cluster health`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kraftrio.clients.cli.output import Row
from kraftrio.clients.metadata import PartitionMetadata, TopicMetadata
from kraftrio.wire.primitives import TopicPartition


class ProblemKind(Enum):
    """What is wrong with a partition; the worst first."""

    NO_LEADER = "no leader"
    UNDER_MIN_ISR = "under min ISR"
    UNDER_REPLICATED = "under-replicated"
    AT_MIN_ISR = "at min ISR"
    OTHER_LEADER = "not the preferred leader"


_SERIOUS = frozenset(
    {ProblemKind.NO_LEADER, ProblemKind.UNDER_MIN_ISR, ProblemKind.UNDER_REPLICATED}
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a partition."""

    kind: ProblemKind
    topic: str
    partition: PartitionMetadata
    min_isr: int

    @property
    def is_serious(self) -> bool:
        """Whether records can be lost, or not be written or read."""
        return self.kind in _SERIOUS

    @property
    def item(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition.partition)

    @property
    def row(self) -> Row:
        """The problem as a row of a table."""
        return {
            "problem": self.kind.value,
            "topic": self.topic,
            "partition": self.partition.partition,
            "leader": self.partition.leader_id if self.partition.leader_id >= 0 else None,
            "replicas": self.partition.replicas,
            "isr": self.partition.isr,
            "offline": self.partition.offline_replicas,
            "min_isr": self.min_isr,
        }


def check_partitions(
    topics: Mapping[str, TopicMetadata], min_isr: Mapping[str, int]
) -> list[Problem]:
    """Return all problems, the worst first.

    Args:
        min_isr: min.insync.replicas by topic.
    """
    problems = [
        Problem(kind, name, partition, min_isr.get(name, 1))
        for name, topic in sorted(topics.items())
        for partition in topic.partitions.values()
        for kind in _kinds(partition, min_isr.get(name, 1))
    ]
    order = list(ProblemKind)
    return sorted(problems, key=lambda problem: order.index(problem.kind))


def _kinds(partition: PartitionMetadata, min_isr: int) -> list[ProblemKind]:
    isr, replicas = len(partition.isr), len(partition.replicas)
    found = []
    if partition.leader_id < 0:
        found.append(ProblemKind.NO_LEADER)
    if isr < min_isr:
        found.append(ProblemKind.UNDER_MIN_ISR)
    if isr < replicas:
        found.append(ProblemKind.UNDER_REPLICATED)
        # With all replicas in sync nothing can be improved, however large min.insync.replicas is.
        if isr == min_isr:
            found.append(ProblemKind.AT_MIN_ISR)
    if partition.leader_id >= 0 and partition.replicas and not _is_preferred(partition):
        found.append(ProblemKind.OTHER_LEADER)
    return found


def _is_preferred(partition: PartitionMetadata) -> bool:
    return partition.leader_id == partition.replicas[0]
