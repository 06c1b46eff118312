"""A transaction coordinator with its handlers over logs in memory; markers are written at once.

`links.written` has the markers, in order; with `links.holds` they wait for `links.write_all`.
"""

from __future__ import annotations

from dataclasses import replace
from types import GeneratorType
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.find_coordinator import TRANSACTION_KEY, FindCoordinatorHandler
from kraftrio.broker.api.transactions.coordination import TransactionHandlers
from kraftrio.broker.api.transactions.listing import TransactionListingHandlers
from kraftrio.broker.controller.producer_ids import ProducerIdManager
from kraftrio.broker.coordinator.group_coordinator import group_coordinator
from kraftrio.broker.coordinator.marker_sender import MarkerSender
from kraftrio.broker.coordinator.share_initializer import ShareStateInitializer
from kraftrio.broker.coordinator.transaction_coordinator import transaction_coordinator
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.slices.sliced_work import do_at_once
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.messages.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftrio.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.protocol.api import APIS
from kraftrio.wire.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.unit.broker.coordinator.broker_stand_in import (
    ClusterMetadata,
    FakeReplicas,
    ManualTimers,
    NoShareCoordinators,
)
from tests.unit.broker.coordinator.groups.group_context import Properties as GroupProperties
from tests.unit.broker.coordinator.groups.group_context import Settings
from tests.unit.broker.coordinator.transactions.transaction_context import Properties

BROKER_ID = 1
ID = "app"


class TransactionProperties(Properties):
    """Kafka's defaults, but for a small topic."""

    transaction_state_log_num_partitions = 2
    transaction_state_log_load_buffer_size = 1 << 20
    request_timeout_ms = 30_000


class WritingLinks:
    """Writes markers on every broker."""

    broker_id = BROKER_ID

    def __init__(self) -> None:
        self.written: list[tuple[int, bool]] = []  # producer id, committed?
        self.held: list[tuple[WriteTxnMarkersRequest, Deferred[Any]]] = []
        self.holds = False

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.held.append((request, answer))
        if not self.holds:
            self.write_all()
        return answer

    def write_all(self) -> None:
        held, self.held = self.held, []
        for request, answer in held:
            self.written += [(one.producer_id, one.transaction_result) for one in request.markers]
            answer.complete(_written(request))


class TransactionStandIn:
    """See the module; leads every partition unless it is told not to."""

    def __init__(self, *, lead: bool = True, transaction_version: int = 2) -> None:
        self.properties = TransactionProperties()
        self.timers = ManualTimers()
        self.replicas = FakeReplicas(self.timers)
        self.metadata = ClusterMetadata()
        self._set_transaction_version(transaction_version)
        self.metadata.add_topic("t", b"t" * 16, 3)
        self.metadata.add_topic("u", b"u" * 16, 1)
        self.metadata.add_topic(CONSUMER_OFFSETS, b"_" * 16, 4)
        self.metadata.add_topic(TRANSACTION_STATE, b"-" * 16, 2)
        self.links = WritingLinks()
        self.authorizer: Authorizer = ALLOW_ALL
        self.blocks: list[Deferred[AllocateProducerIdsResponse]] = []
        self.holds_blocks = False
        self._next_block = 1000
        self._start()
        if lead:
            self.lead()

    def _set_transaction_version(self, level: int) -> None:
        image: MetadataImage = self.metadata.image
        features = image.features.set("transaction.version", level)
        self.metadata.image = replace(image, features=features)

    def _start(self) -> None:
        producer_ids = ProducerIdManager(BROKER_ID, lambda: 7, self._allocate)
        sender = MarkerSender(self.links, self.metadata, self.timers, self.timers, 30_000)
        self.sender = sender
        self.coordinator = transaction_coordinator(
            self.properties,
            sender,
            producer_ids.take_producer_id,
            replicas=self.replicas,
            timers=self.timers,
            clock=self.timers,
            metadata=self.metadata,
        )
        groups = group_coordinator(
            GroupProperties(offsets_topic_num_partitions=4),
            Settings(),
            lambda: "uuid",
            lambda: "id",
            ShareStateInitializer(NoShareCoordinators()),
            replicas=self.replicas,
            timers=self.timers,
            clock=self.timers,
            metadata=self.metadata,
        )
        self.groups = groups
        self.created_topics: list[str] = []
        self.handlers = {
            **FindCoordinatorHandler(
                {TRANSACTION_KEY: self.coordinator}, self.metadata, self.created_topics.append
            ).table(),
            **TransactionHandlers(
                self.coordinator,
                groups,
                producer_ids,
                self.metadata,
                self.properties,
                sender,
            ).table(),
            **TransactionListingHandlers(self.coordinator, self.timers).table(),
        }

    def lead(self) -> None:
        """Lead both partitions of the transactions' topic."""
        for partition in range(2):
            self.replicas.lead(partition, TRANSACTION_STATE)
            self.coordinator.elect(partition, 0)

    def _allocate(
        self, request: AllocateProducerIdsRequest
    ) -> Deferred[AllocateProducerIdsResponse]:
        self.blocks.append(Deferred())
        block = self.blocks[-1]
        if not self.holds_blocks:
            self.grant_block()
        return block

    def grant_block(self) -> None:
        start, self._next_block = self._next_block, self._next_block + 1000
        self.blocks.pop(0).complete(
            AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=1000)
        )

    # -- requests -------------------------------------------------------------------------------

    def begin(self, request: Any, version: int) -> Any:
        """Have a request handled; gives the response, or a Deferred of it."""
        api = next(one for one in APIS.values() if one.request is type(request))
        received, _ = decode(type(request), version, encode(request, version))
        client = ClientInfo("127.0.0.1", 5555, "PLAINTEXT")
        context = RequestContext(api.key, version, 1, "client", client, self.authorizer)
        response = self.handlers[api.key](received, context)
        if isinstance(response, GeneratorType):
            response = do_at_once(response).value
        return response

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Send a request by the bytes of a version, by default the newest, and read the answer."""
        if version is None:
            version = next(one for one in APIS.values() if one.request is type(request)).max_version
        response = self.begin(request, version)
        if isinstance(response, Deferred):
            response = response.value
        return decode(type(response), version, encode(response, version))[0]

    def init(self, name: str = ID, version: int = 5, **fields: Any) -> Any:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, **fields
        )
        return self.ask(request, version)

    def add(
        self, producer: Any, *topics: tuple[str, list[int]], name: str = ID, version: int = 3
    ) -> Any:
        """Add partitions as a client does."""
        return self.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in topics
                ],
            ),
            version,
        )

    def end(self, producer: Any, *, commit: bool = True, name: str = ID, version: int = 5) -> Any:
        return self.ask(
            EndTxnRequest(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=commit,
            ),
            version,
        )


def _written(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
