"""Metadata, DescribeCluster, DescribeTopicPartitions, ApiVersions, DescribeQuorum, UpdateFeatures,
UnregisterBroker, GetTelemetrySubscriptions.

Behaviour (Kafka's)
- Everything is answered from the metadata image of this broker; endpoints are those of the
  listener a request came in by; fenced brokers are not shown unless asked for.
- The controller that clients see is a live broker (this one when it is live): it forwards.
- Metadata creates missing topics when the client and auto.create.topics.enable allow it.
- Telemetry (KIP-714) is off: a client that asks anyway gets a subscription to nothing.
Version notes
- Metadata 0: empty topics = all; 1+: null = all, empty = none. 4: allow_auto_topic_creation.
  10: topic ids in responses; 10-11 refuse ids and null names in requests, 12 looks up by id.
- DescribeCluster 1: endpoint type (KIP-919), 2: fenced brokers. ApiVersions 3 hides features whose
  least version is 0, which clients before version 4 cannot read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.authorized_operations import cluster_operations, topic_operations
from kraftrio.broker.api.shared.endpoint_types import BROKER_ENDPOINT, refuse_endpoint_type
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.broker.metadata.topic_descriptions import (
    TopicDescriptions,
    described_partition,
    topics_in_order,
)
from kraftrio.broker.ports import ControllerPort, MetadataPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.sliced_sets import Distinct, distinct, in_order
from kraftrio.kraft_meta.metadata.image import MetadataImage, TopicImage
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    FinalizedFeatureKey,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
    SupportedFeatureKey,
    TopicRequest,
)
from kraftrio.wire.messages.quorum import DescribeQuorumRequest
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.fitting import fit_version
from kraftrio.wire.topic_names import INTERNAL_TOPICS, check_topic_name

MAX_TOPICS_AT_ONCE: Final = 10_000
"""The controller refuses a request for more partitions than this, and makes none of them."""

_FEW_TOPICS = 16  # named by a request are looked up without a pause

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_TELEMETRY_CODECS = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: the order Kafka prefers
_TELEMETRY_INTERVAL_MS = 300_000


class ApiVersionsHandler:
    """Serves ApiVersions (KIP-35, KIP-511, KIP-584) on one listener.

    Args:
        advertised: returns what the listener serves; called for each request, since this handler
            is itself part of that table.
        features: the feature levels this software supports, by name.
    """

    def __init__(
        self,
        advertised: Callable[[], list[ApiVersion]],
        metadata: MetadataPort,
        features: Mapping[str, tuple[int, int]],
    ) -> None:
        self._advertised = advertised
        self._metadata = metadata
        self._features = dict(sorted(features.items()))

    def table(self) -> HandlerTable:
        """The handler by API."""
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(
        self, request: ApiVersionsRequest, context: RequestContext
    ) -> ApiVersionsResponse:
        """List what is served, and note the client's software."""
        if context.api_version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.match(name) or not _SOFTWARE.match(version):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.client.software_name = name
            context.client.software_version = version
        image = self._metadata.image
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=self._advertised(),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in self._features.items()
                if low > 0 or context.api_version >= 4
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name in self._features
                if (level := image.features.get(name, 0)) > 0
            ],
        )


