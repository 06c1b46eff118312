"""How many partitions the internal topics of a topology get (as Kafka 4.3 decides it).

Three steps, each of which builds on the one before:
1. A repartition topic has as many as its definition says, else as many as the largest topic that
   is read by a subtopology which writes to it.
2. Topics that are to be copartitioned get equally many: as many as the external ones among them,
   which must agree; else as many as the topology's repartition topics of a fixed number, which must
   agree; else as many as the largest.
3. A changelog topic has as many as the largest topic that its subtopology reads.

Topics that exist have what they have. Called by `configured_topology`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kraftrio.broker.coordinator.groups.streams.assignors.java_order import hash_order
from kraftrio.broker.coordinator.groups.streams.topology.topic_problem import TopicProblemError
from kraftrio.broker.coordinator.groups.streams.topology.topology import (
    StreamsTopology,
    input_topics,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.streams import StreamsGroupTopologySubtopology


def decide_partition_counts(
    topology: StreamsTopology, existing_count: Callable[[str], int | None]
) -> dict[str, int]:
    """Return the number of partitions of each internal topic.

    Args:
        existing_count: returns how many partitions a topic has; None: there is no such topic. All
            external source topics must exist.

    Raises:
        TopicProblemError: topics that are to be copartitioned are not.
        KafkaError: STREAMS_INVALID_TOPOLOGY: the numbers cannot be decided.
    """
    subtopologies = [topology.subtopologies[name] for name in hash_order(topology.subtopologies)]
    decided = _repartition_counts(subtopologies, existing_count)

    def count_of(topic: str) -> int:
        count = existing_count(topic)
        return decided[topic] if count is None else count

    definitions = [topic for one in subtopologies for topic in one.repartition_source_topics]
    fixed = {topic.name for topic in definitions if topic.partitions}
    flexible = {topic.name for topic in definitions if not topic.partitions}
    for subtopology in subtopologies:
        for group in _copartition_groups(subtopology):
            decided.update(_copartitioned_counts(group, fixed, flexible, count_of))
    for subtopology in subtopologies:
        counts = [count_of(topic) for topic in input_topics(subtopology)]
        if not counts:
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"No source topics found for subtopology {subtopology.subtopology_id}",
            )
        for changelog in subtopology.state_changelog_topics:
            decided[changelog.name] = max(counts)
    return decided


def _repartition_counts(
    subtopologies: list[StreamsGroupTopologySubtopology],
    existing_count: Callable[[str], int | None],
) -> dict[str, int]:
    """Step 1."""
    counts = {
        topic.name: topic.partitions
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    }
    is_complete = False
    while not is_complete:
        is_complete, has_progressed = True, False
        for subtopology in subtopologies:
            for sink in subtopology.repartition_sink_topics:
                if sink in counts:
                    continue
                known = [
                    *(counts.get(topic.name) for topic in subtopology.repartition_source_topics),
                    *(existing_count(topic) for topic in subtopology.source_topics),
                ]
                count = max((one for one in known if one is not None), default=None)
                if count is None:
                    is_complete = False
                else:
                    counts[sink] = count
                    has_progressed = True
        if not is_complete and not has_progressed:
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved.",
            )
    for subtopology in subtopologies:
        if any(topic.name not in counts for topic in subtopology.repartition_source_topics):
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics, because "
                "a repartition source topic is never used as a sink topic.",
            )
    return counts


def _copartition_groups(subtopology: StreamsGroupTopologySubtopology) -> Iterator[list[str]]:
    """The topics of each copartition group, in the order of a HashSet."""
    for group in subtopology.copartition_groups:
        external = [subtopology.source_topics[index] for index in group.source_topics]
        internal = [
            subtopology.repartition_source_topics[index].name
            for index in group.repartition_source_topics
        ]
        yield hash_order((*external, *internal))


def _copartitioned_counts(
    group: list[str], fixed: set[str], flexible: set[str], count_of: Callable[[str], int]
) -> dict[str, int]:
    """Step 2, for one copartition group."""
    repartition = {topic: count_of(topic) for topic in group if topic in fixed or topic in flexible}
    external = {topic: count_of(topic) for topic in group if topic not in repartition}
    if external:
        count = _agreed_count(external, external)
    elif fixed and repartition:
        count = _agreed_count({topic: count_of(topic) for topic in fixed}, repartition)
    else:
        count = max(repartition.values(), default=0)
    for topic, own in repartition.items():
        if topic in fixed and own != count:
            raise TopicProblemError.incorrectly_partitioned(
                f"Number of partitions [{own}] of repartition topic [{topic}] "
                f"doesn't match number of partitions [{count}] of the source topic."
            )
    return dict.fromkeys(repartition, count)


def _agreed_count(counts: Mapping[str, int], named: Mapping[str, int]) -> int:
    """The one number of partitions that topics have; an error names topics, with their numbers."""
    numbers = set(counts.values())
    if len(numbers) > 1:
        listed = ", ".join(f"{topic}={named[topic]}" for topic in sorted(named))
        raise TopicProblemError.incorrectly_partitioned(
            f"Following topics do not have the same number of partitions: [{{{listed}}}]"
        )
    return numbers.pop()
