"""The broker's current view of the cluster: the newest published metadata image, and look-ups in
it.

The metadata publisher replaces the image; handlers read it.  An image never changes, so a reader
that keeps one sees a consistent cluster.
"""

from __future__ import annotations

from kraftrio.kraft_meta.metadata.image import Endpoint, MetadataImage, PartitionImage, TopicImage
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import ZERO_UUID


class MetadataCache:
    """Holds `image`; the look-ups answer from it."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = MetadataImage()

    def topic(self, name: str) -> TopicImage | None:
        return self.image.topics_by_name.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic that has this id now."""
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> bytes:
        """The id of the topic that has this name now; ZERO_UUID if there is none."""
        topic = self.image.topics_by_name.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def partition(self, name: str, index: int) -> PartitionImage | None:
        topic = self.image.topics_by_name.get(name)
        return None if topic is None else topic.partitions.get(index)

    def check_hosted(self, name: str, index: int) -> KafkaError:
        """The error for a partition that this broker does not lead.

        NOT_LEADER_OR_FOLLOWER while the partition exists anywhere in the cluster, so that clients
        look for its leader; UNKNOWN_TOPIC_OR_PARTITION otherwise.
        """
        if self.partition(name, index) is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Where clients of a listener reach a broker; None if it has no such listener."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(listener_name)
