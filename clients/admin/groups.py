"""The admin client's part for groups: which there are, their members, their committed offsets.

Called by: `admin`. KIP-88, KIP-229, KIP-396, KIP-518, KIP-709, KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraftrio.clients.admin.calls import (
    AdminCalls,
    Deadline,
    by_topic,
    checked_group_ids,
    codes_of_groups,
    collect,
    describe_one,
    for_each_group,
)
from kraftrio.clients.admin.types import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    Results,
)
from kraftrio.clients.arguments.several import (
    Partitions,
    Texts,
    by_item,
    texts,
    topic_partition,
    topic_partitions,
)
from kraftrio.clients.arguments.values import MAX_INT32, text, whole_number
from kraftrio.clients.errors import (
    GroupIdNotFoundError,
    KafkaClientError,
    UnsupportedVersionError,
    error_for,
)
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.group_records.classic import decode_assignment
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kraftrio.wire.primitives import TopicPartition, indexes_by_topic
from kraftrio.wire.protocol.api import ApiKey

# Offsets of groups name topics by name up to here, later by id.
_LAST_VERSION_WITH_NAMES = 9
_FIRST_VERSION_WITH_GROUPS = 8
_CLASSIC_MEMBER = 0  # a member's type; 1 is one of the consumer protocol


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


async def list_groups(
    calls: AdminCalls,
    deadline: Deadline,
    *,
    states: Texts = (),
    types: Texts = (),
    protocol_types: Texts = (),
) -> list[GroupListing]:
    """Return the groups of all brokers; empty filters let everything through."""
    request = ListGroupsRequest(
        states_filter=texts("states", states, "a state"),
        types_filter=texts("types", types, "a type"),
    )
    wanted = set(texts("protocol_types", protocol_types, "a protocol type"))
    cluster = calls.cluster
    await cluster.refresh(timeout_s=deadline.left_s)
    found: dict[str, GroupListing] = {}
    for node_id in sorted(cluster.metadata.brokers):
        response = await _list_groups_of(calls, node_id, request, deadline)
        for group in response.groups:
            if wanted and group.protocol_type not in wanted:
                continue
            found[group.group_id] = GroupListing(
                group.group_id, group.protocol_type, group.group_state, group.group_type
            )
    return [found[group_id] for group_id in sorted(found)]


async def _list_groups_of(
    calls: AdminCalls, node_id: int, request: ListGroupsRequest, deadline: Deadline
) -> ListGroupsResponse:
    while True:
        failure: KafkaClientError
        try:
            response: ListGroupsResponse = await calls.cluster.request(
                node_id, request, deadline.request_timeout_s
            )
            if response.error_code == ErrorCode.NONE:
                return response
            failure = error_for(response.error_code)
        except KafkaClientError as error:
            failure = error
        if not failure.retriable or not await deadline.pause():
            raise failure


async def describe_groups(
    calls: AdminCalls,
    deadline: Deadline,
    group_ids: Texts,
) -> Results[str, GroupDescription]:
    """Return groups' states and members, of the classic and the consumer protocol."""

    async def describe(group_id: str) -> GroupDescription:
        try:
            return await _describe_consumer(calls, group_id, deadline)
        except (GroupIdNotFoundError, UnsupportedVersionError):
            return await _describe_classic(calls, group_id, deadline)

    return await for_each_group(group_ids, describe)


async def _describe_consumer(
    calls: AdminCalls, group_id: str, deadline: Deadline
) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    node_id, reported = await describe_one(calls, group_id, request, deadline)
    return _consumer_description(reported, node_id)


async def _describe_classic(
    calls: AdminCalls, group_id: str, deadline: Deadline
) -> GroupDescription:
    node_id, response = await calls.ask_coordinator(
        group_id,
        DescribeGroupsRequest(groups=[group_id]),
        deadline,
        codes_of_groups,
    )
    reported = response.groups[0]
    code = reported.error_code
    if code == ErrorCode.NONE and reported.group_state == "Dead":
        code = ErrorCode.GROUP_ID_NOT_FOUND  # as brokers before version 6 say it
    if code != ErrorCode.NONE:
        raise error_for(code, reported.error_message)
    return _classic_description(reported, node_id)


