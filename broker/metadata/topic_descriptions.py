"""How topics and partitions look to a client: Metadata's and DescribeTopicPartitions' view of the
image.

Owns the rules both APIs share: which leader a client gets, and when it gets none.
- A leader that is fenced or gone does not count: LEADER_NOT_AVAILABLE.
- A leader that has no listener of the name the client came in by cannot be reached by it:
  LISTENER_NOT_FOUND from Metadata 6 on, LEADER_NOT_AVAILABLE before (KIP-103).
- A replica is offline on a broker that is fenced, unknown or without that listener, and in a log
  directory that has failed.
- Metadata 0 shows live replicas only, and REPLICA_NOT_AVAILABLE when some are missing.
Called by `api/metadata` and `api/topic_partitions`. Functions of the image; `TopicDescriptions`
remembers their results.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.broker.server.slices.sliced_sets import in_order
from kraftrio.kraft_meta.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from kraftrio.wire.codec.lazy_arrays import each_once
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    NO_AUTHORIZED_OPERATIONS,
    DescribeTopicPartitionsResponsePartition,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftrio.wire.topic_names import INTERNAL_TOPICS


class _Leader(NamedTuple):
    """Whom a client is sent to."""

    error_code: ErrorCode
    leader_id: int


def _leader(
    image: MetadataImage, partition: PartitionImage, listener_name: str, *, name_missing: bool
) -> _Leader:
    broker = image.broker(partition.leader) if partition.leader != NO_LEADER else None
    if broker is not None and not broker.fenced:
        if broker.endpoint(listener_name) is not None:
            return _Leader(ErrorCode.NONE, partition.leader)
        if name_missing:
            return _Leader(ErrorCode.LISTENER_NOT_FOUND, NO_LEADER)
    return _Leader(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)


def _offline(image: MetadataImage, partition: PartitionImage, listener_name: str) -> list[int]:
    offline = []
    for broker_id in partition.replicas:
        broker = image.broker(broker_id)
        if (
            broker is None
            or broker.fenced
            or broker.endpoint(listener_name) is None
            or not broker.has_online(partition.directory(broker_id))
        ):
            offline.append(broker_id)
    return offline


def metadata_partition(
    image: MetadataImage, index: int, partition: PartitionImage, listener_name: str, version: int
) -> MetadataResponsePartition:
    """Describe a partition to a client of a listener."""
    code, leader_id = _leader(image, partition, listener_name, name_missing=version >= 6)
    offline = _offline(image, partition, listener_name)
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version == 0 and offline:
        replicas = [one for one in replicas if one not in offline]
        isr = [one for one in isr if one not in offline]
        if code is ErrorCode.NONE:
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def metadata_topic(
    image: MetadataImage,
    topic: TopicImage,
    listener_name: str,
    version: int,
    operations: int = NO_AUTHORIZED_OPERATIONS,
) -> MetadataResponseTopic:
    """Describe a topic with all its partitions to a client of a listener."""
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=each_once(
            lambda index: metadata_partition(
                image, index, topic.partitions[index], listener_name, version
            ),
            sorted(topic.partitions),
        ),
        topic_authorized_operations=operations,
    )


def topics_in_order(image: MetadataImage) -> Slices[list[TopicImage]]:
    """List all topics by name."""
    topics = []
    for name in (yield from in_order(image.topics_by_name)):
        topics.append(image.topics_by_name[name])
        yield
    return topics


class TopicDescriptions:
    """Metadata's descriptions of topics, kept while neither the topic nor a broker has changed.

    Images share equal parts, so identity shows what has not changed. Responses share descriptions,
    so they must not be changed.
    """

    def __init__(self) -> None:
        self._image = MetadataImage()
        self._topics: dict[_View, dict[bytes, tuple[TopicImage, MetadataResponseTopic]]] = {}
        self._every: dict[_View, list[MetadataResponseTopic]] = {}

    def topic(
        self,
        image: MetadataImage,
        topic: TopicImage,
        listener_name: str,
        version: int,
        operations: int = NO_AUTHORIZED_OPERATIONS,
    ) -> MetadataResponseTopic:
        """Describe a topic as metadata_topic does."""
        self._follow(image)
        view = _View(listener_name, _kind_of(version), operations)
        kept = self._topics.setdefault(view, {})
        found = kept.get(topic.topic_id)
        if found is not None and found[0] is topic:
            return found[1]
        if len(kept) > 2 * len(image.topics_by_id):
            kept.clear()  # it has topics that were deleted
        description = metadata_topic(image, topic, listener_name, version, operations)
        kept[topic.topic_id] = (topic, description)
        return description

    def known(
        self, image: MetadataImage, listener_name: str, version: int
    ) -> list[MetadataResponseTopic] | None:
        """Give the descriptions of all topics, if they were made already."""
        self._follow(image)
        return self._every.get(_View(listener_name, _kind_of(version), NO_AUTHORIZED_OPERATIONS))

    def every_topic(
        self, image: MetadataImage, listener_name: str, version: int
    ) -> Slices[list[MetadataResponseTopic]]:
        """Describe all topics, by name."""
        found = self.known(image, listener_name, version)
        if found is not None:
            return found
        view = _View(listener_name, _kind_of(version), NO_AUTHORIZED_OPERATIONS)
        topics = yield from topics_in_order(image)
        found = each_once(lambda topic: self.topic(image, topic, listener_name, version), topics)
        if self._image is image:
            self._every[view] = found
        return found

    def _follow(self, image: MetadataImage) -> None:
        previous, self._image = self._image, image
        if previous is image:
            return
        self._every.clear()
        if previous.brokers is not image.brokers:
            self._topics.clear()


class _View(NamedTuple):
    """What a description depends on besides the image."""

    listener_name: str
    kind: int
    operations: int


def _kind_of(version: int) -> int:
    """Versions of one kind are described alike."""
    return (version > 0) + (version >= 6)


def described_partition(
    image: MetadataImage, index: int, partition: PartitionImage, listener_name: str
) -> DescribeTopicPartitionsResponsePartition:
    """Describe a partition for DescribeTopicPartitions; eligible leaders are not kept (KIP-966).

    A missing leader is not an error here, as in Kafka: it is -1 and that is all.
    """
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=index,
        leader_id=_leader(image, partition, listener_name, name_missing=True).leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=_offline(image, partition, listener_name),
    )
