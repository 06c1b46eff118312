"""The controller core: requests about the cluster in, records and responses out.

Owns: `Controller`, sans-IO, with the uncommitted image (what the metadata will be once everything
proposed so far is committed). Rules:
1. `handle` gives (records, response) and changes no hard state; `replay` of the proposed records
   is the only thing that moves the uncommitted image.
2. The response is for the shell to send once the records are committed.
3. It works only between `activate` (this node leads and has applied everything committed) and
   `deactivate` (leadership lost: the uncommitted image is dropped).
4. `next_deadline_ms` tells when to call `on_deadline`, which answers with records (fencing of
   silent brokers, leaders back to preferred replicas).

Called by: quorum_service.py. Kafka's counterpart: QuorumController.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftrio.kraft_meta.cluster_control import ClusterControl
from kraftrio.kraft_meta.configuration_control import alter_configs, incremental_alter_configs
from kraftrio.kraft_meta.control import Circumstances, ControllerConfig, ControllerResult
from kraftrio.kraft_meta.feature_control import bootstrap_records, update_features
from kraftrio.kraft_meta.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.ports import ConfigValidator, TopicConfigs
from kraftrio.kraft_meta.records import MetadataRecord
from kraftrio.kraft_meta.replication_control import (
    alter_partition,
    balance_leaders,
    elect_leaders,
)
from kraftrio.kraft_meta.topic_control import create_partitions, create_topics, delete_topics
from kraftrio.wire.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
)
from kraftrio.wire.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from kraftrio.wire.messages.quorum import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

_Handler = Callable[[Any, Circumstances], ControllerResult]


class Controller:
    """Decides about the cluster while this node leads the quorum."""

    def __init__(
        self,
        config: ControllerConfig,
        validator: ConfigValidator,
        topic_configs: TopicConfigs,
        rng: random.Random,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self.config = config
        self.image = MetadataImage()
        self.is_active = False
        self._validator = validator
        self._topic_configs = topic_configs
        self._rng = rng
        self._new_uuid = new_uuid
        self._cluster = ClusterControl(config)
        self._next_balance_ms: float | None = None
        self._handlers: Final[dict[type[Any], _Handler]] = {
            CreateTopicsRequest: create_topics,
            DeleteTopicsRequest: delete_topics,
            CreatePartitionsRequest: create_partitions,
            ElectLeadersRequest: elect_leaders,
            AlterConfigsRequest: alter_configs,
            IncrementalAlterConfigsRequest: incremental_alter_configs,
            AlterPartitionRequest: alter_partition,
            UpdateFeaturesRequest: update_features,
            BrokerRegistrationRequest: self._cluster.register_broker,
            BrokerHeartbeatRequest: self._cluster.heartbeat,
            UnregisterBrokerRequest: self._cluster.unregister_broker,
            AllocateProducerIdsRequest: self._cluster.allocate_producer_ids,
        }

    def activate(self, image: MetadataImage, now_ms: float) -> list[MetadataRecord]:
        """Start to reign with the committed image; return records to propose first."""
        assert not self.is_active
        self.is_active = True
        self.image = image
        self._cluster.activate(image, now_ms)
        if self.config.auto_leader_rebalance_enable:
            self._next_balance_ms = now_ms + self._balance_interval_ms
        return [] if image.cluster_id else bootstrap_records(self.config)

    def deactivate(self) -> None:
        """Drop everything that was not committed."""
        self.is_active = False
        self.image = MetadataImage()
        self._next_balance_ms = None

    def handle(
        self, request: Any, *, api_version: int, next_offset: int, now_ms: float
    ) -> ControllerResult:
        """Decide on a request; `next_offset` is what the first record will get.

        Raises KafkaError when the request as a whole is refused.
        """
        assert self.is_active
        now = Circumstances(
            config=self.config,
            validator=self._validator,
            topic_configs=self._topic_configs,
            rng=self._rng,
            new_uuid=self._new_uuid,
            image=self.image,
            api_version=api_version,
            next_offset=next_offset,
            now_ms=now_ms,
        )
        return self._handlers[type(request)](request, now)

    def replay(self, records: Sequence[MetadataRecord], last_offset: int, epoch: int) -> None:
        """Move the uncommitted image by records that were just proposed."""
        assert self.is_active
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(last_offset, epoch)

    def next_deadline_ms(self) -> float | None:
        """Return when on_deadline has something to do."""
        if not self.is_active:
            return None
        deadlines = [self._cluster.next_deadline_ms(), self._next_balance_ms]
        return min((d for d in deadlines if d is not None), default=None)

    def on_deadline(self, now_ms: float) -> list[MetadataRecord]:
        """Return the records of what fell due; they are proposed and replayed before the next."""
        assert self.is_active
        records = self._cluster.fence_expired(self.image, now_ms)
        if records:
            return records
        if self._next_balance_ms is not None and now_ms >= self._next_balance_ms:
            self._next_balance_ms = now_ms + self._balance_interval_ms
            return balance_leaders(self.image)
        return []

    @property
    def _balance_interval_ms(self) -> float:
        return self.config.leader_imbalance_check_interval_seconds * 1000.0
