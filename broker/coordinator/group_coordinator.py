"""The group coordinator of a broker: a runtime whose shards hold groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kraftrio.base.clock import Clock
from kraftrio.broker.coordinator.groups.events import group_events
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.groups.shard.kinds import group_kinds
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.coordinator.ports import Replicas
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.coordinator.share_initializer import Codes, ShareStateInitializer
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import SchedulerPort
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.compression import Compression
from kraftrio.wire.topic_names import CONSUMER_OFFSETS

GroupCoordinator: TypeAlias = CoordinatorRuntime[GroupShard]


def group_coordinator(
    properties: GroupProperties,
    group_settings: GroupSettingsPort,
    new_uuid: Callable[[], str],
    new_member_id: Callable[[], str],
    initializer: ShareStateInitializer,
    *,
    replicas: Replicas,
    timers: SchedulerPort,
    clock: Clock,
    metadata: MetadataCache,
) -> GroupCoordinator:
    """Make the group coordinator of a broker.

    Args:
        group_settings: of single groups.
        new_uuid: makes the part of a classic member's id that no other has.
        new_member_id: makes ids of members of consumer groups.
        initializer: has the states of share groups initialized.
    """
    settings = CoordinatorSettings(
        name="groups",
        topic=CONSUMER_OFFSETS,
        default_partition_count=properties.offsets_topic_num_partitions,
        load_buffer_size=properties.offsets_load_buffer_size,
        commit_timeout_ms=properties.offsets_commit_timeout_ms,
        compression=Compression(properties.offsets_topic_compression_codec),
    )
    kinds = group_kinds(properties, group_settings, new_uuid, new_member_id, metadata, initializer)
    coordinator: GroupCoordinator = CoordinatorRuntime(
        settings,
        lambda _partition, _leader_epoch: GroupShard(properties, kinds),
        replicas=replicas,
        timers=timers,
        clock=clock,
        metadata=metadata,
    )
    coordinator.describe_outcomes(
        lambda shard, outcome, is_unasked: group_events(
            shard.groups, outcome, by_deadline=is_unasked
        )
    )
    initializer.when_initialized(
        lambda states, codes: _note_initialized(coordinator, states, codes)
    )
    return coordinator


def _note_initialized(
    coordinator: GroupCoordinator, states: StatesToInitialize, codes: Codes
) -> None:
    """Note which states were initialized, and which were not.

    Where this broker stopped leading the group's partition meanwhile, a heartbeat asks again.
    """
    by_success: dict[bool, dict[bytes, frozenset[int]]] = {True: {}, False: {}}
    for (topic_id, index), code in codes.items():
        partitions = by_success[code is ErrorCode.NONE]
        partitions[topic_id] = partitions.get(topic_id, frozenset()) | {index}
    group_id = states.group_id
    if by_success[True]:
        coordinator.write(
            group_id,
            lambda shard, now: shard.share.states.initialized(group_id, by_success[True], now),
            lambda code: code,
        )
    if by_success[False]:
        coordinator.write(
            group_id,
            lambda shard, now: shard.share.states.not_initialized(group_id, by_success[False], now),
            lambda code: code,
        )
