"""The topics that streams groups need, as the newest metadata has them. Called by heartbeats."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.streams.topology.configured_topology import (
    ConfiguredTopology,
    configure,
)
from kraftrio.broker.coordinator.groups.streams.topology.topology import StreamsTopology
from kraftrio.broker.metadata.cache import MetadataCache


class GroupTopics:
    """See the module."""

    def __init__(self, metadata: MetadataCache, hashes: TopicHashes) -> None:
        self._metadata = metadata
        self._hashes = hashes

    def partition_count(self, name: str) -> int | None:
        """How many partitions a topic has; None: there is no such topic."""
        topic = self._metadata.topic(name)
        return None if topic is None else topic.partition_count

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic that has an id now."""
        return self._metadata.topic_name(topic_id)

    def hash_of(self, topology: StreamsTopology) -> int:
        """The hash of those topics that a topology needs and that exist."""
        return self._hashes.of_group(topology.required_topics)

    def configure(self, topology: StreamsTopology) -> ConfiguredTopology:
        """Look at the topics of a topology; KafkaError as `configured_topology.configure`."""
        return configure(topology, self.partition_count)
