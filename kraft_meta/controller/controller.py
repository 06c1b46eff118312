"""The controller core: requests about the cluster in, records and responses out.

Owns: `Controller`, sans-IO, with the uncommitted image (what the metadata will be once everything
proposed so far is committed). Rules:
1. `handle` gives (records, response) and changes no hard state; `replay` of the proposed records
   is the only thing that moves the uncommitted image.
2. The response is for the shell to send once the records are committed.
3. It works only between `activate` (this node leads and has applied everything committed) and
   `deactivate` (leadership lost: the uncommitted image is dropped).
4. `next_deadline_ms` is when to call `on_deadline`, which answers with records (fencing of
   silent brokers, leaders back to preferred replicas, unclean elections where they came to be
   allowed), at most one broker or one bounded batch at a time.

Called by: quorum/active_controller.py. Kafka's counterpart: QuorumController.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftrio.kraft_meta.controller.cluster_control import ClusterControl
from kraftrio.kraft_meta.controller.configuration_control import (
    alter_configs,
    incremental_alter_configs,
)
from kraftrio.kraft_meta.controller.control import (
    UNCLEAN_ELECTION_KEY,
    ControllerConfig,
    ControllerResult,
    DecisionContext,
)
from kraftrio.kraft_meta.controller.directory_control import assign_replicas_to_dirs
from kraftrio.kraft_meta.controller.feature_control import bootstrap_records, update_features
from kraftrio.kraft_meta.controller.mutation_quota import MutationQuotas, RequestSender
from kraftrio.kraft_meta.controller.partition_index import PartitionIndex
from kraftrio.kraft_meta.controller.quota_control import alter_client_quotas
from kraftrio.kraft_meta.controller.replication_control import (
    MAX_ELECTIONS_AT_ONCE,
    alter_partition,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from kraftrio.kraft_meta.controller.security.acl_control import create_acls, delete_acls
from kraftrio.kraft_meta.controller.security.scram_control import alter_user_scram_credentials
from kraftrio.kraft_meta.controller.security.token_control import TokenControl, TokenRequest
from kraftrio.kraft_meta.controller.topics.reassignment_control import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from kraftrio.kraft_meta.controller.topics.topic_control import create_partitions, create_topics
from kraftrio.kraft_meta.controller.topics.topic_deletion import delete_topics
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.quota_image import QuotaChanges
from kraftrio.kraft_meta.metadata.records import MetadataRecord
from kraftrio.kraft_meta.raft.ports import ConfigValidator, TopicConfigs
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kraftrio.wire.messages.configs import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterUserScramCredentialsRequest,
    IncrementalAlterConfigsRequest,
)
from kraftrio.wire.messages.quorum import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from kraftrio.wire.messages.security import CreateAclsRequest, DeleteAclsRequest
from kraftrio.wire.primitives import uuid_to_text

_Handler = Callable[[Any, DecisionContext], ControllerResult]


class Controller:
    """Decides about the cluster while this node leads the quorum."""

    def __init__(
        self,
        config: ControllerConfig,
        validator: ConfigValidator,
        topic_configs: TopicConfigs,
        rng: random.Random,
        new_uuid: Callable[[], bytes],
        wall_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.image = MetadataImage()
        self.is_active = False
        self._validator = validator
        self._topic_configs = topic_configs
        self._rng = rng
        self._new_uuid = new_uuid
        self._cluster = ClusterControl(config)
        self._tokens = TokenControl(config.tokens, wall_ms)
        self.index = PartitionIndex()
        self._mutations = MutationQuotas(
            config.quota_window_num, config.quota_window_size_seconds * 1000.0
        )
        self._next_balance_ms: float | None = None
        self._unclean_elections_due_ms: float | None = None
        self._now_ms = 0.0
        self._handlers: Final[dict[type[Any], _Handler]] = {
            CreateTopicsRequest: create_topics,
            DeleteTopicsRequest: delete_topics,
            CreatePartitionsRequest: create_partitions,
            ElectLeadersRequest: elect_leaders,
            AlterPartitionReassignmentsRequest: alter_partition_reassignments,
            ListPartitionReassignmentsRequest: list_partition_reassignments,
            AlterConfigsRequest: alter_configs,
            IncrementalAlterConfigsRequest: incremental_alter_configs,
            AlterPartitionRequest: alter_partition,
            AssignReplicasToDirsRequest: assign_replicas_to_dirs,
            UpdateFeaturesRequest: update_features,
            CreateAclsRequest: create_acls,
            DeleteAclsRequest: delete_acls,
            AlterUserScramCredentialsRequest: alter_user_scram_credentials,
            TokenRequest: self._tokens.decide,
            AlterClientQuotasRequest: alter_client_quotas,
            BrokerRegistrationRequest: self._cluster.register_broker,
            BrokerHeartbeatRequest: self._cluster.heartbeat,
            UnregisterBrokerRequest: self._cluster.unregister_broker,
            AllocateProducerIdsRequest: self._cluster.allocate_producer_ids,
        }

    def activate(self, image: MetadataImage, now_ms: float) -> list[MetadataRecord]:
        """Begin to decide, from the committed image; return records to propose first."""
        assert not self.is_active
        self.is_active = True
        self.image = image
        self.index = PartitionIndex.of(image)
        self._mutations.begin(image.client_quotas)
        self._now_ms = now_ms
        self._cluster.activate(image, now_ms)
        self._tokens.activate(now_ms)
        # The former controller may have been interrupted, or configured differently.
        self._unclean_elections_due_ms = now_ms
        if self.config.auto_leader_rebalance_enable:
            self._next_balance_ms = now_ms + self._balance_interval_ms
        if image.cluster_id:
            return []
        cluster_id = self.config.cluster_id or uuid_to_text(self._new_uuid())
        return bootstrap_records(self.config, cluster_id)

    def deactivate(self) -> None:
        """Drop everything that was not committed."""
        self.is_active = False
        self.image = MetadataImage()
        self.index = PartitionIndex()
        self._next_balance_ms = self._unclean_elections_due_ms = None

    def handle(
        self,
        request: Any,
        *,
        api_version: int,
        next_offset: int,
        now_ms: float,
        sender: RequestSender | None = None,
    ) -> ControllerResult:
        """Decide on a request; `next_offset` is what the first record will get.

        A sender is named for clients with a quota of what they may change, as far as is known.

        Raises KafkaError when the request as a whole is refused.
        """
        assert self.is_active
        self._now_ms = now_ms
        self._cluster.listened(now_ms)
        context = DecisionContext(
            config=self.config,
            validator=self._validator,
            topic_configs=self._topic_configs,
            rng=self._rng,
            new_uuid=self._new_uuid,
            image=self.image,
            index=self.index,
            api_version=api_version,
            next_offset=next_offset,
            now_ms=now_ms,
            mutations=self._mutations.of(request, api_version, sender, now_ms),
        )
        result = self._handlers[type(request)](request, context)
        if context.mutations.throttle_ms:
            result.response.throttle_time_ms = context.mutations.throttle_ms
        return result

    def replay(self, records: Sequence[MetadataRecord], last_offset: int, epoch: int) -> None:
        """Move the uncommitted image by records that were just proposed."""
        assert self.is_active
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.index.update(delta)
        if changed := delta.part(QuotaChanges).changed:
            self._mutations.change(changed)
        if any(UNCLEAN_ELECTION_KEY in configs for configs in delta.changed_configs.values()):
            self._unclean_elections_due_ms = self._now_ms
        self.image = delta.apply(last_offset, epoch)

    def broker_connection_lost(
        self, broker_id: int, broker_epoch: int, now_ms: float
    ) -> list[MetadataRecord]:
        """Fence a broker that is known to be gone, ahead of the end of its session.

        Nothing happens when another incarnation took its place or it is fenced already. A broker
        that was there after all is unfenced by its next heartbeat.
        """
        if not self.is_active:
            return []
        self._now_ms = now_ms
        return self._cluster.fence(self.image, self.index, broker_id, broker_epoch)

    def next_deadline_ms(self) -> float | None:
        """Return when on_deadline has something to do."""
        if not self.is_active:
            return None
        deadlines = [
            self._cluster.next_deadline_ms(),
            self._tokens.next_deadline_ms(),
            self._next_balance_ms,
            self._unclean_elections_due_ms,
        ]
        return min((d for d in deadlines if d is not None), default=None)

    def on_deadline(self, now_ms: float) -> list[MetadataRecord]:
        """Return the records of what is due; they are replayed before the next call."""
        assert self.is_active
        self._now_ms = now_ms
        records = self._cluster.fence_expired(self.image, self.index, now_ms)
        records = records or self._tokens.expire(self.image, now_ms)
        if records:
            return records
        if _is_due(self._unclean_elections_due_ms, now_ms):
            records = elect_unclean_leaders(self.config, self.image, self.index)
            has_more = len(records) >= MAX_ELECTIONS_AT_ONCE
            self._unclean_elections_due_ms = now_ms if has_more else None
            if records:
                return records
        if _is_due(self._next_balance_ms, now_ms):
            records = balance_leaders(self.image, self.index)
            has_more = len(records) >= MAX_ELECTIONS_AT_ONCE
            self._next_balance_ms = now_ms + (0 if has_more else self._balance_interval_ms)
        return records

    @property
    def _balance_interval_ms(self) -> float:
        return self.config.leader_imbalance_check_interval_seconds * 1000.0


def _is_due(deadline_ms: float | None, now_ms: float) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
