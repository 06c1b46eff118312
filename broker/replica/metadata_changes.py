"""Applies the newest metadata to the replicas on this broker.

Owns: `MetadataChanges`. Rules:
1. The log of a new partition is created soon after its metadata came, in slices of time, so that
   thousands of new partitions delay no request; a request for one creates it at once
   (`hosted_replicas`).
2. While its log cannot be created (no space, say) the partition answers KAFKA_STORAGE_ERROR; each
   request and a timer try again.

Called by the metadata publisher.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.base.clock import Clock
from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.directories.unmade_logs import UnmadeLogs
from kraftrio.broker.replica.hosted_replicas import HostedReplicas
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.replica_roles import ReplicaRoles
from kraftrio.broker.replica.settings import ReplicaSettings
from kraftrio.kraft_meta.metadata.image import (
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_MAKE_SLICE_MS = 10  # how long others wait while logs of new partitions are made
_MAKE_PAUSE_MS = 1
_MAKE_RETRY_MS = 1000
_FROZEN_AT_ONCE = 250  # partitions: fewer cost the garbage collector little


class MetadataChanges:
    """See the module."""

    def __init__(
        self,
        settings: ReplicaSettings,
        hosted: HostedReplicas,
        unmade: UnmadeLogs,
        roles: ReplicaRoles,
        log_manager: LogManager,
        disk_errors: DiskErrors,
        timers: Timers,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._hosted = hosted
        self._unmade = unmade
        self._roles = roles
        self._log_manager = log_manager
        self._disk_errors = disk_errors
        self._timers = timers
        self._clock = clock
        self._make_timer: Timer | None = None
        self._unfrozen_count = 0  # partitions made since objects were last frozen

    def apply_delta(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply what the controller decided to the replicas hosted here."""
        for topic in delta.deleted_topics.values():
            self._delete_topic(topic)
        for topic_id, topic_delta in delta.changed_topics.items():
            current = image.topics_by_id.get(topic_id)
            if current is None:
                continue
            for index, partition in sorted(topic_delta.partitions.items()):
                self._apply_partition(current, index, partition)
        if delta.changed_brokers:
            for hosted in self._hosted.partitions():
                hosted.check_low_watermark()  # a dead broker is not waited for
        self._unmade.knows_cluster = True
        if self._unmade and self._make_timer is None:
            self._make_timer = self._timers.schedule(0, self._make_some)

    def update_configs(self, topics: Iterable[str] | None) -> None:
        """Give the logs of these topics (None: all) their new configuration."""
        wanted = None if topics is None else set(topics)
        for partition in self._hosted.partitions():
            topic = partition.topic_partition.topic
            if wanted is None or topic in wanted:
                config = self._settings.topic_log_config(topic)
                partition.log.set_config(config)
                partition.state.min_insync_replicas = config.min_insync_replicas
                if partition.state.advance_high_watermark(self._clock.monotonic_ms()):
                    partition.publish_high_watermark()

    def _apply_partition(self, topic: TopicImage, index: int, image: PartitionImage) -> None:
        topic_partition = TopicPartition(topic.name, index)
        partition = self._hosted.partition(topic_partition)
        if self._settings.broker_id not in image.replicas:
            self._unmade.discard(topic_partition)
            if partition is not None:  # other brokers host it from now on
                self._remove(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if partition is not None:
            self._roles.apply(partition, image)
            return
        log = self._log_manager.get_log(topic_partition)
        self._unmade.add(topic_partition, topic, image)
        if log is not None and log.topic_id == topic.topic_id:
            self._hosted.make(topic_partition)

    def _make_some(self) -> None:
        """Create logs of new partitions for a slice of time; the timer comes back for the rest."""
        self._make_timer = None
        end_ms = self._clock.monotonic_ms() + _MAKE_SLICE_MS
        delay_ms = _MAKE_PAUSE_MS
        for topic_partition in self._unmade:
            if self._clock.monotonic_ms() >= end_ms:
                break
            try:
                self._hosted.make(topic_partition)
                self._unfrozen_count += 1
            except KafkaError as error:
                self._disk_errors.report(topic_partition, "make the log", error)
                delay_ms = _MAKE_RETRY_MS
        if self._unfrozen_count >= _FROZEN_AT_ONCE:
            self._settings.freeze_objects()
            self._unfrozen_count = 0
        if self._unmade:
            self._make_timer = self._timers.schedule(delay_ms, self._make_some)

    def _delete_topic(self, topic: TopicImage) -> None:
        for index in sorted(topic.partitions):
            topic_partition = TopicPartition(topic.name, index)
            self._unmade.discard(topic_partition, topic.topic_id)
            partition = self._hosted.partition(topic_partition)
            if partition is not None and partition.topic_id == topic.topic_id:
                self._remove(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _remove(self, partition: Partition, code: ErrorCode) -> None:
        """Remove a replica and its log; `code` answers the requests that wait on it."""
        self._hosted.remove(partition.topic_partition)
        self._roles.retire(partition, code)
        self._log_manager.delete_log(partition.topic_partition, self._clock.wall_ms())
