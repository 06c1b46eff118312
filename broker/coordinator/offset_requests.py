"""Checks the topics of offset requests against the metadata, and puts responses together.

Groups know topics by name; from v10 on clients name them by id (KIP-848). What the metadata does
not know is answered here and never reaches a group: UNKNOWN_TOPIC_OR_PARTITION by name,
UNKNOWN_TOPIC_ID by id. Responses keep the order of the request. Called by the coordinator handlers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kraftrio.broker.coordinator.ports import Metadata
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

TOPIC_ID_VERSION = 10
GROUPS_VERSION = 8
TOP_LEVEL_ERROR_VERSION = 2

_FETCH_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


# --- OffsetCommit ---


@dataclass(slots=True)
class ResolvedCommit:
    """A commit's request with only the partitions that exist, and the errors of the others."""

    request: OffsetCommitRequest
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
    """Every topic of the request, in its order, with the errors known so far."""

    @property
    def has_partitions(self) -> bool:
        return bool(self.request.topics)

    def response(self, committed: Sequence[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
        """Put the group's answer into the request's order."""
        codes = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in committed
            for partition in topic.partitions
        }
        for topic in self.topics:
            for partition in topic.partitions:
                key = topic.name, partition.partition_index
                partition.error_code = codes.get(key, partition.error_code)
        return OffsetCommitResponse(topics=self.topics)

    def error_response(self, error: ErrorCode) -> OffsetCommitResponse:
        """Answer with one error for all that the group was asked to commit."""
        return self.response(
            [
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=error
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in self.request.topics
            ]
        )


def resolve_commit(
    request: OffsetCommitRequest, api_version: int, metadata: Metadata
) -> ResolvedCommit:
    """Find names and ids of a commit's topics, and set aside what does not exist."""
    resolved = ResolvedCommit(
        OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
        )
    )
    for topic in request.topics:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if api_version >= TOPIC_ID_VERSION:
            name, topic_id = metadata.topic_name(topic.topic_id) or "", topic.topic_id
            error = error if name else ErrorCode.UNKNOWN_TOPIC_ID
        else:
            name, topic_id = topic.name, metadata.topic_id(topic.name)
        known = [
            partition
            for partition in topic.partitions
            if name and metadata.partition(name, partition.partition_index) is not None
        ]
        resolved.topics.append(
            OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                    for partition in topic.partitions
                ],
            )
        )
        if known:
            resolved.request.topics.append(
                OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=known)
            )
    return resolved


# --- OffsetFetch ---


@dataclass(slots=True)
class ResolvedFetch:
    """One group of a fetch with the topics that have a name, and the answers for the others."""

    request: OffsetFetchRequestGroup
    unknown: list[OffsetFetchResponseTopics] = field(default_factory=list)

    def response(self, fetched: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        fetched.topics += self.unknown
        return fetched

    def error_response(self, error: ErrorCode) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(
            group_id=self.request.group_id, error_code=fetch_error(error)
        )


def fetch_error(error: ErrorCode) -> ErrorCode:
    """Translate a failure into what a fetching client retries with the right coordinator."""
    return _FETCH_ERRORS.get(error, error)


def resolve_fetch(
    group: OffsetFetchRequestGroup, api_version: int, metadata: Metadata
) -> ResolvedFetch:
    """Find names and ids of a group's topics; by name, a topic need not exist."""
    request = OffsetFetchRequestGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch
    )
    resolved = ResolvedFetch(request)
    if group.topics is None:
        request.topics = None
        return resolved
    topics = request.topics = []
    for topic in group.topics:
        if api_version < TOPIC_ID_VERSION:
            name, topic_id = topic.name, metadata.topic_id(topic.name)
        else:
            name, topic_id = metadata.topic_name(topic.topic_id) or "", topic.topic_id
        if name or api_version < TOPIC_ID_VERSION:
            topics.append(
                OffsetFetchRequestTopics(
                    name=name, topic_id=topic_id, partition_indexes=topic.partition_indexes
                )
            )
        else:
            resolved.unknown.append(
                OffsetFetchResponseTopics(
                    topic_id=topic_id,
                    partitions=[
                        _no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID)
                        for index in topic.partition_indexes
                    ],
                )
            )
    return resolved


def add_topic_ids(fetched: OffsetFetchResponseGroup, metadata: Metadata) -> None:
    """Name the topics of an answer for all topics by id; deleted ones have none and go."""
    named = []
    for topic in fetched.topics:
        if metadata.topic(topic.name) is not None:
            topic.topic_id = metadata.topic_id(topic.name)
            named.append(topic)
    fetched.topics = named


def single_group_response(
    group: OffsetFetchResponseGroup,
    asked: Sequence[OffsetFetchRequestTopics] | None,
    api_version: int,
) -> OffsetFetchResponse:
    """Answer in the layout of v0-7, which knows one group."""
    topics = group.topics
    error = ErrorCode(group.error_code)
    if error is not ErrorCode.NONE:
        if api_version >= TOP_LEVEL_ERROR_VERSION:
            return OffsetFetchResponse(error_code=error)
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_no_offset(index, error) for index in topic.partition_indexes],
            )
            for topic in asked or ()
        ]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _no_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )


# --- OffsetDelete ---


def resolve_delete(
    request: OffsetDeleteRequest, metadata: Metadata
) -> tuple[OffsetDeleteRequest, Mapping[tuple[str, int], ErrorCode]]:
    """Give the request with the partitions that exist, and the errors of the others."""
    known = OffsetDeleteRequest(group_id=request.group_id)
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            if metadata.partition(topic.name, partition.partition_index) is not None:
                partitions.append(partition)
            else:
                key = topic.name, partition.partition_index
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partitions:
            known.topics.append(OffsetDeleteRequestTopic(name=topic.name, partitions=partitions))
    return known, errors


def merge_delete(
    request: OffsetDeleteRequest,
    errors: Mapping[tuple[str, int], ErrorCode],
    deleted: OffsetDeleteResponse,
) -> OffsetDeleteResponse:
    """Put a group's answer and the errors into the request's order."""
    if deleted.error_code:
        return OffsetDeleteResponse(error_code=deleted.error_code)
    codes: dict[tuple[str, int], int] = dict(errors)
    for deleted_topic in deleted.topics:
        for outcome in deleted_topic.partitions:
            codes[deleted_topic.name, outcome.partition_index] = outcome.error_code
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
