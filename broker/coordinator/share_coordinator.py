"""The share coordinator of a broker: a runtime whose shards hold the state of share partitions.

Built here with what its shards need from outside: topics, and the deletion of records that they say
are redundant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import log_event
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.broker.coordinator.ports import Replicas
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.coordinator.share_state.ports import ShareStateProperties
from kraftrio.broker.coordinator.share_state.shard import ShareStateShard
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import SchedulerPort
from kraftrio.broker.share_state import SharePartitionKey, SharePartitionState
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.compression import Compression
from kraftrio.wire.topic_names import SHARE_GROUP_STATE

ShareCoordinator: TypeAlias = CoordinatorRuntime[ShareStateShard]

Prune: TypeAlias = Callable[[TopicPartition, int], None]
"""Deletes a partition's records below an offset; raises KafkaError if it cannot."""

_log = logging.getLogger("kraftrio.share-coordinator")


class ShareCoordinatorProperties(ShareStateProperties, Protocol):
    """What the coordinator asks of the broker's configuration, which fits as it is."""

    @property
    def share_coordinator_state_topic_num_partitions(self) -> int: ...
    @property
    def share_coordinator_state_topic_compression_codec(self) -> int: ...
    @property
    def share_coordinator_load_buffer_size(self) -> int: ...
    @property
    def share_coordinator_write_timeout_ms(self) -> int: ...


def share_coordinator(
    properties: ShareCoordinatorProperties,
    prune: Prune,
    *,
    replicas: Replicas,
    timers: SchedulerPort,
    clock: Clock,
    metadata: MetadataCache,
) -> ShareCoordinator:
    """Make the share coordinator of a broker."""
    settings = CoordinatorSettings(
        name="share-coordinator",
        topic=SHARE_GROUP_STATE,
        default_partition_count=properties.share_coordinator_state_topic_num_partitions,
        load_buffer_size=properties.share_coordinator_load_buffer_size,
        commit_timeout_ms=properties.share_coordinator_write_timeout_ms,
        compression=Compression(properties.share_coordinator_state_topic_compression_codec),
    )

    def new_shard(partition: int, _leader_epoch: int) -> ShareStateShard:
        topic_partition = TopicPartition(SHARE_GROUP_STATE, partition)
        return ShareStateShard(
            properties,
            partial(_partition_count, metadata),
            partial(_prune, prune, topic_partition),
        )

    return CoordinatorRuntime(
        settings, new_shard, replicas=replicas, timers=timers, clock=clock, metadata=metadata
    )


def ask(
    coordinator: ShareCoordinator,
    key: SharePartitionKey,
    operation: Callable[[ShareStateShard, Now], Outcome],
) -> Deferred[SharePartitionState | ErrorCode | KafkaError | None]:
    """Have a share partition's shard serve a request.

    Returns:
        What the operation says, or the KafkaError that it raises; an ErrorCode where the request
        did not reach it, or its record was not committed.
    """
    return coordinator.write(
        key.coordinator_key,
        lambda shard, now: _decide(operation, shard, now),
        lambda code: code,
    )


def _decide(
    operation: Callable[[ShareStateShard, Now], Outcome], shard: ShareStateShard, now: Now
) -> Outcome:
    try:
        return operation(shard, now)
    except KafkaError as refusal:
        return Outcome(response=refusal)


def _partition_count(metadata: MetadataCache, topic_id: bytes) -> int:
    topic = metadata.image.topics_by_id.get(topic_id)
    return 0 if topic is None else len(topic.partitions)


def _prune(prune: Prune, topic_partition: TopicPartition, offset: int) -> bool:
    """Nothing depends on it: what cannot be deleted now is deleted the next time."""
    try:
        prune(topic_partition, offset)
        return True
    except KafkaError as error:
        log_event(
            _log,
            logging.WARNING,
            "redundant records not deleted",
            partition=topic_partition,
            offset=offset,
            reason=error,
        )
        return False
