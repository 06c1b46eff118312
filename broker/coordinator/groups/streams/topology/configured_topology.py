"""A topology as the topics of the cluster let it run: how many tasks there are, what is missing.

It follows from a group's topology and the newest metadata, and is in no record. A group is ready
for tasks once all topics are there, with numbers of partitions that fit each other. The broker
makes the internal ones: `missing_topics` are those that it has to create.

Called by the streams groups of a shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.streams.assignors.java_order import hash_order, text_order
from kraftrio.broker.coordinator.groups.streams.topology.partition_counts import (
    decide_partition_counts,
)
from kraftrio.broker.coordinator.groups.streams.topology.topic_problem import TopicProblemError
from kraftrio.broker.coordinator.groups.streams.topology.topology import (
    StreamsTopology,
    input_topics,
)
from kraftrio.wire.messages.admin import CreatableTopic, CreatableTopicConfig
from kraftrio.wire.messages.group_records.streams import (
    StreamsGroupTopologySubtopology,
    StreamsGroupTopologyTopicInfo,
)
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeKeyValue,
    StreamsGroupDescribeSubtopology,
    StreamsGroupDescribeTopicInfo,
    StreamsGroupDescribeTopology,
)

_DEFAULT_REPLICATION_FACTOR = -1  # the cluster's


class InternalTopic(NamedTuple):
    """A repartition or changelog topic; a replication factor of 0 is the cluster's default."""

    name: str
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]

    def creatable(self) -> CreatableTopic:
        """Give the topic as CreateTopics wants it."""
        return CreatableTopic(
            name=self.name,
            num_partitions=self.partition_count,
            replication_factor=self.replication_factor or _DEFAULT_REPLICATION_FACTOR,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in self.configs],
        )

    def description(self) -> StreamsGroupDescribeTopicInfo:
        """Describe the topic."""
        return StreamsGroupDescribeTopicInfo(
            name=self.name,
            partitions=self.partition_count,
            replication_factor=self.replication_factor,
            topic_configs=[
                StreamsGroupDescribeKeyValue(key=name, value=value) for name, value in self.configs
            ],
        )


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with its number of tasks, and its topics with their partitions."""

    task_count: int
    source_topics: frozenset[str]
    repartition_sink_topics: frozenset[str]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks keep state, which standby tasks can follow."""
        return bool(self.state_changelog_topics)

    @property
    def input_topics(self) -> frozenset[str]:
        """What its tasks read."""
        return self.source_topics.union(topic.name for topic in self.repartition_source_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """See the module.

    Attributes:
        subtopologies: by id; none while it is not known how many tasks there are.
        missing_topics: internal topics that are to be made.
        problem: why there can be no tasks; None: the group is ready.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    missing_topics: tuple[InternalTopic, ...] = ()
    problem: TopicProblemError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be given out."""
        return self.problem is None

    def description(self) -> StreamsGroupDescribeTopology:
        """Describe the topology with the numbers of partitions that were decided."""
        return StreamsGroupDescribeTopology(
            epoch=self.epoch,
            subtopologies=[
                StreamsGroupDescribeSubtopology(
                    subtopology_id=name,
                    source_topics=sorted(one.source_topics),
                    repartition_sink_topics=sorted(one.repartition_sink_topics),
                    state_changelog_topics=_descriptions(one.state_changelog_topics),
                    repartition_source_topics=_descriptions(one.repartition_source_topics),
                )
                for name, one in self.subtopologies.items()
            ],
        )


def configure(
    topology: StreamsTopology, existing_count: Callable[[str], int | None]
) -> ConfiguredTopology:
    """Look at the topics that a topology needs.

    Args:
        existing_count: returns how many partitions a topic has; None: there is no such topic.

    Raises:
        KafkaError: STREAMS_INVALID_TOPOLOGY: no topics could make it run.
    """
    try:
        _check_source_topics(topology, existing_count)
        decided = decide_partition_counts(topology, existing_count)
        subtopologies = {
            name: _configured(topology.subtopologies[name], existing_count, decided)
            for name in sorted(topology.subtopologies, key=text_order)
        }
        missing = _missing_topics(topology, subtopologies, existing_count)
    except TopicProblemError as problem:
        return ConfiguredTopology(topology.epoch, {}, problem=problem)
    problem_of_missing = None
    if missing:
        problem_of_missing = TopicProblemError.missing_internal_topics(
            [topic.name for topic in missing]
        )
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem_of_missing)


def _check_source_topics(
    topology: StreamsTopology, existing_count: Callable[[str], int | None]
) -> None:
    missing = {
        topic
        for subtopology in topology.subtopologies.values()
        for topic in subtopology.source_topics
        if existing_count(topic) is None
    }
    if missing:
        raise TopicProblemError.missing_source_topics(sorted(missing, key=text_order))


def _configured(
    subtopology: StreamsGroupTopologySubtopology,
    existing_count: Callable[[str], int | None],
    decided: Mapping[str, int],
) -> ConfiguredSubtopology:
    def count_of(topic: str) -> int:
        count = existing_count(topic)
        return decided[topic] if count is None else count

    return ConfiguredSubtopology(
        task_count=max(count_of(topic) for topic in input_topics(subtopology)),
        source_topics=frozenset(subtopology.source_topics),
        repartition_sink_topics=frozenset(subtopology.repartition_sink_topics),
        repartition_source_topics=_internal_topics(subtopology.repartition_source_topics, decided),
        state_changelog_topics=_internal_topics(subtopology.state_changelog_topics, decided),
    )


def _internal_topics(
    topics: Iterable[StreamsGroupTopologyTopicInfo], decided: Mapping[str, int]
) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions or decided[topic.name],
            topic.replication_factor,
            tuple((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in topics
    )


def _missing_topics(
    topology: StreamsTopology,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    existing_count: Callable[[str], int | None],
) -> tuple[InternalTopic, ...]:
    """The internal topics that do not exist, in the order of a HashMap; the others must fit."""
    expected = {
        topic.name: topic
        for subtopology in subtopologies.values()
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
    }
    for name in hash_order(topology.required_topics):
        count = existing_count(name)
        if name in expected and count is not None and count != expected[name].partition_count:
            raise TopicProblemError.incorrectly_partitioned(
                f"Existing topic {name} has different number of partitions: "
                f"expected {expected[name].partition_count}, found {count}"
            )
    return tuple(expected[name] for name in hash_order(expected) if existing_count(name) is None)


def _descriptions(topics: Iterable[InternalTopic]) -> list[StreamsGroupDescribeTopicInfo]:
    return [topic.description() for topic in sorted(topics)]