async def delete_groups(
    calls: AdminCalls,
    deadline: Deadline,
    group_ids: Texts,
) -> Results[str, None]:
    """Delete groups that have no members, with their committed offsets."""
    codes: list[tuple[str, ErrorCode, str | None, None]] = []
    for group_id in checked_group_ids(group_ids):
        try:
            _, response = await calls.ask_coordinator(
                group_id, DeleteGroupsRequest(groups_names=[group_id]), deadline, _codes_deleted
            )
            codes.append((group_id, response.results[0].error_code, None, None))
        except KafkaClientError as error:
            codes.append((group_id, error.code, str(error), None))
    return collect(codes)


async def remove_members(
    calls: AdminCalls,
    deadline: Deadline,
    group_id: str,
    group_instance_ids: Texts | None,
    reason: str,
) -> Results[str, None]:
    """Take static members, or all members, out of a group."""
    text("group_id", group_id)
    text("reason", reason)
    if group_instance_ids is None:
        described = await describe_groups(calls, deadline, [group_id])
        removed = [
            MemberIdentity(
                member_id=member.member_id if member.group_instance_id is None else "",
                group_instance_id=member.group_instance_id,
                reason=reason,
            )
            for member in described[group_id].members
        ]
    else:
        removed = [
            MemberIdentity(group_instance_id=each, reason=reason)
            for each in texts("group_instance_ids", group_instance_ids, "a group_instance_id")
        ]
    if not removed:
        return Results({}, {})
    _, response = await calls.ask_coordinator(
        group_id,
        LeaveGroupRequest(group_id=group_id, members=removed),
        deadline,
        lambda answer: [answer.error_code],
    )
    if response.error_code != ErrorCode.NONE:
        raise error_for(response.error_code)
    return collect(
        (member.group_instance_id or member.member_id, member.error_code, None, None)
        for member in response.members
    )


async def list_group_offsets(
    calls: AdminCalls,
    deadline: Deadline,
    group_id: str,
    partitions: Partitions | None = None,
    *,
    require_stable: bool = False,
) -> Results[TopicPartition, CommittedOffset | None]:
    """Return what a group has committed; None for a partition without."""
    text("group_id", group_id)
    wanted = None
    if partitions is not None:
        wanted = sorted(topic_partitions("partitions", partitions))
    version = await _coordinator_version(calls, group_id, ApiKey.OFFSET_FETCH, deadline)
    _, response = await calls.ask_coordinator(
        group_id,
        _offset_fetch(group_id, wanted, require_stable, version),
        deadline,
        _codes_of_offsets,
        max_version=version,
    )
    return _read_offsets(response)


async def alter_group_offsets(
    calls: AdminCalls,
    deadline: Deadline,
    group_id: str,
    offsets: Mapping[TopicPartition, int | CommittedOffset],
) -> Results[TopicPartition, None]:
    """Commit offsets for a group that has no members."""
    text("group_id", group_id)
    wanted = {topic_partition(item): offset for item, offset in by_item("offsets", offsets).items()}
    topics = [
        OffsetCommitRequestTopic(
            name=topic, partitions=[_commit(item, wanted[item]) for item in part]
        )
        for topic, part in by_topic(wanted)
    ]
    _, response = await calls.ask_coordinator(
        group_id,
        OffsetCommitRequest(group_id=group_id, topics=topics),
        deadline,
        _codes_of_partitions,
        max_version=_LAST_VERSION_WITH_NAMES,
    )
    return _partition_results(response)


async def delete_group_offsets(
    calls: AdminCalls,
    deadline: Deadline,
    group_id: str,
    partitions: Partitions,
) -> Results[TopicPartition, None]:
    """Forget what a group has committed for partitions that no member is subscribed to."""
    text("group_id", group_id)
    wanted = sorted(topic_partitions("partitions", partitions))
    topics = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
        )
        for topic, indexes in indexes_by_topic(wanted).items()
    ]
    _, response = await calls.ask_coordinator(
        group_id,
        OffsetDeleteRequest(group_id=group_id, topics=topics),
        deadline,
        lambda answer: [answer.error_code],
    )
    if response.error_code != ErrorCode.NONE:
        raise error_for(response.error_code)
    return _partition_results(response)


