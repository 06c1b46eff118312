"""What ShareFetch and ShareAcknowledge have in common: who asks, how answers are gathered, and the
leaders that they name.

Called by `share_fetch` and `share_acknowledge`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.metadata.leader_hints import WRONG_LEADER, LeaderHints
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.share.sessions import SessionPartition, ShareSessionKey
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.data import NodeEndpoint
from kraftrio.wire.messages.share_fetch import ShareLeaderIdAndEpoch

_LONGEST_MEMBER_ID: Final = 36


class MemberRequest(Protocol):
    """A request of a member of a share group."""

    group_id: str | None
    member_id: str | None


def check_member(
    request: MemberRequest, context: RequestContext, *, is_enabled: bool
) -> ShareSessionKey:
    """The member that sends a request.

    Args:
        is_enabled: are there share groups?

    Raises:
        KafkaError: UNSUPPORTED_VERSION, INVALID_REQUEST or GROUP_AUTHORIZATION_FAILED.
    """
    if not is_enabled:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    group_id, member_id = request.group_id, request.member_id
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not context.is_authorized(AclOperation.READ, Resource(ResourceType.GROUP, group_id)):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return ShareSessionKey(group_id, member_id)


class TopicAnswer(Protocol):
    """A topic in a response, of either kind."""

    partitions: list[Any]


T = TypeVar("T", bound=TopicAnswer)


class AnswersByTopic(Generic[T]):
    """The partitions of one response, under their topics, in the order in which they came.

    Args:
        new_topic: makes the answer for a topic, by its id.
    """

    def __init__(self, new_topic: Callable[[bytes], T]) -> None:
        self._new_topic = new_topic
        self._topics: dict[bytes, T] = {}

    def add(self, topic_id: bytes, partition: Any) -> None:
        """Add what is answered for a partition."""
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = self._new_topic(topic_id)
        topic.partitions.append(partition)

    def topics(self) -> list[T]:
        """All that was added."""
        return list(self._topics.values())


class LeadersToName:
    """The leaders that one answer names beside errors (KIP-951)."""

    def __init__(self, metadata: MetadataCache, context: RequestContext) -> None:
        self._metadata = metadata
        self._listener_name = context.listener_name
        self._hints: LeaderHints | None = None

    def of(self, named: SessionPartition, code: ErrorCode) -> ShareLeaderIdAndEpoch:
        """What an answer with an error says of the leader; zeros: nothing."""
        leader = ShareLeaderIdAndEpoch()
        topic = self._metadata.topic_name(named.topic_id)
        if code not in WRONG_LEADER or topic is None:
            return leader
        if self._hints is None:
            self._hints = LeaderHints(self._metadata, self._listener_name)
        found = self._hints.leader_of(topic, named.partition)
        if found is not None:
            leader.leader_id, leader.leader_epoch = found.leader_id, found.leader_epoch
        return leader

    def node_endpoints(self) -> list[NodeEndpoint]:
        """Where the leaders that were named are reached."""
        return [] if self._hints is None else self._hints.node_endpoints()
