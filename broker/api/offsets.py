"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

Behaviour (Apache Kafka's)
- "latest" is the high watermark, for read_committed the last stable offset, with the current leader
  epoch; every other answer carries the epoch of the batch at the offset it names, since consumers
  detect truncation by it (KIP-320).
- A time beyond the last record finds nothing: offset -1, timestamp -1, no error.
- Without tiered storage the earliest local offset is the log start, and nothing is tiered (-1).
- A partition named twice in one ListOffsets is INVALID_REQUEST.
- While a new leader's high watermark is not yet where its leadership began, "latest" and what lies
  beyond the high watermark is OFFSET_NOT_AVAILABLE (KIP-207): the former leader may have said more.
- DeleteRecords answers when every live replica has moved its log start offset, with the smallest of
  them, or with REQUEST_TIMED_OUT.

Version notes: ListOffsets 7 max timestamp (KIP-734), 8 earliest local, 9 latest tiered (KIP-1005),
11 earliest pending upload (KIP-1023);
from 5 on clients know OFFSET_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from functools import partial

from kraftrio.base.deferred import Deferred
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_sets import Repeated
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.topic_names import INTERNAL_TOPICS

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

_LEADER_EPOCH_VERSION = 4
_NOT_AVAILABLE_VERSION = 5

_NOT_AUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_READ_COMMITTED = 1
_CONSUMER_REPLICA_ID = -1


_FEW = 16  # topics, and partitions of each, are answered without a pause
_NOTHING: Container[str] = ()


def _named(topic: str, asked: ListOffsetsPartition) -> str:
    """Give a partition as one word: many of these are no matter of the garbage collector."""
    return f"{asked.partition_index} {topic}"


class OffsetHandlers:
    """Handlers that answer from a partition's offsets."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._hosted = replica_manager.hosted
        self._reads = replica_manager.reads
        self._deletions = replica_manager.deletions

    def table(self) -> HandlerTable:
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
            ApiKey.DELETE_RECORDS: self.delete_records,
        }

    # -- ListOffsets ----------------------------------------------------------------------------

    def list_offsets(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | Slices[ListOffsetsResponse]:
        """Find offsets by position or time; in slices those of many partitions."""
        topics = request.topics
        if len(topics) > _FEW or any(len(topic.partitions) > _FEW for topic in topics):
            return self._list_many_offsets(request, context)
        named = [_named(topic.name, one) for topic in topics for one in topic.partitions]
        if len(set(named)) == len(named):
            return self._list_offsets(request, context, _NOTHING)
        twice = {one for one, count in Counter(named).items() if count > 1}
        return self._list_offsets(request, context, twice)

    def _list_many_offsets(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> Slices[ListOffsetsResponse]:
        named: Repeated[str] = Repeated()
        for topic in request.topics:
            for partition in topic.partitions:
                named.add(_named(topic.name, partition))
                yield
            yield
        return self._list_offsets(request, context, named.values)

    def _list_offsets(
        self, request: ListOffsetsRequest, context: RequestContext, twice: Container[str]
    ) -> ListOffsetsResponse:
        """Answer; `twice` has the partitions that are named more than once."""

        def answer(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
            is_repeated = twice is not _NOTHING and _named(topic, asked) in twice
            return self._list_offset(topic, asked, request, context.api_version, is_repeated)

        def answer_topic(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
            may_describe = context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
            answer_partition = partial(answer, topic.name) if may_describe else _not_listed
            return ListOffsetsTopicResponse(
                name=topic.name, partitions=each(answer_partition, topic.partitions)
            )

        return ListOffsetsResponse(topics=each(answer_topic, request.topics))

    def _list_offset(
        self,
        topic: str,
        asked: ListOffsetsPartition,
        request: ListOffsetsRequest,
        version: int,
        is_repeated: bool,
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, timestamp=-1, offset=-1, leader_epoch=-1
        )
        if is_repeated:
            answer.error_code = ErrorCode.INVALID_REQUEST
        elif asked.timestamp < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSION.get(
            asked.timestamp, 0
        ):
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            self._find_offset(topic, asked, request, answer)
        if answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE and version < _NOT_AVAILABLE_VERSION:
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        if version < _LEADER_EPOCH_VERSION:
            answer.leader_epoch = -1  # the field must not be set where it is not sent
        return answer

    def _find_offset(
        self,
        topic: str,
        asked: ListOffsetsPartition,
        request: ListOffsetsRequest,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        try:
            partition = self._hosted.leader(
                TopicPartition(topic, asked.partition_index), asked.current_leader_epoch
            )
            if asked.timestamp == LATEST:
                _check_available(partition, request)
                answer.offset = _last_visible(partition, request)
                answer.leader_epoch = partition.state.leader_epoch
            elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
                answer.offset = partition.log.log_start_offset
                answer.leader_epoch = partition.log.leader_epochs.epoch_for_offset(answer.offset)
            elif asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
                return
            else:
                self._find_by_time(partition, asked.timestamp, request, answer)
        except KafkaError as error:
            answer.error_code = error.code

    def _find_by_time(
        self,
        partition: Partition,
        timestamp: int,
        request: ListOffsetsRequest,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        if timestamp == MAX_TIMESTAMP:
            found = self._reads.offset_of_max_timestamp(partition)
        else:
            found = self._reads.offset_for_timestamp(partition, timestamp)
        if found is None or found.offset >= _last_visible(partition, request):
            _check_available(partition, request)
            return
        answer.offset = found.offset
        answer.timestamp = found.timestamp
        answer.leader_epoch = partition.log.leader_epochs.epoch_for_offset(found.offset)

    # -- OffsetForLeaderEpoch -------------------------------------------------------------------

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        """Where does a leader epoch end in the leader's log (KIP-101, KIP-279, KIP-320)?"""
        is_broker = context.may_see(AclOperation.CLUSTER_ACTION, CLUSTER)

        def answer_topic(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
            answer_partition = partial(self._end_of_epoch, topic.topic)
            if not is_broker and not context.may(
                AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
            ):
                answer_partition = partial(_no_end_of_epoch, _NOT_AUTHORIZED)
            return OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=each(answer_partition, topic.partitions)
            )

        return OffsetForLeaderEpochResponse(topics=each(answer_topic, request.topics))

    def _end_of_epoch(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        answer = _no_end_of_epoch(ErrorCode.NONE, asked)
        try:
            partition = self._hosted.leader(
                TopicPartition(topic, asked.partition), asked.current_leader_epoch
            )
        except KafkaError as error:
            answer.error_code = error.code
            return answer
        answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(
            asked.leader_epoch
        )
        return answer

    # -- DeleteRecords --------------------------------------------------------------------------

    def delete_records(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> Slices[DeleteRecordsResponse | Deferred[DeleteRecordsResponse]]:
        """Move log start offsets up (KIP-107)."""
        answers: dict[TopicPartition, DeleteRecordsPartitionResult] = {}
        waiting: list[tuple[Partition, int, DeleteRecordsPartitionResult]] = []
        refused: set[str] = set()
        for topic in request.topics:
            if not context.may(AclOperation.DELETE, ResourceType.TOPIC, topic.name):
                refused.add(topic.name)
                yield
                continue
            for asked in topic.partitions:
                self._delete(
                    TopicPartition(topic.name, asked.partition_index),
                    asked.offset,
                    answers,
                    waiting,
                )
                yield
            yield

        def answer(topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
            topic_partition = TopicPartition(topic, asked.partition_index)
            if topic in refused:
                return _not_deleted(topic_partition, _NOT_AUTHORIZED)
            return answers.get(topic_partition) or _not_deleted(
                topic_partition, self._why_not_deleted(topic_partition)
            )

        response = DeleteRecordsResponse(
            topics=each(
                lambda topic: DeleteRecordsTopicResult(
                    name=topic.name, partitions=each(partial(answer, topic.name), topic.partitions)
                ),
                request.topics,
            )
        )
        if not waiting:
            return response
        return self._await_deletion(response, waiting, request.timeout_ms)

    def _delete(
        self,
        topic_partition: TopicPartition,
        offset: int,
        answers: dict[TopicPartition, DeleteRecordsPartitionResult],
        waiting: list[tuple[Partition, int, DeleteRecordsPartitionResult]],
    ) -> None:
        """Delete where this broker leads; only of these there is an answer to be kept."""
        if topic_partition.topic in INTERNAL_TOPICS:
            return
        try:
            partition = self._hosted.leader(topic_partition)
        except KafkaError:
            return
        answer = answers[topic_partition] = _not_deleted(topic_partition, ErrorCode.NONE)
        try:
            target = self._deletions.delete_records(partition, offset)
        except KafkaError as error:
            answer.error_code = error.code
            return
        answer.low_watermark = partition.low_watermark()
        if answer.low_watermark < target:
            waiting.append((partition, target, answer))

    def _why_not_deleted(self, topic_partition: TopicPartition) -> ErrorCode:
        if topic_partition.topic in INTERNAL_TOPICS:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        try:
            self._hosted.leader(topic_partition)
        except KafkaError as error:
            return error.code
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # when it was asked to delete

    def _await_deletion(
        self,
        response: DeleteRecordsResponse,
        waiting: list[tuple[Partition, int, DeleteRecordsPartitionResult]],
        timeout_ms: int,
    ) -> Deferred[DeleteRecordsResponse]:
        """Answer once all replicas that live have deleted."""
        deferred: Deferred[DeleteRecordsResponse] = Deferred()
        left = len(waiting)

        def on_deleted(
            partition: Partition, answer: DeleteRecordsPartitionResult, code: ErrorCode
        ) -> None:
            nonlocal left
            answer.error_code = code
            answer.low_watermark = partition.low_watermark() if code is ErrorCode.NONE else -1
            left -= 1
            if not left:
                deferred.complete(response)

        for partition, target, answer in waiting:
            self._deletions.when_deleted(
                partition, target, timeout_ms, partial(on_deleted, partition, answer)
            )
        return deferred


def _not_listed(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Answer about a topic that the client may not know of."""
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=-1,
        offset=-1,
        leader_epoch=-1,
        error_code=_NOT_AUTHORIZED,
    )


def _no_end_of_epoch(code: ErrorCode, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=-1, end_offset=-1, error_code=code
    )


def _not_deleted(topic_partition: TopicPartition, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=topic_partition.partition, low_watermark=-1, error_code=code
    )


def _check_available(partition: Partition, request: ListOffsetsRequest) -> None:
    """Refuse consumers an end of the log that may lie before one that they know."""
    if request.replica_id == _CONSUMER_REPLICA_ID and partition.state.offset_is_behind_epoch:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


def _last_visible(partition: Partition, request: ListOffsetsRequest) -> int:
    """The end of what the asking client may see."""
    if request.replica_id != _CONSUMER_REPLICA_ID:
        return partition.log.log_end_offset
    if request.isolation_level == _READ_COMMITTED:
        return partition.log.last_stable_offset
    return partition.state.high_watermark
