"""Metadata: brokers and topics, as this broker's metadata image has them.

Behaviour (Kafka's)
- Endpoints are those of the listener a request came in by; fenced brokers are not shown.
- The controller that clients see is a live broker (this one when it is live): it forwards.
- Missing topics are created when the client and auto.create.topics.enable allow it, if the client
  may create them.
- Topics that a client may not describe are left out of all, and TOPIC_AUTHORIZATION_FAILED where
  they are named, whether or not they exist.
Version notes: 0: empty topics = all; 1+: null = all, empty = none. 4: allow_auto_topic_creation.
10: topic ids in responses; 10-11 refuse ids and null names in requests, 12 looks up by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from kraftrio.broker.api.shared.authorized_operations import cluster_operations, topic_operations
from kraftrio.broker.api.shared.permitted_topics import is_visible
from kraftrio.broker.api.shared.visible_cluster import controller_for_clients, missing_topic_code
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.broker.metadata.topic_descriptions import (
    TopicDescriptions,
    topics_in_order,
)
from kraftrio.broker.ports import MetadataPort
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_sets import Distinct
from kraftrio.broker.server.usage.throttling import sender_of
from kraftrio.kraft_meta.metadata.image import MetadataImage, TopicImage
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.topic_names import INTERNAL_TOPICS

MAX_TOPICS_AT_ONCE: Final = 10_000
"""The controller refuses a request for more partitions than this, and makes none of them."""

_FEW_TOPICS = 16  # named by a request are looked up without a pause


class MetadataHandlers:
    """Serves Metadata on one broker."""

    def __init__(self, node_id: int, metadata: MetadataPort, auto_topics: AutoTopicCreator) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._auto_topics = auto_topics
        self._descriptions = TopicDescriptions()

    def table(self) -> HandlerTable:
        """The handler by API."""
        return {ApiKey.METADATA: self.metadata}

    def metadata(
        self, request: MetadataRequest, context: RequestContext
    ) -> MetadataResponse | Slices[MetadataResponse]:
        """Describe brokers and topics; in slices where it is about many."""
        image, version = self._metadata.image, context.api_version
        if request.topics is None or (version == 0 and not request.topics):
            every = None
            if not (request.include_topic_authorized_operations or context.is_guarded):
                every = self._descriptions.known(image, context.listener_name, version)
            if every is None:
                return self._metadata_of_all(request, image, context)
            return self._metadata_response(every, request, image, context)
        if len(request.topics) > _FEW_TOPICS:
            return self._metadata_of_many(request, context)
        named = _few_named(request.topics, version)
        if named is None:
            return _refused_topics(request)
        creatable = _CreatableTopics(context)
        if not named.ids and self._may_create(request, version):
            missing = [
                name
                for name in named.names
                if _is_missing(image, name) and creatable.may_be_made(name)
            ]
            if missing:
                self._auto_topics.create(missing, sender=sender_of(context))
        topics = self._describe(named, creatable, request, image, context)
        return self._metadata_response(topics, request, image, context)

    def _metadata_of_all(
        self, request: MetadataRequest, image: MetadataImage, context: RequestContext
    ) -> Slices[MetadataResponse]:
        if request.include_topic_authorized_operations or context.is_guarded:
            every = yield from topics_in_order(image)
            if context.is_guarded:
                every = yield from _visible(every, context)
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
        creatable = _CreatableTopics(context)
        if not named.ids and self._may_create(request, context.api_version):
            yield from self._create_missing(named.names, image, creatable, context)
        topics = self._describe(named, creatable, request, image, context)
        return self._metadata_response(topics, request, image, context)

    def _create_missing(
        self,
        names: list[str],
        image: MetadataImage,
        creatable: _CreatableTopics,
        context: RequestContext,
    ) -> Slices[None]:
        """Have topics created, unless they are too many for the controller to create at once."""
        missing = []
        for name in names:
            if _is_missing(image, name) and creatable.may_be_made(name):
                missing.append(name)
                if len(missing) > MAX_TOPICS_AT_ONCE:
                    return
            yield
        if missing:
            self._auto_topics.create(missing, sender=sender_of(context))

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
            controller_id=controller_for_clients(self._node_id, [one.node_id for one in brokers]),
            topics=topics,
            cluster_authorized_operations=cluster_operations(
                context, is_asked=request.include_cluster_authorized_operations
            ),
        )

    def _describe(
        self,
        named: _NamedTopics,
        creatable: _CreatableTopics,
        request: MetadataRequest,
        image: MetadataImage,
        context: RequestContext,
    ) -> list[MetadataResponseTopic]:
        """Describe what a request names."""
        describe = partial(self._describe_topic, request, image, context)
        if named.ids:  # as in Kafka, names beside ids are ignored

            def by_id(topic_id: bytes) -> MetadataResponseTopic:
                topic = image.topic_by_id(topic_id)
                if topic is None:
                    return _no_topic(topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
                if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
                    return _no_topic(topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                return describe(topic)

            return each(by_id, named.ids)

        def by_name(name: str) -> MetadataResponseTopic:
            topic = image.topic(name)
            # Whether there is a topic that one may not know of must not show.
            if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                return MetadataResponseTopic(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    name=name,
                )
            if name in creatable.refused:
                return _topic_failure(
                    name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_AUTHORIZED_OPERATIONS
                )
            if topic is None:
                operations = topic_operations(
                    context, name, is_asked=request.include_topic_authorized_operations
                )
                return _topic_failure(name, missing_topic_code(name), operations)
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


class _CreatableTopics:
    """The missing topics that a client may have made.

    Attributes:
        refused: those that it may know of, but not have made.
    """

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self.refused: set[str] = set()

    def may_be_made(self, name: str) -> bool:
        """Whether a missing topic may be made for the client."""
        context = self._context
        if not context.is_guarded:
            return True
        topic = Resource(ResourceType.TOPIC, name)
        if not context.may_see(AclOperation.DESCRIBE, topic):
            return False  # which its answer says
        if context.may_see(AclOperation.CREATE, CLUSTER) or context.is_authorized(
            AclOperation.CREATE, topic
        ):
            return True
        self.refused.add(name)
        return False


def _visible(topics: Iterable[TopicImage], context: RequestContext) -> Slices[list[TopicImage]]:
    """Reduce topics to those that a client may know of."""
    visible = []
    for topic in topics:
        if is_visible(topic.name, context):
            visible.append(topic)
        yield
    return visible


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
    return (
        image.topic(name) is None
        and missing_topic_code(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


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


def _no_topic(topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
