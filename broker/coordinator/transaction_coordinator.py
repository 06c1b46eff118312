"""The transaction coordinator of a broker: a runtime whose shards hold transactional ids.

Built here with what its shards need from outside: the marker sender, which notifies it of
transactions whose markers are all written, and producer ids.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.marker_sender import MarkerSender
from kraftrio.broker.coordinator.ports import Replicas
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.coordinator.transactions.ports import (
    TakeProducerId,
    TransactionEnd,
    TransactionProperties,
)
from kraftrio.broker.coordinator.transactions.shard import TransactionShard
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import SchedulerPort
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.compression import Compression
from kraftrio.wire.topic_names import TRANSACTION_STATE

TransactionCoordinator: TypeAlias = CoordinatorRuntime[TransactionShard]


class TransactionCoordinatorProperties(TransactionProperties, Protocol):
    """What the coordinator asks of the broker's configuration, which fits as it is."""

    @property
    def transaction_state_log_num_partitions(self) -> int: ...
    @property
    def transaction_state_log_load_buffer_size(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...


def transaction_coordinator(
    properties: TransactionCoordinatorProperties,
    markers: MarkerSender,
    take_producer_id: TakeProducerId,
    *,
    replicas: Replicas,
    timers: SchedulerPort,
    clock: Clock,
    metadata: MetadataCache,
) -> TransactionCoordinator:
    """Make the transaction coordinator of a broker."""
    settings = CoordinatorSettings(
        name="transactions",
        topic=TRANSACTION_STATE,
        default_partition_count=properties.transaction_state_log_num_partitions,
        load_buffer_size=properties.transaction_state_log_load_buffer_size,
        commit_timeout_ms=properties.request_timeout_ms,
        compression=Compression.NONE,
    )

    def new_shard(partition: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            partition,
            leader_epoch,
            properties,
            markers=markers,
            take_producer_id=take_producer_id,
            transaction_version=lambda: metadata.image.transaction_version,
        )

    coordinator = CoordinatorRuntime(
        settings,
        new_shard,
        replicas=replicas,
        timers=timers,
        clock=clock,
        metadata=metadata,
    )
    markers.when_written(lambda end: _complete(coordinator, end))
    return coordinator


def _complete(coordinator: TransactionCoordinator, end: TransactionEnd) -> Deferred[ErrorCode]:
    """Complete a transaction whose markers are all written.

    Where this broker stopped leading its partition meanwhile, the next leader does that.
    """
    return coordinator.write(
        end.transactional_id,
        lambda shard, now: shard.markers_written(
            end.transactional_id, end.producer_id, end.producer_epoch, now
        ),
        lambda code: code,
    )
