"""Puts together the coordinators of one broker, and what they have to do with other brokers.

Owns nothing but the wiring; attributes are what `services`, `broker_handlers` and the broker's role
use.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.base.deferred import Deferred
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.group_settings import GroupSettings
from kraftrio.broker.controller.channel import ControllerChannel
from kraftrio.broker.controller.producer_ids import ProducerIdManager
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator, group_coordinator
from kraftrio.broker.coordinator.marker_sender import MarkerSender
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.share_coordinator import ShareCoordinator, share_coordinator
from kraftrio.broker.coordinator.share_initializer import ShareStateInitializer
from kraftrio.broker.coordinator.transaction_coordinator import (
    TransactionCoordinator,
    transaction_coordinator,
)
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.context import NodeContext
from kraftrio.broker.node.wiring.replication import Replication
from kraftrio.broker.peers.broker_links import BrokerLinks
from kraftrio.broker.peers.latest_offsets import LatestOffsets
from kraftrio.broker.peers.local_calls import LocalCalls
from kraftrio.broker.peers.share_state_client import ShareStateClient
from kraftrio.broker.replica.verification.coordinator_asker import CoordinatorAsker
from kraftrio.broker.replica.verification.end_waits import EndWaits
from kraftrio.broker.replica.verification.verification import TransactionVerification
from kraftrio.broker.server.slices.sliced_work import SlicedWork
from kraftrio.kraft_meta.metadata.image import GROUP
from kraftrio.kraft_meta.quorum.active_controller import new_uuid
from kraftrio.net.link import LinkSettings
from kraftrio.wire.messages.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftrio.wire.primitives import TopicPartition, uuid_to_text

_ALLOCATE_PRODUCER_IDS_VERSION = 0
_DIAL_BACKOFF = ExponentialBackoff(20, 1000)


class Coordination:
    """See the module.

    Attributes:
        links: the ways to other brokers, for `run` and `metadata_changed`; by their use.
        group_settings: the settings of single groups.
        auto_topics: makes the coordinators' topics, among others.
    """

    def __init__(
        self,
        node: NodeContext,
        metadata: MetadataCache,
        channel: ControllerChannel,
        replication: Replication,
        sliced_work: SlicedWork,
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._channel = channel
        self._replica_manager = replication.replica_manager
        self._replicas = replication.replica_manager.led
        self.auto_topics = AutoTopicCreator(node.dynamic, metadata, channel)
        config = node.config
        self.local_calls = LocalCalls(
            sliced_work, _client_id(config.node_id), config.inter_broker_listener_name
        )
        self.links: dict[str, BrokerLinks] = {}
        self.producer_ids = ProducerIdManager(
            config.node_id, lambda: channel.broker_epoch, self._allocate_producer_ids
        )
        self.group_settings = GroupSettings(
            lambda: node.dynamic.current, lambda group_id: metadata.image.config(GROUP, group_id)
        )
        self.share = self._share()
        self.share_state = self._share_state()
        self.initializer = ShareStateInitializer(self.share_state)
        self.groups = self._groups()
        self.markers = MarkerSender(
            self.link_brokers("markers"),
            metadata,
            node.timers,
            node.environment.clock,
            config.request_timeout_ms,
        )
        self.transactions = self._transactions()
        self.latest_offsets = LatestOffsets(
            self.link_brokers("latest-offsets"), metadata, config.request_timeout_ms
        )
        self.verification = self._verification()
        self._replicas.gate = self.verification

    @property
    def by_topic(self) -> Mapping[str, CoordinatorRuntime[Any]]:
        """The coordinators by the internal topic whose leaders they are."""
        return {one.topic: one for one in (self.groups, self.transactions, self.share)}

    def link_brokers(self, use: str) -> BrokerLinks:
        """Give the ways to other brokers for a use."""
        config, environment = self._node.config, self._node.environment
        connect_timeout_ms = config.socket_connection_setup_timeout_ms
        links = self.links[use] = BrokerLinks(
            use,
            config.node_id,
            self._metadata,
            self.local_calls,
            self._node.security.brokers,
            config.inter_broker_listener_name,
            LinkSettings(
                client_id=f"{_client_id(config.node_id)}-{use}",
                connect_timeout=ExponentialBackoff(connect_timeout_ms, connect_timeout_ms),
                backoff=_DIAL_BACKOFF,
            ),
            environment.rng,
        )
        return links

    def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Deferred[AllocateProducerIdsResponse]:
        return self._channel.submit(request, api_version=_ALLOCATE_PRODUCER_IDS_VERSION)

    def _groups(self) -> GroupCoordinator:
        node = self._node
        rng = node.environment.rng
        return group_coordinator(
            node.config,
            self.group_settings,
            lambda: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            lambda: uuid_to_text(new_uuid(rng)),
            self.initializer,
            replicas=self._replicas,
            timers=node.timers,
            clock=node.environment.clock,
            metadata=self._metadata,
        )

    def _transactions(self) -> TransactionCoordinator:
        node = self._node
        return transaction_coordinator(
            node.config,
            self.markers,
            self.producer_ids.take_producer_id,
            replicas=self._replicas,
            timers=node.timers,
            clock=node.environment.clock,
            metadata=self._metadata,
        )

    def _share(self) -> ShareCoordinator:
        node, replica_manager = self._node, self._replica_manager

        def prune(topic_partition: TopicPartition, offset: int) -> None:
            partition = replica_manager.hosted.leader(topic_partition)
            replica_manager.deletions.delete_records(partition, offset)

        return share_coordinator(
            node.config,
            prune,
            replicas=self._replicas,
            timers=node.timers,
            clock=node.environment.clock,
            metadata=self._metadata,
        )

    def _share_state(self) -> ShareStateClient:
        node, topic = self._node, self.share.topic
        return ShareStateClient(
            self.link_brokers("share-state"),
            partial(self._coordinator_of, self.share),
            lambda: self.auto_topics.create([topic]),
            node.timers,
            node.environment.clock,
            node.config.request_timeout_ms,
        )

    def _coordinator_of(self, coordinator: CoordinatorRuntime[Any], key: str) -> int | None:
        """The broker that coordinates a key; None: there is none now."""
        index = coordinator.partition_for(key)
        partition = self._metadata.partition(coordinator.topic, index)
        return None if partition is None or partition.leader < 0 else partition.leader

    def _verification(self) -> TransactionVerification:
        node, metadata = self._node, self._metadata

        def settings() -> BrokerConfig:
            return node.dynamic.current

        return TransactionVerification(
            self._replicas,
            metadata,
            CoordinatorAsker(
                self.link_brokers("verification"),
                partial(self._coordinator_of, self.transactions),
                node.config.request_timeout_ms,
            ),
            EndWaits(self.markers, settings, node.timers, node.environment.clock),
            settings,
            node.environment.clock,
        )


def _client_id(node_id: int) -> str:
    return f"broker-{node_id}"
