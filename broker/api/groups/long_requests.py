"""Requests about groups with very many entries, handled in parts.

Behaviour: as of short requests, except that each part is decided by itself: members leave, groups
and offsets are deleted, some at a time. Entries for which there is nothing take no memory: a fetch
of a million offsets keeps the few that the group has, and the rest of the response is made while it
is encoded. A commit is not cut: see `groups/offset_commit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.offset_requests import (
    TOPIC_ID_VERSION,
    fetch_error,
    no_offset,
)
from kraftrio.broker.api.groups.share_states import delete_states
from kraftrio.broker.api.shared.permitted_topics import PermittedTopics
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.groups.share.state_progress import Partitions
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.peers.share_state_client import ShareStateClient
from kraftrio.broker.security.authorizer import AclOperation, ResourceType
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES, nested_parts, parts
from kraftrio.broker.server.slices.sliced_sets import distinct
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import Countable, each, pairs
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

_DELETED_AT_ONCE = 25  # groups; each may have many offsets

_Fetched: TypeAlias = OffsetFetchResponseGroup | ErrorCode | None
"""What a group answers: offsets, an error, or None where it has none of those asked for."""


def is_long(entries: Countable[object] | None) -> bool:
    """Whether there are too many entries for one part."""
    return entries is not None and len(entries) > PART_ENTRIES


def is_long_fetch(groups: Countable[OffsetFetchRequestGroup]) -> bool:
    """Whether an OffsetFetch asks for too much at once."""
    return is_long(groups) or sum(map(_weight, groups)) > PART_ENTRIES


def _weight(group: OffsetFetchRequestGroup) -> int:
    topics = group.topics or []
    if is_long(topics):
        return len(topics)
    return len(topics) + sum(len(topic.partition_indexes) for topic in topics)


# --- membership ---


def leave(
    coordinator: GroupCoordinator, group_id: str, members: Countable[MemberIdentity]
) -> Work[LeaveGroupResponse]:
    """Remove members, some at a time."""
    codes: list[ErrorCode] = []
    for part in parts(members):
        left = _leave(coordinator, group_id, part)
        yield left
        if left.value.error_code:
            return left.value
        codes += [member.error_code for member in left.value.members]

    def answer(pair: tuple[MemberIdentity, ErrorCode]) -> MemberResponse:
        member, code = pair
        return MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=code,
        )

    return LeaveGroupResponse(members=each(answer, pairs(members, codes)))


def _leave(
    coordinator: GroupCoordinator, group_id: str, members: list[MemberIdentity]
) -> Deferred[LeaveGroupResponse]:
    return coordinator.write(
        group_id,
        lambda shard, now: shard.classic_requests.leave(group_id, members, now),
        lambda code: LeaveGroupResponse(error_code=code),
    )


def assignments_of_members(
    coordinator: GroupCoordinator, request: SyncGroupRequest
) -> Work[list[SyncGroupRequestAssignment]]:
    """Return those assignments of a SyncGroup that are for members of the group."""
    kept: list[SyncGroupRequestAssignment] = []
    for part in parts(request.assignments):
        yield None
        try:
            kept += coordinator.read(request.group_id, partial(_of_members, request.group_id, part))
        except KafkaError:
            return []  # SyncGroup itself will meet this error
    return kept


def _of_members(
    group_id: str, assignments: list[SyncGroupRequestAssignment], shard: GroupShard, _now: Now
) -> list[SyncGroupRequestAssignment]:
    return [one for one in assignments if shard.has_member(group_id, one.member_id)]


# --- offsets ---


class LongOffsetFetch:
    """One OffsetFetch with very many entries.

    Args:
        fetch: fetches few offsets of one group.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        fetch: partial[Deferred[OffsetFetchResponseGroup]],
        context: RequestContext,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._fetch = fetch
        self._by_id = context.api_version >= TOPIC_ID_VERSION
        self._context = context
        self._describable = PermittedTopics(context, AclOperation.DESCRIBE)

    def groups(
        self, groups: Countable[OffsetFetchRequestGroup]
    ) -> Work[list[OffsetFetchResponseGroup]]:
        """Answer for each group."""
        found: list[_Fetched] = []
        for group in groups:
            found.append((yield from self._find(group)))
            yield None
        return each(self._answer, pairs(groups, found))

    def _find(self, group: OffsetFetchRequestGroup) -> Work[_Fetched]:
        wanted: list[OffsetFetchRequestTopics] | None = None
        if not self._context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if group.topics is not None:
            try:
                wanted = yield from self._known(group.group_id, group.topics)
                if not wanted:
                    self._coordinator.read(group.group_id, lambda _shard, _now: None)
                    return None
            except KafkaError as error:
                return error.code
        fetched = self._fetch(
            OffsetFetchRequestGroup(
                group_id=group.group_id,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
                topics=wanted,
            )
        )
        yield fetched
        return fetched.value

    def _known(
        self, group_id: str, topics: Iterable[OffsetFetchRequestTopics]
    ) -> Work[list[OffsetFetchRequestTopics]]:
        """Reduce the topics to partitions whose offsets the group may have."""
        known: list[OffsetFetchRequestTopics] = []
        for part in nested_parts(topics, lambda topic: topic.partition_indexes):
            yield None
            for topic, indexes in part:
                name = self._name_of(topic)
                if name and name not in self._describable:
                    continue
                kept = self._coordinator.read(group_id, partial(_known, group_id, name, indexes))
                if kept:
                    known.append(
                        OffsetFetchRequestTopics(
                            name=topic.name, topic_id=topic.topic_id, partition_indexes=kept
                        )
                    )
        return known

    def _name_of(self, topic: OffsetFetchRequestTopics) -> str:
        return (self._metadata.topic_name(topic.topic_id) or "") if self._by_id else topic.name

    def _answer(self, pair: tuple[OffsetFetchRequestGroup, _Fetched]) -> OffsetFetchResponseGroup:
        group, fetched = pair
        if isinstance(fetched, ErrorCode):
            return OffsetFetchResponseGroup(
                group_id=group.group_id, error_code=fetch_error(fetched)
            )
        if group.topics is None or (fetched is not None and fetched.error_code):
            assert fetched is not None
            return fetched
        found: dict[tuple[str | bytes, int], OffsetFetchResponsePartitions] = {}
        for topic in fetched.topics if fetched is not None else ():
            for partition in topic.partitions:
                found[self._key(topic), partition.partition_index] = partition
        return OffsetFetchResponseGroup(
            group_id=group.group_id, topics=each(partial(self._answer_topic, found), group.topics)
        )

    def _key(self, topic: OffsetFetchRequestTopics | OffsetFetchResponseTopics) -> str | bytes:
        return topic.topic_id if self._by_id else topic.name

    def _answer_topic(
        self,
        found: Mapping[tuple[str | bytes, int], OffsetFetchResponsePartitions],
        topic: OffsetFetchRequestTopics,
    ) -> OffsetFetchResponseTopics:
        key = self._key(topic)
        code = ErrorCode.NONE
        if self._by_id and not self._name_of(topic):
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif self._name_of(topic) not in self._describable:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=each(
                lambda index: found.get((key, index)) or no_offset(index, code),
                topic.partition_indexes,
            ),
        )


