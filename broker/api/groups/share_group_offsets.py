"""Serves the administration of share groups' offsets (KIP-932): described, altered, deleted.

The offsets are those of share partitions, which the share coordinator keeps. So a request is
answered in steps: the group's coordinator says which share partitions it is about, their share
coordinators are asked, and where something has changed the group's coordinator notes that.

Behaviour
- All are refused with UNSUPPORTED_VERSION unless `share.version` is 1.
- What a group does not know has no offset (-1), which is not an error; nor is an unknown group.
- Only offsets of a group without members are altered or deleted, each for its topic alone.

Version notes: DescribeShareGroupOffsets 1 has the lag (KIP-1226): what the group has not yet
finished with, -1 while that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.share_states import delete_states
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.coordinator.groups.share.states import Alteration, Deletion, partitions_of
from kraftrio.broker.coordinator.outcome import Now, Outcome
from kraftrio.broker.coordinator.share_initializer import ShareStateInitializer
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.peers.latest_offsets import LatestOffsets, OffsetsOrErrors
from kraftrio.broker.peers.share_state_client import ShareStateClient, StateOrError
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.share_state import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_START_OFFSET,
    SharePartitionKey,
    SharePartitionState,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey

_MAX_PARTITIONS = 10_000  # in a request, a topic without any as one; each is asked about
_MAX_ALTERED_TOPICS = 2_000  # they are decided about in one turn
_NO_LAG = -1
_MIN_LAG, _MAX_LAG = -(2**63), 2**63 - 1


class _DescribedTopic(NamedTuple):
    """One topic of a description: the partitions to ask about."""

    name: str
    topic_id: bytes
    partitions: list[int]


class ShareGroupOffsetHandlers:
    """Handlers of one broker."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        states: ShareStateClient,
        initializer: ShareStateInitializer,
        latest_offsets: LatestOffsets,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._states = states
        self._initializer = initializer
        self._latest_offsets = latest_offsets

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self.describe,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self.alter,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self.delete,
        }

    @property
    def _is_enabled(self) -> bool:
        return self._metadata.image.share_version >= 1

    def _write(
        self, group_id: str, operation: Callable[[GroupShard, Now], Outcome]
    ) -> Deferred[Any]:
        """Have a group's shard decide; the result is its response, or a KafkaError."""

        def decide(shard: GroupShard, now: Now) -> Outcome:
            try:
                return operation(shard, now)
            except KafkaError as error:
                return Outcome(response=error)

        return self._coordinator.write(
            group_id, decide, lambda code: KafkaError(code, code.sentence)
        )

    # --- DescribeShareGroupOffsets ---

    def describe(
        self, request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> Work[DescribeShareGroupOffsetsResponse]:
        """Serve DescribeShareGroupOffsets, group after group."""
        groups = []
        for asked in request.groups:
            groups.append((yield from self._describe_group(asked, context)))
            yield None
        return DescribeShareGroupOffsetsResponse(groups=groups)

    def _describe_group(
        self, asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
    ) -> Work[DescribeShareGroupOffsetsResponseGroup]:
        group_id = asked.group_id
        answer = DescribeShareGroupOffsetsResponseGroup(group_id=group_id)
        if not self._is_enabled:
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            return answer
        if not context.is_authorized(AclOperation.DESCRIBE, Resource(ResourceType.GROUP, group_id)):
            answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return answer
        try:
            if asked.topics is None:
                described = self._all_topics(group_id, context)
            else:
                described = yield from self._asked_topics(asked, answer, context)
        except KafkaError as error:
            answer.error_code, answer.error_message = (
                error.code,
                error.message or error.code.sentence,
            )
            return answer
        answer.topics[:0] = yield from self._describe_topics(group_id, described)
        return answer

    def _all_topics(self, group_id: str, context: RequestContext) -> list[_DescribedTopic]:
        """All that a group has a state of, as far as the client may know of it."""
        partitions = self._coordinator.read(
            group_id, lambda shard, _now: shard.share.states.partitions(group_id)
        )
        return [
            _DescribedTopic(name, topic_id, sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (name := self._metadata.topic_name(topic_id)) is not None
            and _may(context, AclOperation.DESCRIBE, name)
        ]

    def _asked_topics(
        self,
        asked: DescribeShareGroupOffsetsRequestGroup,
        answer: DescribeShareGroupOffsetsResponseGroup,
        context: RequestContext,
    ) -> Work[list[_DescribedTopic]]:
        """What a client asks about; the rest is answered."""
        described = []
        count = 0
        for topic in asked.topics or ():
            yield None
            count += max(len(topic.partitions), 1)
            if count > _MAX_PARTITIONS:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"The request names more than {_MAX_PARTITIONS} partitions of a group.",
                )
            partitions = []
            for index in topic.partitions:
                partitions.append(index)
                yield None
            code = ErrorCode.NONE
            if not _may(context, AclOperation.DESCRIBE, topic.topic_name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            found = self._metadata.topic(topic.topic_name)
            if code is ErrorCode.NONE and found is not None:
                described.append(_DescribedTopic(found.name, found.topic_id, partitions))
                continue
            answer.topics.append(
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    partitions=[_no_offset(index, code) for index in partitions],
                )
            )
        return described

    def _describe_topics(
        self, group_id: str, described: list[_DescribedTopic]
    ) -> Work[list[DescribeShareGroupOffsetsResponseTopic]]:
        """Ask the share coordinators, and the leaders of what has a lag."""
        summaries: dict[tuple[bytes, int], Deferred[StateOrError]] = {}
        for topic in described:
            for index in topic.partitions:
                key = SharePartitionKey(group_id, topic.topic_id, index)
                summaries[topic.topic_id, index] = self._states.read_summary(key)
                yield None
        states: dict[tuple[bytes, int], StateOrError] = {}
        for asked, answer in summaries.items():
            yield answer
            states[asked] = answer.value
        with_lag = []
        for topic in described:
            for index in topic.partitions:
                if _has_lag(states[topic.topic_id, index]):
                    with_lag.append(TopicPartition(topic.name, index))
                yield None
        ends = self._latest_offsets.ask(with_lag)
        yield ends
        answers = []
        for topic in described:
            described_topic = DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.name, topic_id=topic.topic_id
            )
            for index in topic.partitions:
                topic_partition = TopicPartition(topic.name, index)
                state = states[topic.topic_id, index]
                described_topic.partitions.append(
                    _described_partition(topic_partition, state, ends.value)
                )
                yield None
            answers.append(described_topic)
            yield None
        return answers

    # --- AlterShareGroupOffsets ---

    def alter(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> Work[AlterShareGroupOffsetsResponse]:
        """Serve AlterShareGroupOffsets."""
        group_id = request.group_id
        try:
            self._check(group_id, AclOperation.READ, context)
            allowed, refused = yield from self._allowed_topics(request, context)
        except KafkaError as error:
            return AlterShareGroupOffsetsResponse(
                error_code=error.code, error_message=error.message
            )
        decided = self._write(
            group_id, lambda shard, now: shard.share.states.alter(group_id, allowed, now)
        )
        yield decided
        if isinstance(decided.value, KafkaError):
            return AlterShareGroupOffsetsResponse(
                error_code=decided.value.code, error_message=decided.value.message
            )
        assert isinstance(decided.value, Alteration)
        topics, states = decided.value
        yield from self._initialize(states, topics)
        return AlterShareGroupOffsetsResponse(responses=refused + topics)

    def _allowed_topics(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> Work[
        tuple[list[AlterShareGroupOffsetsRequestTopic], list[AlterShareGroupOffsetsResponseTopic]]
    ]:
        """The topics whose offsets a client may alter, and answers about the others."""
        allowed: list[AlterShareGroupOffsetsRequestTopic] = []
        refused = []
        count = 0
        for topic in request.topics:
            yield None
            count += max(len(topic.partitions), 1)
            if count > _MAX_PARTITIONS or len(allowed) == _MAX_ALTERED_TOPICS:
                reason = (
                    f"The request names more than {_MAX_PARTITIONS} partitions"
                    f" or {_MAX_ALTERED_TOPICS} topics."
                )
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            code = ErrorCode.NONE
            if not _may(context, AclOperation.READ, topic.topic_name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif self._metadata.topic(topic.topic_name) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = []
            for partition in topic.partitions:
                partitions.append(partition)
                yield None
            if code is ErrorCode.NONE:
                allowed.append(
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic.topic_name, partitions=partitions
                    )
                )
                continue
            refused.append(
                AlterShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    topic_id=self._metadata.topic_id(topic.topic_name),
                    partitions=[
                        AlterShareGroupOffsetsResponsePartition(
                            partition_index=one.partition_index,
                            error_code=code,
                            error_message=code.sentence,
                        )
                        for one in partitions
                    ],
                )
            )
        return allowed, refused

    def _initialize(
        self, states: StatesToInitialize, topics: list[AlterShareGroupOffsetsResponseTopic]
    ) -> Work[None]:
        """Have states initialized, and note that; a failure is the error of its partition."""
        asked = self._initializer.ask(states)
        yield asked
        codes = asked.value
        failed = {key: code for key, code in codes.items() if code is not ErrorCode.NONE}
        for topic in topics:
            for partition in topic.partitions:
                code = failed.get((topic.topic_id, partition.partition_index))
                if partition.error_code is ErrorCode.NONE and code is not None:
                    partition.error_code, partition.error_message = code, code.sentence
        if codes and not failed:
            noted = self._write(
                states.group_id,
                lambda shard, now: shard.share.states.initialized(
                    states.group_id, partitions_of(states), now
                ),
            )
            yield noted

    # --- DeleteShareGroupOffsets ---

    def delete(
        self, request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> Work[DeleteShareGroupOffsetsResponse]:
        """Serve DeleteShareGroupOffsets."""
        group_id = request.group_id
        try:
            self._check(group_id, AclOperation.DELETE, context)
            if len(request.topics) > _MAX_PARTITIONS:
                reason = f"The request names more than {_MAX_PARTITIONS} topics."
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        except KafkaError as error:
            return DeleteShareGroupOffsetsResponse(
                error_code=error.code, error_message=error.message
            )
        allowed, refused = [], []
        for topic in request.topics:
            if _may(context, AclOperation.READ, topic.topic_name):
                allowed.append(topic.topic_name)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(_deleted(topic.topic_name, code=code))
            yield None
        decided = self._write(
            group_id, lambda shard, _now: shard.share.states.begin_deletion(group_id, allowed)
        )
        yield decided
        if isinstance(decided.value, KafkaError):
            return DeleteShareGroupOffsetsResponse(
                error_code=decided.value.code, error_message=decided.value.message
            )
        assert isinstance(decided.value, Deletion)
        answers = yield from self._delete_states(group_id, decided.value)
        return DeleteShareGroupOffsetsResponse(responses=refused + answers)

    def _delete_states(
        self, group_id: str, deletion: Deletion
    ) -> Work[list[DeleteShareGroupOffsetsResponseTopic]]:
        names = {
            topic_id: self._metadata.topic_name(topic_id) or "" for topic_id in deletion.partitions
        }
        codes = yield from delete_states(self._states, group_id, deletion.partitions)
        deleted = [topic_id for topic_id, code in codes.items() if code is ErrorCode.NONE]
        answers = [_deleted(names[topic_id], topic_id) for topic_id in deleted]
        answers += deletion.refused
        answers += [
            _deleted(names[topic_id], topic_id, code)
            for topic_id, code in codes.items()
            if code is not ErrorCode.NONE
        ]
        if deleted:
            noted = self._write(
                group_id, lambda shard, _now: shard.share.states.end_deletion(group_id, deleted)
            )
            yield noted
            if isinstance(noted.value, KafkaError):
                for answer in answers:
                    if answer.error_code is ErrorCode.NONE:
                        answer.error_code = noted.value.code
                        answer.error_message = noted.value.message
        return answers

    def _check(self, group_id: str, operation: AclOperation, context: RequestContext) -> None:
        """Raise KafkaError unless a client may do something to a group."""
        if not self._is_enabled:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not context.is_authorized(operation, Resource(ResourceType.GROUP, group_id)):
            raise _error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            raise _error(ErrorCode.INVALID_GROUP_ID)


def _error(code: ErrorCode) -> KafkaError:
    return KafkaError(code, code.sentence)


def _may(context: RequestContext, operation: AclOperation, topic: str) -> bool:
    return context.is_authorized(operation, Resource(ResourceType.TOPIC, topic))


def _deleted(
    name: str, topic_id: bytes = bytes(16), code: ErrorCode = ErrorCode.NONE
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        error_code=code,
        error_message=None if code is ErrorCode.NONE else code.sentence,
    )


def _no_offset(
    index: int, code: ErrorCode = ErrorCode.NONE
) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=NO_START_OFFSET,
        error_code=code,
        error_message=None if code is ErrorCode.NONE else code.sentence,
    )


def _has_lag(state: StateOrError) -> bool:
    return (
        not isinstance(state, KafkaError)
        and state.start_offset != NO_START_OFFSET
        and state.delivery_complete_count != NO_DELIVERY_COMPLETE_COUNT
    )


def _described_partition(
    topic_partition: TopicPartition, state: StateOrError, ends: OffsetsOrErrors
) -> DescribeShareGroupOffsetsResponsePartition:
    index = topic_partition.partition
    if isinstance(state, KafkaError):
        return _no_offset(index)
    described = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=state.start_offset,
        leader_epoch=state.leader_epoch,
        lag=_NO_LAG,
    )
    if _has_lag(state):
        end = ends[topic_partition]
        if isinstance(end, ErrorCode):
            return DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, error_code=end, error_message=end.sentence
            )
        described.lag = _lag(end, state)
    return described


def _lag(end_offset: int, state: SharePartitionState) -> int:
    """How many records are unfinished, in the range of the field: states may say anything."""
    lag = end_offset - state.start_offset - state.delivery_complete_count
    return max(_MIN_LAG, min(lag, _MAX_LAG))
