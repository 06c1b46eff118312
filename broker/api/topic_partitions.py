"""DescribeTopicPartitions: topics by name, page by page (KIP-966).

Behaviour: topics that a client may not describe are left out of all of them, and refused where they
are named, after the others on each page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import NamedTuple

from kraftrio.broker.api.shared.authorized_operations import topic_operations
from kraftrio.broker.api.shared.permitted_topics import is_visible
from kraftrio.broker.api.shared.visible_cluster import missing_topic_code
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.metadata.topic_descriptions import (
    described_partition,
)
from kraftrio.broker.ports import MetadataPort
from kraftrio.broker.security.authorizer import AclOperation, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_sets import distinct, in_order
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.topic_names import INTERNAL_TOPICS


class TopicPartitionHandlers:
    """Serves DescribeTopicPartitions on one broker."""

    def __init__(self, dynamic: DynamicConfig, metadata: MetadataPort) -> None:
        self._dynamic = dynamic
        self._metadata = metadata

    def table(self) -> HandlerTable:
        """The handler by API."""
        return {ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions}

    def describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> Slices[DescribeTopicPartitionsResponse]:
        """Describe topics by name, page by page (KIP-966)."""
        image, cursor = self._metadata.image, request.cursor
        if cursor is not None and cursor.partition_index < 0:
            return _refused_page(request)
        names: Collection[str] = image.topics_by_name
        refused: list[_Page] = []
        if request.topics:
            names = yield from distinct(one.name for one in request.topics)
            if cursor is not None and cursor.topic_name not in names:
                return _refused_page(request)
        if context.is_guarded:
            names = yield from _permitted(names, context, refused if request.topics else None)
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
            topics=each(partial(_describe_page, image, context), pages + refused),
            next_cursor=next_cursor,
        )


def _permitted(
    names: Iterable[str], context: RequestContext, refused: list[_Page] | None
) -> Slices[list[str]]:
    """Reduce topics to those that a client may know of; the others go to `refused`, if at all."""
    permitted = []
    for name in names:
        if refused is None:
            is_permitted = is_visible(name, context)
        else:
            is_permitted = context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        if is_permitted:
            permitted.append(name)
        elif refused is not None:
            refused.append(_Page(name, 0, 0, is_permitted=False))
        yield
    return permitted


class _Page(NamedTuple):
    """What is described of one topic: `partition_count` partitions from `first` on."""

    name: str
    first: int
    partition_count: int
    is_permitted: bool = True


def _describe_page(
    image: MetadataImage, context: RequestContext, page: _Page
) -> DescribeTopicPartitionsResponseTopic:
    if not page.is_permitted:  # whether or not there is such a topic
        return DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=page.name
        )
    topic = image.topic(page.name)
    operations = topic_operations(context, page.name, is_asked=True)
    if topic is None:
        return DescribeTopicPartitionsResponseTopic(
            error_code=missing_topic_code(page.name),
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
