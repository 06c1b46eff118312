"""Serves TxnOffsetCommit: offsets of a group that count once a producer's transaction is committed.

Behaviour
- What does not exist is UNKNOWN_TOPIC_OR_PARTITION, and the coordinator is not asked about it;
  what the client may not read is TOPIC_AUTHORIZATION_FAILED.
- The transaction is verified (KIP-890): its coordinator must know that the group's partition of
  `__consumer_offsets` is part of it. Then the group checks who commits; it may rebalance meanwhile.
- An error of the transaction or the group is reported for each partition that exists.

Version notes
- 0 and 1 are sent by clients that cannot take COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296):
  COORDINATOR_NOT_AVAILABLE stands in its place.
- 3 fences members by generation (KIP-447); before, the owner of the transaction may commit.
- 4 knows TRANSACTION_ABORTABLE; before, INVALID_TXN_STATE stands in its place.
- 5 adds the partition to the transaction, without an AddOffsetsToTxn (transaction.version 2).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.offset_requests import code_of_commit
from kraftrio.broker.api.shared.permitted_topics import PermittedTopics
from kraftrio.broker.api.shared.refusals import refuse
from kraftrio.broker.coordinator.group_coordinator import GroupCoordinator
from kraftrio.broker.coordinator.groups.offset_commit import (
    Committer,
    NamedPartition,
    OffsetCommit,
)
from kraftrio.broker.coordinator.outcome import ProducerOfBatch
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import TransactionVerifier
from kraftrio.broker.security.api_access import REFUSALS
from kraftrio.broker.security.authorizer import AclOperation, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kraftrio.wire.protocol.api import ApiKey

_LOADING_VERSION = 2
_ABORTABLE_VERSION = 4
_ADDING_VERSION = 5


class TransactionalOffsetHandlers:
    """Handlers of one broker."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        verifier: TransactionVerifier,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._verifier = verifier

    def table(self) -> HandlerTable:
        return {ApiKey.TXN_OFFSET_COMMIT: self.txn_offset_commit}

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Work[Any]:
        """Make the records in slices, have the transaction verified, and append them."""
        for operation, kind, name in (
            (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id),
            (AclOperation.READ, ResourceType.GROUP, request.group_id),
        ):
            if not context.may(operation, kind, name):
                return refuse(ApiKey.TXN_OFFSET_COMMIT, request, REFUSALS[kind])
        readable = PermittedTopics(context, AclOperation.READ)
        commit = _TransactionalCommit(request, context.api_version, self._metadata, readable)
        error = _check(request)
        if error is not ErrorCode.NONE:
            return commit.error_response(error)
        try:
            prepared = yield from self._coordinator.read(
                request.group_id,
                lambda shard, now: shard.prepare_commit(commit.committer, commit.partitions(), now),
            )
        except KafkaError as refused:
            return commit.error_response(refused.code)
        if prepared.is_empty:
            return commit.response(prepared)
        verify = partial(
            self._verifier.verify,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            adds_partition=context.api_version >= _ADDING_VERSION,
            knows_abortable=context.api_version >= _ABORTABLE_VERSION,
        )
        producer = ProducerOfBatch(request.producer_id, request.producer_epoch)
        stored: Deferred[OffsetCommit | ErrorCode] = self._coordinator.write_for_transaction(
            request.group_id,
            verify,
            lambda shard, _now: shard.commit_offsets_of_transaction(prepared, producer),
            lambda code: code,
        )
        return commit.response(stored.value) if stored.done else stored.map(commit.response)


def _check(request: TxnOffsetCommitRequest) -> ErrorCode:
    """What can be said without asking anybody."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if request.producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.NONE


class _TransactionalCommit:
    """One request: its partitions as far as they exist, and the response for all."""

    def __init__(
        self,
        request: TxnOffsetCommitRequest,
        api_version: int,
        metadata: MetadataCache,
        readable: Container[str],
    ) -> None:
        self._readable = readable
        self.committer = Committer(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        self._topics = request.topics
        self._api_version = api_version
        self._metadata = metadata

    def partitions(self) -> Iterator[NamedPartition | None]:
        """What the request names, in its order; None in the place of what does not exist.

        A topic that names no partition counts as one that does not exist, so that many of them
        are many small steps, too.
        """
        for topic in self._topics:
            topic_id = self._metadata.topic_id(topic.name)
            if not topic.partitions:
                yield None
            for partition in topic.partitions:
                if self._exists(topic.name, partition.partition_index):
                    yield NamedPartition(topic.name, topic_id, partition)
                else:
                    yield None

    def _exists(self, topic: str, index: int) -> bool:
        return topic in self._readable and self._metadata.partition(topic, index) is not None

    def response(self, stored: OffsetCommit | ErrorCode) -> TxnOffsetCommitResponse:
        """Say what the group has taken and refused, or the error of all that it was asked."""
        if isinstance(stored, ErrorCode):
            return self.error_response(stored)
        return self._answer(code_of_commit(stored))

    def error_response(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        """Answer with one error for all partitions that exist."""
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._api_version < _LOADING_VERSION:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._answer(lambda topic, index: error if self._exists(topic, index) else None)

    def _answer(self, code_of: Callable[[str, int], ErrorCode | None]) -> TxnOffsetCommitResponse:
        def answer(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic.name not in self._readable:
                unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED

            def answer_partition(
                asked: TxnOffsetCommitRequestPartition,
            ) -> TxnOffsetCommitResponsePartition:
                code = code_of(topic.name, asked.partition_index)
                return TxnOffsetCommitResponsePartition(
                    partition_index=asked.partition_index,
                    error_code=unknown if code is None else code,
                )

            return TxnOffsetCommitResponseTopic(
                name=topic.name, partitions=each(answer_partition, topic.partitions)
            )

        return TxnOffsetCommitResponse(topics=each(answer, self._topics))
