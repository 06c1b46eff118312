"""What the handlers of consumer, share and streams groups have in common.

A client may name, and see, those topics alone that it may describe. A heartbeat that changes
nothing is answered at once. A description goes the same course for each kind of group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from kraftrio.broker.api.shared.authorized_operations import group_operations
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.outcome import Now
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import RequestContext
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.wire.errors import ErrorCode, KafkaError

R = TypeVar("R")


class Heartbeat(Protocol):
    """A heartbeat of any kind."""

    group_id: str
    member_epoch: int


class Description(Protocol):
    """A group in a response, of any kind."""

    group_id: str
    error_code: ErrorCode
    error_message: str | None
    authorized_operations: int


D = TypeVar("D", bound=Description)


class ServedKind:
    """Whether a kind of group is served: by the broker's configuration and the cluster's features.

    Looked up once for each metadata image, since each heartbeat asks.

    Args:
        protocol: as in `group.coordinator.rebalance.protocols`.
        level: of the feature that the kind needs.
    """

    __slots__ = ("_image", "_is_on", "_level", "_metadata", "_properties", "_protocol")

    def __init__(
        self,
        metadata: MetadataCache,
        properties: GroupProperties,
        protocol: str,
        level: Callable[[MetadataImage], int],
    ) -> None:
        self._metadata = metadata
        self._properties = properties
        self._protocol = protocol
        self._level = level
        self._image: MetadataImage | None = None
        self._is_on = False

    def is_on(self) -> bool:
        image = self._metadata.image
        if image is not self._image:
            protocols = self._properties.group_coordinator_rebalance_protocols
            self._is_on = self._protocol in protocols and self._level(image) >= 1
            self._image = image
        return self._is_on


def may_describe(context: RequestContext, topic: str) -> bool:
    """Whether the client may know of a topic."""
    return context.is_authorized(AclOperation.DESCRIBE, Resource(ResourceType.TOPIC, topic))


def answer_unchanged(
    coordinator: GroupCoordinator,
    request: Heartbeat,
    ask: Callable[[GroupShard, Now], R | None],
) -> R | None:
    """Answer a heartbeat that changes nothing; None: it has to go the whole course.

    Args:
        ask: asks the kind of group.
    """
    if request.member_epoch <= 0:
        return None
    try:
        return coordinator.read(request.group_id, ask)
    except KafkaError:  # the whole course meets it again
        return None


def describe_group(
    coordinator: GroupCoordinator,
    described: D,
    find: Callable[[GroupShard], tuple[D, Iterable[str]]],
    context: RequestContext,
    *,
    operations_asked: bool,
    not_visible: str = (
        "The group has described topic(s) that the client is not authorized to describe."
    ),
) -> D:
    """Describe a group, unless it has topics that the client may not know of.

    Args:
        described: the group by its id alone; gets the error if there is one.
        find: returns the description and the topics that it names; or raises KafkaError.
        not_visible: what Kafka says where the client may not know of them.
    """
    group_id = described.group_id
    if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        described.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return described
    if not group_id:
        described.error_code = ErrorCode.INVALID_GROUP_ID
        return described
    try:
        found, topics = coordinator.read(group_id, lambda shard, _now: find(shard))
        if not all(may_describe(context, topic) for topic in topics):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, not_visible)
    except KafkaError as error:
        described.error_code, described.error_message = error.code, error.message
        return described
    found.authorized_operations = group_operations(context, group_id, is_asked=operations_asked)
    return found
