"""Takes each new metadata image to the parts of the broker, in one fixed order.

The order matters: look-ups first, so that all that is called next sees the new cluster; then
settings; then replicas, which may start or stop leading or following; then fetchers, whose leaders
may have come back; then coordinators, which live on the replicas of their internal topics.

Called by the quorum service for every committed batch of metadata records, on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.metadata_changes import MetadataChanges
from kraftrio.broker.replica.quota import ReplicationQuota
from kraftrio.kraft_meta.metadata.image import BROKER, TOPIC, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.quota_image import QuotaChanges, QuotaEntity


class TopicCoordinator(Protocol):
    """What follows the leaders of an internal topic."""

    def elect(self, partition: int, leader_epoch: int) -> None: ...
    def resign(self, partition: int) -> None: ...
    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None: ...
    def on_topics_changed(self, names: Collection[str]) -> None: ...


class ConnectedToBrokers(Protocol):
    """What keeps connections to other brokers."""

    def metadata_changed(self) -> None:
        """Brokers may have moved, come or gone."""


class FollowsClientQuotas(Protocol):
    """What holds clients to their quotas."""

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None], /) -> None:
        """Take over all values of some entities as they are now; None: they have none."""


class Quotas(NamedTuple):
    """What moves slowly, and what holds clients to their quotas."""

    replication: Sequence[ReplicationQuota]
    clients: Sequence[FollowsClientQuotas]


class MetadataPublisher:
    """Applies (delta, image) to one broker.

    Args:
        coordinators: by the internal topic whose partitions they serve.
        when_applied: called last, when the whole broker acts by the image.
    """

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        dynamic_config: DynamicConfig,
        replicas: MetadataChanges,
        coordinators: Mapping[str, TopicCoordinator],
        connected: Sequence[ConnectedToBrokers],
        quotas: Quotas,
        when_applied: Callable[[MetadataDelta, MetadataImage], object],
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._dynamic_config = dynamic_config
        self._replicas = replicas
        self._coordinators = coordinators
        self._connected = connected
        self._quotas = quotas
        self._when_applied = when_applied
        self.applied_offset = -1

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply one image; when this returns the whole broker acts by it."""
        self._metadata.image = image
        self._publish_configs(delta, image)
        if changed := delta.part(QuotaChanges).changed:
            for quota in self._quotas.clients:
                quota.change(changed)
        self._replicas.apply_delta(delta, image)
        if delta.changed_brokers:
            for connected in self._connected:
                connected.metadata_changed()
        self._publish_coordinators(delta)
        if delta.deleted_topics:
            deleted = {topic.name: topic.topic_id for topic in delta.deleted_topics.values()}
            for coordinator in self._coordinators.values():
                coordinator.on_topics_deleted(deleted)
        reshaped = _reshaped_topics(delta)
        if reshaped:
            for coordinator in self._coordinators.values():
                coordinator.on_topics_changed(reshaped)
        self.applied_offset = image.offset
        self._when_applied(delta, image)

    def _publish_configs(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if any(resource.type == BROKER for resource in delta.changed_configs):
            self._dynamic_config.on_image(image)
            for quota in self._quotas.replication:
                rate = self._dynamic_config.dynamic_value(quota.direction.rate_config)
                assert isinstance(rate, int)
                quota.set_rate(rate)
            self._replicas.update_configs(None)
        topics = [r.name for r in delta.changed_configs if r.type == TOPIC]
        for topic in topics:
            for quota in self._quotas.replication:
                quota.set_topic(topic, image.config(TOPIC, topic))
        if topics:
            self._replicas.update_configs(topics)

    def _publish_coordinators(self, delta: MetadataDelta) -> None:
        """Elect and resign by who leads the partitions of the coordinators' topics now."""
        for topic in delta.deleted_topics.values():
            coordinator = self._coordinators.get(topic.name)
            if coordinator is not None:
                for index in sorted(topic.partitions):
                    coordinator.resign(index)
        for topic_delta in delta.changed_topics.values():
            coordinator = self._coordinators.get(topic_delta.name)
            if coordinator is None:
                continue
            for index, partition in sorted(topic_delta.partitions.items()):
                previous = topic_delta.previous_partition(index)
                if partition.leader == self._broker_id:
                    if previous is None or previous.leader_epoch != partition.leader_epoch:
                        coordinator.elect(index, partition.leader_epoch)
                elif previous is not None and previous.leader == self._broker_id:
                    coordinator.resign(index)


def _reshaped_topics(delta: MetadataDelta) -> list[str]:
    """The topics that are new or gone, or have new partitions or other replicas.

    Leaders and ISRs change far more often, and who assigns partitions does not ask for them.
    """
    names = {topic.name: None for topic in delta.deleted_topics.values()}
    for topic_delta in delta.changed_topics.values():
        for index, partition in topic_delta.partitions.items():
            previous = topic_delta.previous_partition(index)
            if previous is None or previous.replicas != partition.replicas:
                names[topic_delta.name] = None
                break
    return list(names)