def _known(
    group_id: str, topic: str, indexes: list[int], shard: GroupShard, _now: Now
) -> list[int]:
    return [index for index in indexes if shard.offsets.may_have(OffsetKey(group_id, topic, index))]


def delete_offsets(
    coordinator: GroupCoordinator, request: OffsetDeleteRequest
) -> Deferred[OffsetDeleteResponse]:
    """Delete offsets of one group in one step."""
    return coordinator.write(
        request.group_id,
        lambda shard, _now: shard.delete_offsets(request),
        lambda code: OffsetDeleteResponse(error_code=code),
    )


def delete_offsets_in_parts(
    coordinator: GroupCoordinator, request: OffsetDeleteRequest
) -> Work[OffsetDeleteResponse]:
    """Delete offsets of one group, some at a time; an error of the request ends it."""
    topics: list[OffsetDeleteResponseTopic] = []
    for part in nested_parts(request.topics, lambda topic: topic.partitions):
        asked = OffsetDeleteRequest(
            group_id=request.group_id,
            topics=[
                OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)
                for topic, partitions in part
            ],
        )
        deleted = delete_offsets(coordinator, asked)
        yield deleted
        if deleted.value.error_code:
            return deleted.value
        topics += deleted.value.topics
    return OffsetDeleteResponse(topics=topics)


