"""The group coordinator of a broker: a runtime whose shards hold groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kraftrio.base.clock import Clock
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettings
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.ports import Replicas
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import SchedulerPort
from kraftrio.wire.records.compression import Compression
from kraftrio.wire.topic_names import CONSUMER_OFFSETS

GroupCoordinator: TypeAlias = CoordinatorRuntime[GroupShard]


def group_coordinator(
    properties: GroupProperties,
    group_settings: GroupSettings,
    new_uuid: Callable[[], str],
    *,
    replicas: Replicas,
    timers: SchedulerPort,
    clock: Clock,
    metadata: MetadataCache,
) -> GroupCoordinator:
    """Make the group coordinator of a broker.

    Args:
        group_settings: of single groups.
        new_uuid: makes the part of a member id that no other has.
    """
    settings = CoordinatorSettings(
        name="groups",
        topic=CONSUMER_OFFSETS,
        default_partition_count=properties.offsets_topic_num_partitions,
        load_buffer_size=properties.offsets_load_buffer_size,
        commit_timeout_ms=properties.offsets_commit_timeout_ms,
        compression=Compression(properties.offsets_topic_compression_codec),
    )
    return CoordinatorRuntime(
        settings,
        lambda _partition, _leader_epoch: GroupShard(
            properties, group_settings, new_uuid, metadata
        ),
        replicas=replicas,
        timers=timers,
        clock=clock,
        metadata=metadata,
    )
