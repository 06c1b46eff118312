"""Checks the topics of offset requests against the metadata, and puts responses together.

Groups know topics by name; from v10 on clients name them by id (KIP-848). What the metadata does
not know is answered here and never reaches a group: UNKNOWN_TOPIC_OR_PARTITION by name,
UNKNOWN_TOPIC_ID by id. Nor does what the client may not see or read: TOPIC_AUTHORIZATION_FAILED.
Responses keep the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field

from kraftrio.broker.coordinator.groups.offset_commit import NamedPartition, OffsetCommit
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
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


def code_of_commit(committed: OffsetCommit) -> Callable[[str, int], ErrorCode | None]:
    """What a group has said of each partition (topic, index) of a commit; None: nothing."""
    refused, stored = committed.refused, committed.change.topics

    def code_of(topic: str, index: int) -> ErrorCode | None:
        if (topic, index) in refused:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE if index in stored.get(topic, ()) else None

    return code_of


class ResolvedCommit:
    """A commit's partitions by name, where they exist; makes the response for all.

    Args:
        readable: the topics that the client may read.
    """

    def __init__(
        self,
        request: OffsetCommitRequest,
        api_version: int,
        metadata: MetadataCache,
        readable: Container[str],
    ) -> None:
        self._request = request
        self._readable = readable
        self._by_id = api_version >= TOPIC_ID_VERSION
        self._metadata = metadata

    def partitions(self) -> Iterator[NamedPartition | None]:
        """What the request names, in its order; None in the place of what does not exist.

        A topic that names no partition counts as one that does not exist, so that many of them
        are many small steps, too.
        """
        for topic in self._request.topics:
            name, topic_id = self.name_of(topic), self.id_of(topic)
            if not topic.partitions:
                yield None
            for partition in topic.partitions:
                if self.exists(name, partition.partition_index):
                    yield NamedPartition(name, topic_id, partition)
                else:
                    yield None

    def name_of(self, topic: OffsetCommitRequestTopic) -> str:
        """The topic's name; empty when its id is unknown."""
        return (self._metadata.topic_name(topic.topic_id) or "") if self._by_id else topic.name

    def id_of(self, topic: OffsetCommitRequestTopic) -> bytes:
        """The topic's id."""
        return topic.topic_id if self._by_id else self._metadata.topic_id(topic.name)

    def exists(self, name: str, index: int) -> bool:
        """Whether offsets of a partition can be committed."""
        return (
            bool(name)
            and name in self._readable
            and self._metadata.partition(name, index) is not None
        )

    def response(self, committed: OffsetCommit) -> OffsetCommitResponse:
        """Put what the group has taken, and refused, into the request's order."""
        return self._answer(code_of_commit(committed))

    def error_response(self, error: ErrorCode) -> OffsetCommitResponse:
        """Answer with one error for all that the group was asked to commit."""
        return self._answer(lambda name, index: error if self.exists(name, index) else None)

    def _answer(self, code_of: Callable[[str, int], ErrorCode | None]) -> OffsetCommitResponse:
        def answer(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
            name, unknown = self.name_of(topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if self._by_id and not name:
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            elif name not in self._readable:
                unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED

            def answer_partition(
                asked: OffsetCommitRequestPartition,
            ) -> OffsetCommitResponsePartition:
                code = code_of(name, asked.partition_index)
                return OffsetCommitResponsePartition(
                    partition_index=asked.partition_index,
                    error_code=unknown if code is None else code,
                )

            return OffsetCommitResponseTopic(
                name=name,
                topic_id=self.id_of(topic),
                partitions=each(answer_partition, topic.partitions),
            )

        return OffsetCommitResponse(topics=each(answer, self._request.topics))


# --- OffsetFetch ---


@dataclass(slots=True)
class ResolvedFetch:
    """One group of a fetch with the topics that it is asked about, and answers for the others."""

    request: OffsetFetchRequestGroup
    refused: list[OffsetFetchResponseTopics] = field(default_factory=list)

    def response(self, fetched: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        fetched.topics += self.refused
        return fetched

    def error_response(self, error: ErrorCode) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(
            group_id=self.request.group_id, error_code=fetch_error(error)
        )


def fetch_error(error: ErrorCode) -> ErrorCode:
    """Translate a failure into what a fetching client retries with the right coordinator."""
    return _FETCH_ERRORS.get(error, error)


def resolve_fetch(
    group: OffsetFetchRequestGroup,
    api_version: int,
    metadata: MetadataCache,
    describable: Container[str],
) -> ResolvedFetch:
    """Find names and ids of a group's topics; by name, a topic need not exist.

    Args:
        describable: the topics that the client may describe.
    """
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
        code = ErrorCode.NONE
        if not name and api_version >= TOPIC_ID_VERSION:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif name not in describable:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if code is ErrorCode.NONE:
            topics.append(
                OffsetFetchRequestTopics(
                    name=name, topic_id=topic_id, partition_indexes=topic.partition_indexes
                )
            )
        else:
            resolved.refused.append(
                OffsetFetchResponseTopics(
                    name=name,
                    topic_id=topic_id,
                    partitions=[no_offset(index, code) for index in topic.partition_indexes],
                )
            )
    return resolved


def add_topic_ids(fetched: OffsetFetchResponseGroup, metadata: MetadataCache) -> None:
    """Fill in the topic ids of a fetch of all topics; topics that were deleted are left out."""
    named = []
    for topic in fetched.topics:
        if metadata.topic(topic.name) is not None:
            topic.topic_id = metadata.topic_id(topic.name)
            named.append(topic)
    fetched.topics = named


def fetch_response(
    groups: Iterable[OffsetFetchRequestGroup],
    answers: list[OffsetFetchResponseGroup],
    api_version: int,
) -> OffsetFetchResponse:
    """Put the answers for groups into a response; versions 0 to 7 know one group."""
    if api_version >= GROUPS_VERSION:
        return OffsetFetchResponse(groups=answers)
    (group,), (answer,) = groups, answers
    return _single_group_response(answer, group.topics, api_version)


def _single_group_response(
    group: OffsetFetchResponseGroup,
    asked: list[OffsetFetchRequestTopics] | None,
    api_version: int,
) -> OffsetFetchResponse:
    error = group.error_code
    if error is not ErrorCode.NONE:
        if api_version >= TOP_LEVEL_ERROR_VERSION:
            return OffsetFetchResponse(error_code=error)
        return OffsetFetchResponse(
            topics=each(
                lambda topic: OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=each(
                        lambda index: _single_group_partition(no_offset(index, error)),
                        topic.partition_indexes,
                    ),
                ),
                asked or [],
            )
        )
    return OffsetFetchResponse(
        topics=each(
            lambda topic: OffsetFetchResponseTopic(
                name=topic.name, partitions=each(_single_group_partition, topic.partitions)
            ),
            group.topics,
        )
    )


def _single_group_partition(
    partition: OffsetFetchResponsePartitions,
) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def no_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    """Answer for a partition without an offset, or with an error."""
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )


# --- OffsetDelete ---


def resolve_delete(
    request: OffsetDeleteRequest, metadata: MetadataCache, readable: Container[str]
) -> Slices[OffsetDeleteRequest]:
    """Give the request with the partitions that exist, each once, of topics that are readable."""
    known: dict[str, dict[int, OffsetDeleteRequestPartition]] = {}
    for topic in request.topics:
        for partition in topic.partitions if topic.name in readable else ():
            if metadata.partition(topic.name, partition.partition_index) is not None:
                known.setdefault(topic.name, {})[partition.partition_index] = partition
            yield
        yield
    return OffsetDeleteRequest(
        group_id=request.group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=list(partitions.values()))
            for name, partitions in known.items()
        ],
    )


def merge_delete(
    request: OffsetDeleteRequest, deleted: OffsetDeleteResponse, readable: Container[str]
) -> OffsetDeleteResponse:
    """Put a group's answer, and the errors of what does not exist, into the request's order."""
    if deleted.error_code:
        return OffsetDeleteResponse(error_code=deleted.error_code)
    codes = {
        (topic.name, outcome.partition_index): outcome.error_code
        for topic in deleted.topics
        for outcome in topic.partitions
    }

    def answer(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.name not in readable:
            unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED

        def answer_partition(
            asked: OffsetDeleteRequestPartition,
        ) -> OffsetDeleteResponsePartition:
            index = asked.partition_index
            code = codes.get((topic.name, index), unknown)
            return OffsetDeleteResponsePartition(partition_index=index, error_code=code)

        return OffsetDeleteResponseTopic(
            name=topic.name, partitions=each(answer_partition, topic.partitions)
        )

    return OffsetDeleteResponse(topics=each(answer, request.topics))
