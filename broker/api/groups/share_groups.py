"""Serves the membership of share groups (KIP-932): heartbeats of their members, descriptions.

Behaviour
- A heartbeat that changes nothing is answered at once; any other when its records are committed,
  and those that it builds on.
- Both are refused with UNSUPPORTED_VERSION unless `share.version` is 1.
- A client may subscribe to, and see, those topics alone that it may describe.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.modern_groups import (
    answer_unchanged,
    describe_group,
    may_describe,
)
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.groups.share.description import describe_share_group
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import KEPT_ENTRIES, each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_groups import (
    ShareGroupDescribeDescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kraftrio.wire.protocol.api import ApiKey

MAX_TOPICS = 2_000
"""A member that subscribes to more topics is refused."""

_MAX_MEMBER_ID_LENGTH = 36
_SLICE_ENTRIES = 64


class ShareGroupHandlers:
    """Handlers of one broker."""

    def __init__(self, coordinator: GroupCoordinator, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.SHARE_GROUP_DESCRIBE: self.describe,
        }

    # --- heartbeats ---

    def heartbeat(self, request: ShareGroupHeartbeatRequest, context: RequestContext) -> Any:
        """Serve ShareGroupHeartbeat."""
        if not self._metadata.image.share_version:
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        client_id, client_host = context.client_id or "", f"/{context.client_host}"
        unchanged = answer_unchanged(
            self._coordinator,
            request,
            lambda shard, now: shard.share.heartbeat_unchanged(
                request, client_id, client_host, now
            ),
        )
        if unchanged is not None:
            return unchanged
        if len(request.subscribed_topic_names or ()) > KEPT_ENTRIES:
            return self._long_heartbeat(request, context)
        return self._heartbeat(request, context)

    def _long_heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> Work[Any]:
        """Read in slices what a request names, if it is not too much."""
        asked = request.subscribed_topic_names or ()
        if len(asked) > MAX_TOPICS:
            reason = f"The request names {len(asked)} topics, more than {MAX_TOPICS}."
            return _refuse(KafkaError(ErrorCode.INVALID_REQUEST, reason))
        names = []
        for count, name in enumerate(asked):
            names.append(name)
            if count % _SLICE_ENTRIES == 0:
                yield None
        request.subscribed_topic_names = names
        return self._heartbeat(request, context)

    def _heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> ShareGroupHeartbeatResponse | Deferred[ShareGroupHeartbeatResponse]:
        if not 0 < len(request.member_id) <= _MAX_MEMBER_ID_LENGTH:
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
        names = request.subscribed_topic_names or ()
        if not all(may_describe(context, name) for name in names):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        done: Deferred[ShareGroupHeartbeatResponse] = self._coordinator.write(
            request.group_id,
            partial(_serve, request, context.client_id or "", f"/{context.client_host}"),
            lambda code: ShareGroupHeartbeatResponse(error_code=code),
        )
        return done.value if done.done else done

    # --- descriptions ---

    def describe(
        self, request: ShareGroupDescribeRequest, context: RequestContext
    ) -> ShareGroupDescribeResponse:
        """Serve ShareGroupDescribe."""
        return ShareGroupDescribeResponse(
            groups=each(
                lambda group_id: self._describe(group_id, request, context), request.group_ids
            )
        )

    def _describe(
        self, group_id: str, request: ShareGroupDescribeRequest, context: RequestContext
    ) -> ShareGroupDescribeDescribedGroup:
        described = ShareGroupDescribeDescribedGroup(group_id=group_id)
        if not self._metadata.image.share_version:
            described.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            return describe_group(
                self._coordinator,
                described,
                lambda shard: self._find(shard, group_id),
                context,
                operations_asked=request.include_authorized_operations,
            )
        return described

    def _find(
        self, shard: GroupShard, group_id: str
    ) -> tuple[ShareGroupDescribeDescribedGroup, set[str]]:
        """A group's description, and the topics in it."""
        described = describe_share_group(
            shard.share.find(group_id), shard.share.assignor, self._metadata
        )
        topics = {
            topic.topic_name
            for member in described.members
            for topic in member.assignment.topic_partitions
        }
        return described, topics


def _serve(
    request: ShareGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
    shard: GroupShard,
    now: Now,
) -> Outcome:
    """Have the shard serve a heartbeat; a refusal has its message."""
    try:
        return shard.share.heartbeat(request, client_id, client_host, now)
    except KafkaError as error:
        return Outcome(response=_refuse(error))


def _refuse(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