# --- administration ---


def chosen_of(known: frozenset[str], names: Iterable[str]) -> Work[list[str]]:
    """Reduce a filter to the known names in it, and one that is not if any is."""
    chosen: dict[str, None] = {}
    for name in names:
        lowered = name.lower()
        chosen[lowered if lowered in known else ""] = None
        yield None
    return list(chosen)


def delete_groups(
    coordinator: GroupCoordinator, share_states: ShareStateClient, group_ids: Countable[str]
) -> Work[DeleteGroupsResponse]:
    """Delete groups, a few of one coordinator partition at a time.

    Of share groups the states of share partitions are deleted first; one whose states are not
    deleted stays, to be deleted by the next request.
    """
    names = yield from distinct(group_ids)
    codes: dict[str, ErrorCode] = {}
    for group_id in names:
        if is_share_group(coordinator, group_id):
            code = yield from _delete_share_states(coordinator, share_states, group_id)
            if code is not ErrorCode.NONE:
                codes[group_id] = code
        yield None
    for part in parts(group_id for group_id in names if group_id not in codes):
        by_partition: dict[int, list[str]] = {}
        for group_id in part:
            by_partition.setdefault(coordinator.partition_for(group_id), []).append(group_id)
        for of_partition in by_partition.values():
            for some in parts(of_partition, _DELETED_AT_ONCE):
                deleted = delete_of_partition(coordinator, some)
                yield deleted
                codes.update((one.group_id, one.error_code) for one in deleted.value)
    return DeleteGroupsResponse(
        results=each(
            lambda group_id: DeletableGroupResult(group_id=group_id, error_code=codes[group_id]),
            names,
        )
    )


def is_share_group(coordinator: GroupCoordinator, group_id: str) -> bool:
    """Whether a group is a share group that this broker coordinates."""
    try:
        return coordinator.read(group_id, lambda shard, _now: shard.share.has(group_id))
    except KafkaError:
        return False  # which its deletion says, too


def _delete_share_states(
    coordinator: GroupCoordinator, share_states: ShareStateClient, group_id: str
) -> Work[ErrorCode]:
    """Delete the states of a share group at the share coordinators."""

    def begin(shard: GroupShard, now: Now) -> Outcome:
        try:
            return shard.share.states.begin_deletion_of_group(group_id, now)
        except KafkaError as error:
            return Outcome(response=error.code)

    begun: Deferred[Partitions | ErrorCode] = coordinator.write(group_id, begin, lambda code: code)
    yield begun
    if isinstance(begun.value, ErrorCode):
        return begun.value
    codes = yield from delete_states(share_states, group_id, begun.value)
    return next((code for code in codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)


def delete_of_partition(
    coordinator: GroupCoordinator, group_ids: list[str]
) -> Deferred[list[DeletableGroupResult]]:
    """Delete groups that belong to one coordinator partition, in one step."""

    def fail(code: ErrorCode) -> list[DeletableGroupResult]:
        return [DeletableGroupResult(group_id=g, error_code=code) for g in group_ids]

    return coordinator.write(group_ids[0], lambda shard, _now: shard.delete_groups(group_ids), fail)
