"""Serves the requests about consumer groups (KIP-848): heartbeats of their members, descriptions.

Behaviour
- A heartbeat that changes nothing is answered at once. Any other is answered when its records are
  committed, and when those are that it builds on.
- Both are refused with UNSUPPORTED_VERSION unless `group.version` is 1 and `consumer` is among
  `group.coordinator.rebalance.protocols`.
- A client may subscribe to, and see, those topics alone that it may describe.

Version notes
- Heartbeat 0: the broker makes the member id. 1 (KIP-1082): the client does; regular expressions.
- Describe 1 (KIP-1099): whether a member uses the classic protocol.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.modern_groups import (
    ServedKind,
    answer_unchanged,
    describe_group,
    may_describe,
)
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.consumer.checks import check_request
from kraftrio.broker.coordinator.groups.consumer.description import (
    describe_consumer_group,
    described_topics,
)
from kraftrio.broker.coordinator.groups.consumer.parts import HeartbeatClient
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import KEPT_ENTRIES, each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kraftrio.wire.protocol.api import ApiKey

MAX_TOPICS = 5_000
"""A member that subscribes to more topics by name, or names more that it owns, is refused."""

_MAX_PARTITIONS = 100_000
_SLICE_ENTRIES = 64


class ConsumerGroupHandlers:
    """Handlers of one broker."""

    def __init__(
        self, coordinator: GroupCoordinator, metadata: MetadataCache, properties: GroupProperties
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._properties = properties
        self._kind = ServedKind(metadata, properties, "consumer", lambda image: image.group_version)

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.describe,
        }

    # --- heartbeats ---

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Any:
        """Serve ConsumerGroupHeartbeat."""
        if not self._kind.is_on():
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        client_id, client_host = context.client_id or "", f"/{context.client_host}"
        unchanged = answer_unchanged(
            self._coordinator,
            request,
            lambda shard, now: shard.consumer.heartbeat_unchanged(
                request, client_id, client_host, now
            ),
        )
        if unchanged is not None:
            return unchanged
        client = HeartbeatClient(
            client_id, client_host, context.api_version, partial(may_describe, context)
        )
        if _is_long(request):
            return self._long_heartbeat(request, client)
        return self._heartbeat(request, client)

    def _long_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatClient
    ) -> Work[Any]:
        """Read in slices what a request names, if it is not too much."""
        try:
            check_request(request, client.api_version, self._properties.group_consumer_assignors)
            yield from _read_in_slices(request, client)
        except KafkaError as error:
            return _refuse(error)
        return self._decide(request, client)

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatClient
    ) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
        try:
            check_request(request, client.api_version, self._properties.group_consumer_assignors)
        except KafkaError as error:
            return _refuse(error)
        if not all(map(client.may_describe, request.subscribed_topic_names or ())):
            return _refuse(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return self._decide(request, client)

    def _decide(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatClient
    ) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
        """Have the group's shard serve a heartbeat that was checked."""
        done: Deferred[ConsumerGroupHeartbeatResponse] = self._coordinator.write(
            request.group_id,
            partial(_serve, request, client),
            lambda code: ConsumerGroupHeartbeatResponse(error_code=code),
        )
        return done.value if done.done else done

    # --- descriptions ---

    def describe(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        """Serve ConsumerGroupDescribe."""
        return ConsumerGroupDescribeResponse(
            groups=each(lambda group_id: self._describe(group_id, request, context),
                        request.group_ids)
        )  # fmt: skip

    def _describe(
        self, group_id: str, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeDescribedGroup:
        described = ConsumerGroupDescribeDescribedGroup(group_id=group_id)
        if not self._kind.is_on():
            described.error_code = ErrorCode.UNSUPPORTED_VERSION
            return described
        return describe_group(
            self._coordinator,
            described,
            lambda shard: self._find(shard, group_id),
            context,
            operations_asked=request.include_authorized_operations,
        )

    def _find(
        self, shard: GroupShard, group_id: str
    ) -> tuple[ConsumerGroupDescribeDescribedGroup, set[str]]:
        """A group's description, and the topics in it."""
        group, metadata = shard.consumer.find(group_id), self._metadata
        described = describe_consumer_group(group, shard.consumer.default_assignor, metadata)
        return described, described_topics(group, metadata)


def _serve(
    request: ConsumerGroupHeartbeatRequest, client: HeartbeatClient, shard: GroupShard, now: Now
) -> Outcome:
    """Have the shard serve a heartbeat; a refusal has its message."""
    try:
        return shard.consumer.heartbeat(request, client, now)
    except KafkaError as error:
        return Outcome(response=_refuse(error))


def _refuse(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


# --- long requests ---


def _is_long(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether what a request names takes long to be read."""
    owned = request.topic_partitions or ()
    return (
        len(request.subscribed_topic_names or ()) > KEPT_ENTRIES
        or len(owned) > KEPT_ENTRIES
        or (isinstance(owned, list) and sum(len(one.partitions) for one in owned) > KEPT_ENTRIES)
    )


def _read_in_slices(request: ConsumerGroupHeartbeatRequest, client: HeartbeatClient) -> Work[None]:
    """Make ordinary lists of what a request names.

    Raises:
        KafkaError: INVALID_REQUEST, it is too much; TOPIC_AUTHORIZATION_FAILED, the client may not
            know of a topic.
    """
    if request.subscribed_topic_names is not None:
        _check_count(len(request.subscribed_topic_names), MAX_TOPICS, "topics")
        names = []
        for count, name in enumerate(request.subscribed_topic_names):
            if not client.may_describe(name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            names.append(name)
            if count % _SLICE_ENTRIES == 0:
                yield None
        request.subscribed_topic_names = names
    if request.topic_partitions is not None:
        _check_count(len(request.topic_partitions), MAX_TOPICS, "topics")
        owned, total = [], 0
        for topic in request.topic_partitions:
            total += len(topic.partitions)
            _check_count(total, _MAX_PARTITIONS, "partitions")
            partitions = []
            for count, index in enumerate(topic.partitions):
                partitions.append(index)
                if count % _SLICE_ENTRIES == 0:
                    yield None
            owned.append(
                ConsumerGroupHeartbeatTopicPartitions(
                    topic_id=topic.topic_id, partitions=partitions
                )
            )
            yield None
        request.topic_partitions = owned


def _check_count(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The request names {count} {what}, more than {limit}."
        )
