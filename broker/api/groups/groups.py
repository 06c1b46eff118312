"""Serves the requests about groups: membership, offsets, administration.

Behaviour
- Requests go to the shard of the group's partition; this module knows the layouts of the versions,
  what is checked before a group is asked, and how each response reports a failure.

Version notes
- OffsetCommit and OffsetFetch 10 name topics by id; OffsetFetch 8 asks for several groups.
- OffsetFetch 0-1 has no error for the whole request; LeaveGroup 0-2 has one member.
- JoinGroup 0 has no rebalance timeout: the session timeout counts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from kraftrio.base.deferred import Deferred, gather
from kraftrio.broker.api.groups.long_requests import (
    LongOffsetFetch,
    assignments_of_members,
    chosen_of,
    delete_groups,
    delete_of_partition,
    delete_offsets,
    delete_offsets_in_parts,
    is_long,
    is_long_fetch,
    is_share_group,
    leave,
)
from kraftrio.broker.api.groups.offset_requests import (
    GROUPS_VERSION,
    TOPIC_ID_VERSION,
    ResolvedCommit,
    ResolvedFetch,
    add_topic_ids,
    fetch_response,
    merge_delete,
    resolve_delete,
    resolve_fetch,
)
from kraftrio.broker.api.shared.authorized_operations import group_operations
from kraftrio.broker.api.shared.permitted_topics import PermittedTopics, is_visible
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.classic.joins import Client
from kraftrio.broker.coordinator.groups.group import Group
from kraftrio.broker.coordinator.groups.offset_commit import Committer, OffsetCommit
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.groups.shard.administration import (
    GROUP_STATES,
    GROUP_TYPES,
    listed_group,
)
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.peers.share_state_client import ShareStateClient
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import Countable, each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kraftrio.wire.protocol.api import ApiKey

T = TypeVar("T")
U = TypeVar("U")

_LEAVE_MEMBERS_VERSION = 3
_NULLABLE_PROTOCOL_VERSION = 7
_SYNC_PROTOCOL_VERSION = 5


class GroupHandlers:
    """Handlers of one broker.

    Args:
        share_states: the share coordinators, for share groups that are deleted.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        properties: GroupProperties,
        share_states: ShareStateClient,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._properties = properties
        self._share_states = share_states

    def table(self) -> HandlerTable:
        return {
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.OFFSET_COMMIT: self.offset_commit,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.OFFSET_DELETE: self.offset_delete,
            ApiKey.DESCRIBE_GROUPS: self.describe_groups,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete_groups,
        }

    # --- membership ---

    def join_group(
        self, request: JoinGroupRequest, context: RequestContext
    ) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
        error = self._check_join(request)
        if error is not ErrorCode.NONE:
            return _join_error(request, context, error)
        if request.rebalance_timeout_ms < 0:  # v0 has none
            request.rebalance_timeout_ms = request.session_timeout_ms
        client = Client(
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            api_version=context.api_version,
        )
        joined = self._coordinator.write_parked(
            request.group_id,
            lambda shard, ticket, now: shard.classic_requests.join(request, client, ticket, now),
            lambda code: JoinGroupResponse(member_id=request.member_id, error_code=code),
        )
        return _map(joined, lambda response: _fit_join_response(response, context.api_version))

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if is_long(request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        properties = self._properties
        lowest = properties.group_min_session_timeout_ms
        if not lowest <= request.session_timeout_ms <= properties.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def sync_group(
        self, request: SyncGroupRequest, context: RequestContext
    ) -> Work[SyncGroupResponse | Deferred[SyncGroupResponse]]:
        if context.api_version >= _SYNC_PROTOCOL_VERSION and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        if is_long(request.assignments):
            request.assignments = yield from assignments_of_members(self._coordinator, request)
        return _now_or_later(
            self._coordinator.write_parked(
                request.group_id,
                lambda shard, ticket, now: shard.classic_requests.sync(request, ticket, now),
                lambda code: SyncGroupResponse(error_code=code),
            )
        )

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            return self._coordinator.read(
                request.group_id, lambda shard, now: shard.classic_requests.heartbeat(request, now)
            )
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The member is probably fine; its session restarts once loading is done.
                return HeartbeatResponse()
            return HeartbeatResponse(error_code=error.code)

    def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> LeaveGroupResponse | Deferred[LeaveGroupResponse] | Work[LeaveGroupResponse]:
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        members = request.members
        if context.api_version < _LEAVE_MEMBERS_VERSION:
            members = [MemberIdentity(member_id=request.member_id)]
        if is_long(members):
            return leave(self._coordinator, request.group_id, members)
        left = self._coordinator.write(
            request.group_id,
            lambda shard, now: shard.classic_requests.leave(request.group_id, members, now),
            lambda code: LeaveGroupResponse(error_code=code),
        )
        return _map(left, lambda response: _fit_leave_response(response, context.api_version))

    # --- offsets ---

    def offset_commit(self, request: OffsetCommitRequest, context: RequestContext) -> Work[Any]:
        readable = PermittedTopics(context, AclOperation.READ)
        resolved = ResolvedCommit(request, context.api_version, self._metadata, readable)
        committer = Committer(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
        )
        try:
            commit = yield from self._coordinator.read(
                request.group_id,
                lambda shard, now: shard.prepare_commit(
                    committer,
                    resolved.partitions(),
                    now,
                    retention_time_ms=request.retention_time_ms,
                ),
            )
        except KafkaError as error:
            return resolved.error_response(error.code)
        if commit.is_empty:
            return resolved.response(commit)
        committed: Deferred[OffsetCommit | OffsetCommitResponse] = self._coordinator.write(
            request.group_id,
            lambda shard, now: shard.commit_offsets(commit, context.api_version, now),
            resolved.error_response,
        )
        return _map(
            committed,
            lambda done: resolved.response(done) if isinstance(done, OffsetCommit) else done,
        )

    def offset_fetch(self, request: OffsetFetchRequest, context: RequestContext) -> Any:
        version = context.api_version
        if version >= GROUPS_VERSION:
            return self._fetch_groups(request.groups, request.require_stable, context)
        topics = None
        if request.topics is not None:
            topics = each(
                lambda topic: OffsetFetchRequestTopics(
                    name=topic.name, partition_indexes=topic.partition_indexes
                ),
                request.topics,
            )
        group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        return self._fetch_groups([group], request.require_stable, context)

    def _fetch_groups(
        self,
        groups: Countable[OffsetFetchRequestGroup],
        require_stable: bool,
        context: RequestContext,
    ) -> Any:
        version = context.api_version
        if is_long_fetch(groups):
            return self._fetch_long(groups, require_stable, context)
        fetched = [self._fetch_group(group, require_stable, context) for group in groups]
        return _map(gather(fetched), lambda answers: fetch_response(groups, answers, version))

    def _fetch_long(
        self,
        groups: Countable[OffsetFetchRequestGroup],
        require_stable: bool,
        context: RequestContext,
    ) -> Work[OffsetFetchResponse]:
        version = context.api_version
        fetch = partial(self._fetch_group, require_stable=require_stable, context=context)
        long = LongOffsetFetch(self._coordinator, self._metadata, fetch, context)
        answers = yield from long.groups(groups)
        return fetch_response(groups, answers, version)

    def _fetch_group(
        self, group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
    ) -> Deferred[OffsetFetchResponseGroup]:
        describable = PermittedTopics(context, AclOperation.DESCRIBE)
        resolved = resolve_fetch(group, context.api_version, self._metadata, describable)
        finish = partial(self._fetched, resolved, context)
        if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            return Deferred.completed(finish(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if require_stable:
            return self._coordinator.read_stable(
                group.group_id,
                lambda shard, _now: shard.fetch_offsets(resolved.request, require_stable=True),
            ).map(finish)
        fetched: OffsetFetchResponseGroup | ErrorCode
        try:
            fetched = self._coordinator.read(
                group.group_id,
                lambda shard, _now: shard.fetch_offsets(resolved.request, require_stable=False),
            )
        except KafkaError as error:
            fetched = error.code
        return Deferred.completed(finish(fetched))

    def _fetched(
        self,
        resolved: ResolvedFetch,
        context: RequestContext,
        fetched: OffsetFetchResponseGroup | ErrorCode,
    ) -> OffsetFetchResponseGroup:
        if isinstance(fetched, ErrorCode):
            return resolved.error_response(fetched)
        if resolved.request.topics is None:
            if context.api_version >= TOPIC_ID_VERSION:
                add_topic_ids(fetched, self._metadata)
            if context.is_guarded:
                fetched.topics = [
                    topic for topic in fetched.topics if is_visible(topic.name, context)
                ]
        return resolved.response(fetched)

    def offset_delete(self, request: OffsetDeleteRequest, context: RequestContext) -> Work[Any]:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        readable = PermittedTopics(context, AclOperation.READ)
        resolved = yield from resolve_delete(request, self._metadata, readable)
        if sum(len(topic.partitions) for topic in resolved.topics) > PART_ENTRIES:
            deleted = yield from delete_offsets_in_parts(self._coordinator, resolved)
            return merge_delete(request, deleted, readable)
        return _map(
            delete_offsets(self._coordinator, resolved),
            lambda response: merge_delete(request, response, readable),
        )

    # --- administration ---

    def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=each(lambda group_id: self._describe(group_id, request, context), request.groups)
        )

    def _describe(
        self, group_id: str, request: DescribeGroupsRequest, context: RequestContext
    ) -> DescribedGroup:
        if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            return DescribedGroup(
                group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
        try:
            described = self._coordinator.read(
                group_id,
                lambda shard, _now: shard.describe(group_id, api_version=context.api_version),
            )
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        if not described.error_code:
            described.authorized_operations = group_operations(
                context, group_id, is_asked=request.include_authorized_operations
            )
        return described

    def list_groups(
        self, request: ListGroupsRequest, context: RequestContext
    ) -> Work[ListGroupsResponse]:
        asked_states = (state.strip() for state in request.states_filter)
        states = yield from chosen_of(GROUP_STATES, asked_states)
        types = yield from chosen_of(GROUP_TYPES, request.types_filter)
        try:
            chosen = self._coordinator.read_all(lambda shard: shard.choose(states, types))
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code)
        listed = [group for groups in chosen for group in groups]
        if context.is_guarded and not context.may_see(AclOperation.DESCRIBE, CLUSTER):
            listed = yield from _visible_groups(listed, context)
        return ListGroupsResponse(groups=each(listed_group, listed))

    def delete_groups(self, request: DeleteGroupsRequest, context: RequestContext) -> Any:
        if not context.is_guarded:
            return self._delete_groups(request.groups_names)
        return self._delete_permitted(request.groups_names, context)

    def _delete_permitted(self, names: Countable[str], context: RequestContext) -> Work[Any]:
        """Delete those groups that the client may delete."""
        permitted, refused = [], []
        for name in names:
            if context.may(AclOperation.DELETE, ResourceType.GROUP, name):
                permitted.append(name)
            else:
                refused.append(
                    DeletableGroupResult(
                        group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
                    )
                )
            yield None
        if not permitted:
            return DeleteGroupsResponse(results=refused)
        deleted = self._delete_groups(permitted)
        if isinstance(deleted, Generator):
            deleted = yield from deleted
        if isinstance(deleted, Deferred):
            yield deleted
            deleted = deleted.value
        deleted.results = [*deleted.results, *refused]
        return deleted

    def _delete_groups(self, names: Countable[str]) -> Any:
        if is_long(names) or any(is_share_group(self._coordinator, name) for name in names):
            return delete_groups(self._coordinator, self._share_states, names)
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(names):
            by_partition.setdefault(self._coordinator.partition_for(group_id), []).append(group_id)
        deleted = [
            delete_of_partition(self._coordinator, group_ids) for group_ids in by_partition.values()
        ]
        return _map(
            gather(deleted),
            lambda results: DeleteGroupsResponse(results=[r for part in results for r in part]),
        )


def _visible_groups(groups: Iterable[Group], context: RequestContext) -> Work[list[Group]]:
    """Reduce groups to those that a client may describe."""
    visible = []
    for group in groups:
        if context.may_see(AclOperation.DESCRIBE, Resource(ResourceType.GROUP, group.group_id)):
            visible.append(group)
        yield None
    return visible


def _join_error(
    request: JoinGroupRequest, context: RequestContext, error: ErrorCode
) -> JoinGroupResponse:
    response = JoinGroupResponse(member_id=request.member_id, error_code=error)
    return _fit_join_response(response, context.api_version)


def _fit_join_response(response: JoinGroupResponse, api_version: int) -> JoinGroupResponse:
    """An absent protocol name is null from v7 on and empty before."""
    if api_version >= _NULLABLE_PROTOCOL_VERSION:
        response.protocol_name = response.protocol_name or None
    else:
        response.protocol_name = response.protocol_name or ""
    return response


def _fit_leave_response(response: LeaveGroupResponse, api_version: int) -> LeaveGroupResponse:
    """Before v3 the one member's error is the error of the request."""
    if api_version < _LEAVE_MEMBERS_VERSION and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response


def _now_or_later(deferred: Deferred[T]) -> T | Deferred[T]:
    return deferred.value if deferred.done else deferred


def _map(deferred: Deferred[T], convert: Callable[[T], U]) -> U | Deferred[U]:
    """Convert a response, at once if it is there."""
    if deferred.done:
        return convert(deferred.value)
    return deferred.map(convert)
