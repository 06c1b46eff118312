"""Serves the requests about streams groups (KIP-1071): heartbeats of their members, descriptions.

Behaviour
- A heartbeat that changes nothing is answered at once. Any other is answered when its records are
  committed, and when those are that it builds on.
- Internal topics that the group lacks are made by this broker, if the member may create them; what
  went wrong a moment ago is said beside the status that they are missing.
- Both APIs are refused with UNSUPPORTED_VERSION unless `streams.version` is 1 and `streams` is
  among `group.coordinator.rebalance.protocols`.
- A member may only name, and a client only see, topics that it may describe.

Version notes
- Heartbeat 0, Describe 0: Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.modern_groups import (
    ServedKind,
    answer_unchanged,
    describe_group,
    may_describe,
)
from kraftrio.broker.api.groups.streams_requests import is_long, read_in_slices
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.groups.streams import descriptions
from kraftrio.broker.coordinator.groups.streams.heartbeats import HeartbeatResult, HeartbeatSender
from kraftrio.broker.coordinator.groups.streams.request_checks import check_request, topics_of
from kraftrio.broker.coordinator.groups.streams.topology.topic_problem import HeartbeatStatus
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import CreatableTopic
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeDescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kraftrio.wire.protocol.api import ApiKey

_MAX_NAMED_FAILURES = 3
_RETRY_HEARTBEATS = 2  # that long a topic is left alone that could not be made


class InternalTopicsPort(Protocol):
    """Makes missing topics; see `metadata/internal_topics`."""

    def create(self, topics: Sequence[CreatableTopic], retry_ms: int) -> dict[str, str]: ...


class StreamsGroupHandlers:
    """Handlers of one broker."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        properties: GroupProperties,
        internal_topics: InternalTopicsPort,
    ) -> None:
        self._coordinator = coordinator
        self._internal_topics = internal_topics
        self._kind = ServedKind(
            metadata, properties, "streams", lambda image: image.streams_version
        )

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.STREAMS_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.STREAMS_GROUP_DESCRIBE: self.describe,
        }

    # --- heartbeats ---

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, context: RequestContext) -> Any:
        """Serve StreamsGroupHeartbeat."""
        if not self._kind.is_on():
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        sender = HeartbeatSender(context.client_id or "", f"/{context.client_host}")
        unchanged = answer_unchanged(
            self._coordinator,
            request,
            lambda shard, now: shard.streams.heartbeat_unchanged(request, sender, now),
        )
        if unchanged is not None:
            return unchanged
        if is_long(request):
            return self._long_heartbeat(request, sender, context)
        return self._heartbeat(request, sender, context)

    def _long_heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        sender: HeartbeatSender,
        context: RequestContext,
    ) -> Work[Any]:
        """Read in slices what a request names, if it is not too much."""
        try:
            yield from read_in_slices(request)
        except KafkaError as error:
            return _refuse(error)
        return self._heartbeat(request, sender, context)

    def _heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        sender: HeartbeatSender,
        context: RequestContext,
    ) -> StreamsGroupHeartbeatResponse | Deferred[StreamsGroupHeartbeatResponse]:
        try:
            check_request(request)
            if not all(may_describe(context, topic) for topic in topics_of(request)):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        except KafkaError as error:
            return _refuse(error)
        done: Deferred[HeartbeatResult] = self._coordinator.write(
            request.group_id,
            lambda shard, now: shard.streams.heartbeat(request, sender, now),
            lambda code: HeartbeatResult(StreamsGroupHeartbeatResponse(error_code=code)),
        )
        finish = partial(self._finish, context)
        return finish(done.value) if done.done else done.map(finish)

    def _finish(
        self, context: RequestContext, answer: HeartbeatResult
    ) -> StreamsGroupHeartbeatResponse:
        """Have the missing topics created, and report what prevents that."""
        response, missing = answer
        if not missing:
            return response
        may_create = context.may_see(AclOperation.CREATE, CLUSTER)
        refused = [
            topic.name
            for topic in missing
            if not may_create
            and not context.is_authorized(
                AclOperation.CREATE, Resource(ResourceType.TOPIC, topic.name)
            )
        ]
        if refused:
            _add_detail(response, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
            return response
        failures = self._internal_topics.create(
            [topic.creatable() for topic in missing],
            _RETRY_HEARTBEATS * response.heartbeat_interval_ms,
        )
        if failures:
            _add_detail(response, f"Creation failed: {_failure_text(failures)}.")
        return response

    # --- descriptions ---

    def describe(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> StreamsGroupDescribeResponse:
        """Serve StreamsGroupDescribe."""
        return StreamsGroupDescribeResponse(
            groups=each(
                lambda group_id: self._describe(group_id, request, context), request.group_ids
            )
        )

    def _describe(
        self, group_id: str, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> StreamsGroupDescribeDescribedGroup:
        described = StreamsGroupDescribeDescribedGroup(group_id=group_id)
        if not self._kind.is_on():
            described.error_code = ErrorCode.UNSUPPORTED_VERSION
            return described
        return describe_group(
            self._coordinator,
            described,
            lambda shard: _find(shard, group_id),
            context,
            operations_asked=request.include_authorized_operations,
            not_visible="The described group uses topics that the client is not "
            "authorized to describe.",
        )


def _refuse(error: KafkaError) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _find(
    shard: GroupShard, group_id: str
) -> tuple[StreamsGroupDescribeDescribedGroup, Iterable[str]]:
    """A group's description, and the topics in it."""
    described = descriptions.describe_group(shard.streams.find(group_id))
    return described, _described_topics(described)


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == HeartbeatStatus.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"


def _failure_text(failures: dict[str, str]) -> str:
    named = [f"{topic} ({message})" for topic, message in failures.items()]
    text = ", ".join(named[:_MAX_NAMED_FAILURES])
    more = len(named) - _MAX_NAMED_FAILURES
    return f"{text} and {more} more" if more > 0 else text


def _described_topics(described: StreamsGroupDescribeDescribedGroup) -> Iterable[str]:
    if described.topology is None:
        return
    for subtopology in described.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name