class ClusterHandlers:
    """Serves the cluster APIs of one broker.

    Args:
        describe_quorum: asks the leader of the metadata quorum, which may be this node.
        new_uuid: makes ids for telemetry clients that have none.
    """

    def __init__(
        self,
        dynamic: DynamicConfig,
        metadata: MetadataPort,
        controller: ControllerPort,
        describe_quorum: Callable[[DescribeQuorumRequest], Deferred[Any]],
        auto_topics: AutoTopicCreator,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._dynamic = dynamic
        self._metadata = metadata
        self._controller = controller
        self._describe_quorum = describe_quorum
        self._auto_topics = auto_topics
        self._new_uuid = new_uuid
        self._descriptions = TopicDescriptions()
        self._node_id = dynamic.static.node_id

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
            ApiKey.DESCRIBE_QUORUM: self.describe_quorum,
            ApiKey.UPDATE_FEATURES: self.forward,
            ApiKey.UNREGISTER_BROKER: self.forward,
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self.get_telemetry_subscriptions,
        }

    def forward(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """Let the active controller answer."""
        return self._controller.submit(request, api_version=context.api_version)

    def describe_quorum(
        self, request: DescribeQuorumRequest, context: RequestContext
    ) -> Deferred[Any]:
        """Describe the metadata quorum; its leader answers in the newest version."""
        return self._describe_quorum(request).map(
            lambda described: fit_version(described, context.api_version)
        )

    def get_telemetry_subscriptions(
        self, request: GetTelemetrySubscriptionsRequest, _context: RequestContext
    ) -> GetTelemetrySubscriptionsResponse:
        """Subscribe a client to nothing."""
        instance_id = request.client_instance_id
        if instance_id == ZERO_UUID:
            instance_id = self._new_uuid()
        subscription_id = zlib.crc32(instance_id)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=subscription_id - (1 << 32 if subscription_id >> 31 else 0),
            accepted_compression_types=list(_TELEMETRY_CODECS),
            push_interval_ms=_TELEMETRY_INTERVAL_MS,
            telemetry_max_bytes=self._dynamic.current.telemetry_max_bytes,
            delta_temporality=True,
        )

    # --- Metadata ---

    def metadata(
        self, request: MetadataRequest, context: RequestContext
    ) -> MetadataResponse | Slices[MetadataResponse]:
        """Describe brokers and topics; in slices where it is about many."""
        image, version = self._metadata.image, context.api_version
        if request.topics is None or (version == 0 and not request.topics):
            every = None
            if not request.include_topic_authorized_operations:
                every = self._descriptions.known(image, context.listener_name, version)
            if every is None:
                return self._metadata_of_all(request, image, context)
            return self._metadata_response(every, request, image, context)
        if len(request.topics) > _FEW_TOPICS:
            return self._metadata_of_many(request, context)
        named = _few_named(request.topics, version)
        if named is None:
            return _refused_topics(request)
        if not named.ids and self._may_create(request, version):
            missing = [name for name in named.names if _is_missing(image, name)]
            if missing:
                self._auto_topics.create(missing)
        topics = self._describe(named, request, image, context)
        return self._metadata_response(topics, request, image, context)

    def _metadata_of_all(
        self, request: MetadataRequest, image: MetadataImage, context: RequestContext
    ) -> Slices[MetadataResponse]:
        if request.include_topic_authorized_operations:
            every = yield from topics_in_order(image)
            topics = each(partial(self._describe_topic, request, image, context), every)
        else:
            listener, version = context.listener_name, context.api_version
            topics = yield from self._descriptions.every_topic(image, listener, version)
        return self._metadata_response(topics, request, image, context)

    def _metadata_of_many(
        self, request: MetadataRequest, context: RequestContext
    ) -> Slices[MetadataResponse]:
        named = yield from _named(request.topics or (), context.api_version)
        if named is None:
            return _refused_topics(request)
        image = self._metadata.image
        if not named.ids and self._may_create(request, context.api_version):
            yield from self._create_missing(named.names, image)
        topics = self._describe(named, request, image, context)
        return self._metadata_response(topics, request, image, context)

    def _create_missing(self, names: list[str], image: MetadataImage) -> Slices[None]:
        """Have topics created, unless they are too many for the controller to create at once."""
        missing = []
        for name in names:
            if _is_missing(image, name):
                missing.append(name)
                if len(missing) > MAX_TOPICS_AT_ONCE:
                    return
            yield
        if missing:
            self._auto_topics.create(missing)

    def _metadata_response(
        self,
        topics: list[MetadataResponseTopic],
        request: MetadataRequest,
        image: MetadataImage,
        context: RequestContext,
    ) -> MetadataResponse:
        brokers = []
        for broker in image.alive_brokers():
            endpoint = broker.endpoint(context.listener_name)
            if endpoint is not None:
                brokers.append(
                    MetadataResponseBroker(
                        node_id=broker.broker_id,
                        host=endpoint.host,
                        port=endpoint.port,
                        rack=broker.rack,
                    )
                )
        return MetadataResponse(
            brokers=brokers,
            cluster_id=image.cluster_id or None,
            controller_id=self._controller_id([one.node_id for one in brokers]),
            topics=topics,
            cluster_authorized_operations=cluster_operations(
                context, is_asked=request.include_cluster_authorized_operations
            ),
        )

    def _controller_id(self, broker_ids: list[int]) -> int:
        """A broker that forwards to the controller: this one if clients see it."""
        if self._node_id in broker_ids:
            return self._node_id
        return broker_ids[0] if broker_ids else -1

    def _describe(
        self,
        named: _NamedTopics,
        request: MetadataRequest,
        image: MetadataImage,
        context: RequestContext,
    ) -> list[MetadataResponseTopic]:
        """Describe what a request names."""
        describe = partial(self._describe_topic, request, image, context)
        if named.ids:  # as in Kafka, names beside ids are ignored

            def by_id(topic_id: bytes) -> MetadataResponseTopic:
                topic = image.topic_by_id(topic_id)
                return _unknown_id(topic_id) if topic is None else describe(topic)

            return each(by_id, named.ids)

        def by_name(name: str) -> MetadataResponseTopic:
            topic = image.topic(name)
            if topic is None:
                operations = topic_operations(
                    context, name, is_asked=request.include_topic_authorized_operations
                )
                return _topic_failure(name, _missing_code(name), operations)
            return describe(topic)

        return each(by_name, named.names)

    def _describe_topic(
        self,
        request: MetadataRequest,
        image: MetadataImage,
        context: RequestContext,
        topic: TopicImage,
    ) -> MetadataResponseTopic:
        operations = topic_operations(
            context, topic.name, is_asked=request.include_topic_authorized_operations
        )
        return self._descriptions.topic(
            image, topic, context.listener_name, context.api_version, operations
        )

    def _may_create(self, request: MetadataRequest, version: int) -> bool:
        # Clients before version 4 could not say no.
        return self._auto_topics.enabled and (version < 4 or request.allow_auto_topic_creation)

    # --- DescribeCluster ---

    def describe_cluster(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        """Describe the brokers."""
        refused = refuse_endpoint_type(request, BROKER_ENDPOINT, context.api_version)
        if refused is not None:
            return refused
        image = self._metadata.image
        brokers, alive = [], []
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            endpoint = broker.endpoint(context.listener_name)
            if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
                continue
            if not broker.fenced:
                alive.append(broker_id)
            brokers.append(
                DescribeClusterBroker(
                    broker_id=broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    # Versions without the field are never given a fenced broker.
                    is_fenced=broker.fenced,
                )
            )
        return DescribeClusterResponse(
            endpoint_type=BROKER_ENDPOINT,
            cluster_id=image.cluster_id,
            controller_id=self._controller_id(alive),
            brokers=brokers,
            cluster_authorized_operations=cluster_operations(
                context, is_asked=request.include_cluster_authorized_operations
            ),
        )

    # --- DescribeTopicPartitions ---

    def describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> Slices[DescribeTopicPartitionsResponse]:
        """Describe topics by name, page by page (KIP-966)."""
        image, cursor = self._metadata.image, request.cursor
        if cursor is not None and cursor.partition_index < 0:
            return _refused_page(request)
        every = not request.topics
        names: Collection[str] = image.topics_by_name
        if not every:
            names = yield from distinct(one.name for one in request.topics)
            if cursor is not None and cursor.topic_name not in names:
                return _refused_page(request)
        most = self._dynamic.current.max_request_partition_size_limit
        left = max(1, min(request.response_partition_limit, most))
        pages: list[_Page] = []
        next_cursor = None
        for name in (yield from in_order(names)):
            yield
            first = 0
            if cursor is not None:
                if name < cursor.topic_name:
                    continue
                first = cursor.partition_index if name == cursor.topic_name else 0
            if left <= 0:
                next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = image.topic(name)
            count = 0 if topic is None else max(0, topic.partition_count - first)
            pages.append(_Page(name, first, min(count, left)))
            if count > left:
                next_cursor = Cursor(topic_name=name, partition_index=first + left)
                break
            left -= count
        return DescribeTopicPartitionsResponse(
            topics=each(partial(_describe_page, image, context), pages),
            next_cursor=next_cursor,
        )


def _missing_code(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _NamedTopics(NamedTuple):
    """The topics that a request names, each once."""

    ids: list[bytes]
    names: list[str]


def _is_wrong(topic: MetadataRequestTopic, version: int) -> bool:
    """Whether a topic has neither name nor id, or an id too early."""
    if topic.topic_id == ZERO_UUID:
        return topic.name is None
    return version in (10, 11) or (topic.name is None and version < 12)


def _few_named(topics: list[MetadataRequestTopic], version: int) -> _NamedTopics | None:
    """Read what a request names; None: one of it is wrong."""
    ids: list[bytes] = []
    names: list[str] = []
    for topic in topics:
        if _is_wrong(topic, version):
            return None
        if topic.topic_id != ZERO_UUID:
            ids.append(topic.topic_id)
        elif topic.name is not None:
            names.append(topic.name)
    return _NamedTopics(list(dict.fromkeys(ids)), list(dict.fromkeys(names)))


def _named(topics: Iterable[MetadataRequestTopic], version: int) -> Slices[_NamedTopics | None]:
    """Like `_few_named`, with pauses."""
    ids: Distinct[bytes] = Distinct()
    names: Distinct[str] = Distinct()
    for topic in topics:
        if _is_wrong(topic, version):
            return None
        if topic.topic_id != ZERO_UUID:
            ids.add(topic.topic_id)
        elif topic.name is not None:
            names.add(topic.name)
        yield
    return _NamedTopics(ids.values, names.values)


def _is_missing(image: MetadataImage, name: str) -> bool:
    """Whether no topic has a name that one may have."""
    return image.topic(name) is None and _missing_code(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused_topics(request: MetadataRequest) -> MetadataResponse:
    def refuse(topic: MetadataRequestTopic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
        )

    return MetadataResponse(
        topics=each(refuse, request.topics or []), error_code=ErrorCode.INVALID_REQUEST
    )


def _topic_failure(name: str, code: ErrorCode, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _unknown_id(topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
    )


class _Page(NamedTuple):
    """What is described of one topic: `partition_count` partitions from `first` on."""

    name: str
    first: int
    partition_count: int


def _describe_page(
    image: MetadataImage, context: RequestContext, page: _Page
) -> DescribeTopicPartitionsResponseTopic:
    topic = image.topic(page.name)
    operations = topic_operations(context, page.name, is_asked=True)
    if topic is None:
        return DescribeTopicPartitionsResponseTopic(
            error_code=_missing_code(page.name),
            name=page.name,
            is_internal=page.name in INTERNAL_TOPICS,
            topic_authorized_operations=operations,
        )
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            described_partition(image, index, topic.partitions[index], context.listener_name)
            for index in range(page.first, page.first + page.partition_count)
        ],
        topic_authorized_operations=operations,
    )


def _refused_page(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    def refuse(topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name
        )

    return DescribeTopicPartitionsResponse(topics=each(refuse, request.topics))
