"""What a client knows about its cluster: an immutable snapshot, and how news change it.

Owns `ClusterMetadata`. Rules:
1. A snapshot never changes; `updated` and `with_leader` return another. Readers may keep one.
2. A partition's leader epoch never goes back while its topic has the same id: older news about a
   partition is ignored, the rest of the same response counts (as Kafka's Metadata does).
3. A topic that was deleted and re-created has another id, and its leader epochs begin again. An id
   that was replaced never comes back: what a broker that is behind says of it is ignored.
4. A topic that was asked for and cannot be described has no partitions and an error code; the id
   is the last one that was seen.

Pure. Called by: `cluster`; read by every client. KIP-320, KIP-516, KIP-951; protocol guide,
"Metadata".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftrio.wire.primitives import ZERO_UUID

_KEPT_FORMER_IDS = 10  # a broker that is further behind than that many topics of one name


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where clients reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition; `leader_id` is -1 when it has no leader."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic, its partitions in order; with an error there are none.

    Attributes:
        topic_id: zeros where brokers are too old to know.
        former_ids: of the topics that had its name before, as far as they were seen; newest last.
    """

    name: str
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    error_code: ErrorCode = ErrorCode.NONE
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)
    former_ids: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The cluster as of one moment; `version` grows with each change."""

    version: int = 0
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return (node_id, leader_epoch) of the partition's leader; None when there is none."""
        found = self.partition(topic, partition)
        if found is None or found.leader_id < 0:
            return None
        return found.leader_id, found.leader_epoch

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Return what is known about a partition."""
        described = self.topics.get(topic)
        return None if described is None else described.partitions.get(partition)

    def topic_id(self, topic: str) -> bytes:
        """Return a topic's id; zeros while none is known."""
        described = self.topics.get(topic)
        return ZERO_UUID if described is None else described.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic.name
        return None

    def updated(
        self, response: MetadataResponse, keep: Collection[str] | None = None
    ) -> ClusterMetadata:
        """Return the snapshot after a Metadata response.

        Args:
            keep: topics to keep although the response does not name them; None: all.
        """
        topics = {
            name: topic for name, topic in self.topics.items() if keep is None or name in keep
        }
        for reported in response.topics:
            if reported.name is not None:
                topics[reported.name] = _topic(
                    reported.name, reported, self.topics.get(reported.name)
                )
        return ClusterMetadata(
            version=self.version + 1,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers={
                broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            },
            topics=topics,
        )

    def with_leader(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        leader_epoch: int,
        endpoints: Collection[BrokerAddress] = (),
        *,
        topic_id: bytes = ZERO_UUID,
    ) -> ClusterMetadata | None:
        """Return the snapshot after a broker named a newer leader (KIP-951); None: not news.

        Args:
            topic_id: of the topic that the broker was asked about: epochs of one that had the same
                name before say nothing.
        """
        known = self.partition(topic, partition)
        if known is None or leader_id < 0 or leader_epoch <= known.leader_epoch:
            return None
        if is_another(topic_id, self.topic_id(topic)):
            return None
        brokers = {**self.brokers, **{address.node_id: address for address in endpoints}}
        if leader_id not in brokers:
            return None
        described = self.topics[topic]
        partitions = {
            **described.partitions,
            partition: replace(known, leader_id=leader_id, leader_epoch=leader_epoch),
        }
        return replace(
            self,
            version=self.version + 1,
            brokers=brokers,
            topics={**self.topics, topic: replace(described, partitions=partitions)},
        )


def is_another(topic_id: bytes, other_id: bytes) -> bool:
    """Whether two ids are those of different topics; zeros, an id not known, are of any."""
    return topic_id != other_id and ZERO_UUID not in (topic_id, other_id)


def _topic(
    name: str, reported: MetadataResponseTopic, known: TopicMetadata | None
) -> TopicMetadata:
    code, topic_id = reported.error_code, reported.topic_id
    if known is None:
        known = TopicMetadata(name, topic_id)
    former_ids = known.former_ids
    if topic_id in former_ids:
        return known
    if is_another(topic_id, known.topic_id):
        former_ids = (*former_ids, known.topic_id)[-_KEPT_FORMER_IDS:]
        known = TopicMetadata(name, topic_id)
    partitions = {}
    if code == ErrorCode.NONE:
        for item in sorted(reported.partitions, key=lambda item: item.partition_index):
            before = known.partitions.get(item.partition_index)
            partitions[item.partition_index] = _partition(item, before)
    elif topic_id == ZERO_UUID:
        topic_id = known.topic_id
    return TopicMetadata(name, topic_id, reported.is_internal, code, partitions, former_ids)


def _partition(
    reported: MetadataResponsePartition, known: PartitionMetadata | None
) -> PartitionMetadata:
    if known is not None and reported.leader_epoch < known.leader_epoch:
        return known
    return PartitionMetadata(
        reported.partition_index,
        reported.leader_id,
        reported.leader_epoch,
        tuple(reported.replica_nodes),
        tuple(reported.isr_nodes),
        tuple(reported.offline_replicas),
    )