async def _coordinator_version(
    calls: AdminCalls, group_id: str, api_key: int, deadline: Deadline
) -> int:
    """Return the version to use with a group's coordinator."""
    cluster = calls.cluster
    while True:
        failure: KafkaClientError
        try:
            node_id = await cluster.coordinators.find(
                group_id, timeout_s=deadline.request_timeout_s
            )
            return await cluster.version(
                node_id,
                api_key,
                deadline.request_timeout_s,
                max_version=_LAST_VERSION_WITH_NAMES,
            )
        except KafkaClientError as error:
            failure = error
        cluster.coordinators.forget(group_id)
        if not failure.retriable or not await deadline.pause():
            raise failure


def _codes_deleted(response: DeleteGroupsResponse) -> list[ErrorCode]:
    return [group.error_code for group in response.results]


def _codes_of_offsets(response: OffsetFetchResponse) -> list[ErrorCode]:
    return [response.error_code, *(group.error_code for group in response.groups)]


def _codes_of_partitions(response: OffsetCommitResponse | OffsetDeleteResponse) -> list[ErrorCode]:
    return [reported.error_code for topic in response.topics for reported in topic.partitions]


def _partition_results(
    response: OffsetCommitResponse | OffsetDeleteResponse,
) -> Results[TopicPartition, None]:
    return collect(
        (TopicPartition(topic.name, reported.partition_index), reported.error_code, None, None)
        for topic in response.topics
        for reported in topic.partitions
    )


def _commit(item: TopicPartition, committed: int | CommittedOffset) -> OffsetCommitRequestPartition:
    if not isinstance(committed, CommittedOffset):
        committed = CommittedOffset(committed)
    epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
    return OffsetCommitRequestPartition(
        partition_index=item.partition,
        committed_offset=whole_number("an offset", committed.offset),
        committed_leader_epoch=whole_number("a leader epoch", epoch, -1, MAX_INT32),
        committed_metadata=text("the metadata of a commit", committed.metadata),
    )


def _offset_fetch(
    group_id: str, wanted: list[TopicPartition] | None, require_stable: bool, version: int
) -> OffsetFetchRequest:
    named = None if wanted is None else list(indexes_by_topic(wanted).items())
    if version < _FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if named is None
            else [
                OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in named
            ],
            require_stable=require_stable,
        )
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        topics=None
        if named is None
        else [
            OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in named
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def _read_offsets(
    response: OffsetFetchResponse,
) -> Results[TopicPartition, CommittedOffset | None]:
    code = response.groups[0].error_code if response.groups else response.error_code
    if code != ErrorCode.NONE:
        raise error_for(code)
    reported = [
        (topic.name, partition)
        for topic in (response.groups[0].topics if response.groups else response.topics)
        for partition in topic.partitions
    ]
    return collect(
        (
            TopicPartition(name, item.partition_index),
            item.error_code,
            None,
            None
            if item.committed_offset < 0
            else CommittedOffset(
                item.committed_offset,
                item.committed_leader_epoch if item.committed_leader_epoch >= 0 else None,
                item.metadata or "",
            ),
        )
        for name, item in reported
    )


def _consumer_description(
    reported: ConsumerGroupDescribeDescribedGroup, node_id: int
) -> GroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            member.member_epoch,
            _partitions(member.target_assignment),
            frozenset(member.subscribed_topic_names),
            member.subscribed_topic_regex or None,
            member.rack_id,
            None if member.member_type < 0 else member.member_type == _CLASSIC_MEMBER,
        )
        for member in reported.members
    ]
    return GroupDescription(
        reported.group_id,
        "consumer",
        reported.group_state,
        "consumer",
        reported.assignor_name,
        node_id,
        tuple(members),
        reported.group_epoch,
        reported.assignment_epoch,
    )


def _partitions(assignment: ConsumerGroupDescribeAssignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_description(reported: DescribedGroup, node_id: int) -> GroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _classic_assignment(member) if reported.protocol_type == "consumer" else frozenset(),
        )
        for member in reported.members
    ]
    return GroupDescription(
        reported.group_id,
        "classic",
        reported.group_state,
        reported.protocol_type,
        reported.protocol_data,
        node_id,
        tuple(members),
    )


def _classic_assignment(member: DescribedGroupMember) -> frozenset[TopicPartition]:
    if not member.member_assignment:
        return frozenset()
    try:
        assignment = decode_assignment(member.member_assignment)
    except RemoteProtocolError:
        return frozenset()  # written by a member in a format of its own
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )
