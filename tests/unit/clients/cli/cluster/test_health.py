"""What is the matter with a partition, and what is not."""

from __future__ import annotations

import pytest

from kraftrio.clients.cli.cluster.health import check_partitions
from kraftrio.clients.metadata import PartitionMetadata, TopicMetadata


@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "min_isr", "troubles"),
    [
        (1, (1, 2, 3), (1, 2, 3), 2, []),
        (1, (1,), (1,), 1, []),
        (-1, (1,), (1,), 1, ["no leader"]),
        (1, (1, 2, 3), (1, 2), 1, ["under-replicated"]),
        (1, (1, 2, 3), (1, 2), 2, ["under-replicated", "at min ISR"]),
        (1, (1, 2, 3), (1,), 2, ["under min ISR", "under-replicated"]),
        (1, (1,), (1,), 2, ["under min ISR"]),
        (2, (1, 2, 3), (1, 2, 3), 2, ["not the preferred leader"]),
        (-1, (1, 2), (), 1, ["no leader", "under min ISR", "under-replicated"]),
    ],
)
def test_troubles(
    leader: int,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    min_isr: int,
    troubles: list[str],
) -> None:
    partition = PartitionMetadata(0, leader, 1, replicas, isr)
    topics = {"t": TopicMetadata("t", partitions={0: partition})}
    problems = check_partitions(topics, {"t": min_isr})
    assert [problem.kind.value for problem in problems] == troubles


def test_the_worst_comes_first() -> None:
    fine_but_elsewhere = PartitionMetadata(0, 2, 1, (1, 2), (1, 2))
    lost = PartitionMetadata(0, -1, 1, (1,), (1,))
    topics = {
        "a": TopicMetadata("a", partitions={0: fine_but_elsewhere}),
        "b": TopicMetadata("b", partitions={0: lost}),
    }
    problems = check_partitions(topics, {})
    assert [problem.topic for problem in problems] == ["b", "a"]
    assert [problem.is_serious for problem in problems] == [True, False]
