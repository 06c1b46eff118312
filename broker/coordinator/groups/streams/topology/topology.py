"""The topology of a Kafka Streams application: what its subtopologies read, write and keep.

A group gets it from the first member that joins, and stores it in a record. Immutable.
Called by the streams groups of a shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.streams import (
    StreamsGroupTopologyCopartitionGroup,
    StreamsGroupTopologySubtopology,
    StreamsGroupTopologyTopicConfig,
    StreamsGroupTopologyTopicInfo,
    StreamsGroupTopologyValue,
)
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeKeyValue,
    StreamsGroupDescribeSubtopology,
    StreamsGroupDescribeTopicInfo,
    StreamsGroupDescribeTopology,
    StreamsGroupHeartbeatRequestTopicInfo,
    StreamsGroupHeartbeatRequestTopology,
)


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """See the module.

    Attributes:
        subtopologies: by id.
        subtopology_by_topic: which one reads a topic, whether the application makes it or not.
    """

    epoch: int
    subtopologies: Mapping[str, StreamsGroupTopologySubtopology]
    subtopology_by_topic: Mapping[str, str] = field(init=False, repr=False, compare=False)
    required_topics: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sources = {
            topic: name for name, one in self.subtopologies.items() for topic in input_topics(one)
        }
        changelogs = (
            topic.name
            for one in self.subtopologies.values()
            for topic in one.state_changelog_topics
        )
        object.__setattr__(self, "subtopology_by_topic", sources)
        object.__setattr__(self, "required_topics", frozenset((*sources, *changelogs)))


def input_topics(subtopology: StreamsGroupTopologySubtopology) -> Iterator[str]:
    """What a subtopology reads: external topics, then repartition topics."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def topology_from_record(value: StreamsGroupTopologyValue) -> StreamsTopology:
    """Make the topology that a record holds."""
    return StreamsTopology(value.epoch, {one.subtopology_id: one for one in value.subtopologies})


def topology_record_value(
    topology: StreamsGroupHeartbeatRequestTopology,
) -> StreamsGroupTopologyValue:
    """Make the record's value of a topology that a member joins with."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            StreamsGroupTopologySubtopology(
                subtopology_id=one.subtopology_id,
                source_topics=list(one.source_topics),
                source_topic_regex=list(one.source_topic_regex),
                state_changelog_topics=_topic_infos(one.state_changelog_topics),
                repartition_sink_topics=list(one.repartition_sink_topics),
                repartition_source_topics=_topic_infos(one.repartition_source_topics),
                copartition_groups=[
                    StreamsGroupTopologyCopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in one.copartition_groups
                ],
            )
            for one in topology.subtopologies
        ],
    )


def _topic_infos(
    topics: Iterable[StreamsGroupHeartbeatRequestTopicInfo],
) -> list[StreamsGroupTopologyTopicInfo]:
    return [
        StreamsGroupTopologyTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                StreamsGroupTopologyTopicConfig(key=config.key, value=config.value)
                for config in topic.topic_configs
            ],
        )
        for topic in topics
    ]


def check_topology(value: StreamsGroupTopologyValue) -> None:
    """Refuse an invalid topology.

    Raises:
        KafkaError: STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH.
    """
    if value.epoch < 0:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "Topology epoch must be non-negative."
        )
    names = [one.subtopology_id for one in value.subtopologies]
    if len(set(names)) < len(names):
        raise _invalid("There are two subtopologies with the same id.")
    for one in value.subtopologies:
        _check_subtopology(one)


def _check_subtopology(subtopology: StreamsGroupTopologySubtopology) -> None:
    name = subtopology.subtopology_id
    for infos in (subtopology.repartition_source_topics, subtopology.state_changelog_topics):
        if len({topic.name for topic in infos}) < len(infos):
            raise _invalid(f"Subtopology {name} names an internal topic twice.")
        if any(topic.partitions < 0 for topic in infos):
            raise _invalid(f"Subtopology {name} has a topic with fewer than 0 partitions.")
    for group in subtopology.copartition_groups:
        for indexes, topics in (
            (group.source_topics, len(subtopology.source_topics)),
            (group.repartition_source_topics, len(subtopology.repartition_source_topics)),
        ):
            if any(not 0 <= index < topics for index in indexes):
                raise _invalid(f"A copartition group of subtopology {name} names a topic it lacks.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


# --- descriptions ---


def describe_topology(topology: StreamsTopology) -> StreamsGroupDescribeTopology:
    """Describe a topology as the members gave it."""
    return StreamsGroupDescribeTopology(
        epoch=topology.epoch,
        subtopologies=[
            StreamsGroupDescribeSubtopology(
                subtopology_id=name,
                source_topics=sorted(one.source_topics),
                repartition_sink_topics=sorted(one.repartition_sink_topics),
                state_changelog_topics=_describe_topics(one.state_changelog_topics),
                repartition_source_topics=_describe_topics(one.repartition_source_topics),
            )
            for name, one in sorted(topology.subtopologies.items())
        ],
    )


def _describe_topics(
    topics: Iterable[StreamsGroupTopologyTopicInfo],
) -> list[StreamsGroupDescribeTopicInfo]:
    return [
        StreamsGroupDescribeTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                StreamsGroupDescribeKeyValue(key=config.key, value=config.value)
                for config in topic.topic_configs
            ],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]
