"""A transaction coordinator for the fake cluster: enough of one for a producer's transactions.

It keeps epochs as Kafka does under both versions, notes what it was asked in `asked`, and answers
with the codes that a test puts into `refusals`, once each.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from kraftrio.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT, CUT_AFTER, FakeCluster, FakeNode

PRODUCER_ID = 7000


class FakeTransactions:
    """Answers for all transactional ids alike: there is one at a time.

    Attributes:
        asked: "init", "add a-0 a-1", "offsets g", "commit offsets g", "commit" and "abort".
        refusals: what the next requests of an API are answered with, the first first; a code, or
            CUT or CUT_AFTER; a function is called when the request comes, which is then cut.
        offsets: what was committed with transactions that were committed.
    """

    def __init__(self, cluster: FakeCluster, version: int = 2) -> None:
        cluster.features["transaction.version"] = version
        self.is_version_2 = version >= 2
        self.asked: list[str] = []
        self.refusals: dict[ApiKey, list[Any]] = defaultdict(list)
        self.epoch = -1
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.members: list[tuple[int, str, str | None]] = []
        self._pending: dict[tuple[str, TopicPartition], int] = {}
        for key, answer in (
            (ApiKey.INIT_PRODUCER_ID, self._init),
            (ApiKey.ADD_PARTITIONS_TO_TXN, self._add),
            (ApiKey.ADD_OFFSETS_TO_TXN, self._add_offsets),
            (ApiKey.TXN_OFFSET_COMMIT, self._commit_offsets),
            (ApiKey.END_TXN, self._end),
        ):
            self._script(cluster, key, answer)

    def _script(self, cluster: FakeCluster, key: ApiKey, answer: Any) -> None:
        def script(node: FakeNode, request: Any) -> Any:
            refusals = self.refusals[key]
            refusal = refusals.pop(0) if refusals else ErrorCode.NONE
            if node.node_id != cluster.coordinator_id:
                return answer(request, ErrorCode.NOT_COORDINATOR)
            if callable(refusal):
                refusal()
                return CUT
            if refusal == CUT_AFTER:
                answer(request, ErrorCode.NONE)
                return CUT
            if not isinstance(refusal, ErrorCode):
                return refusal
            return answer(request, refusal)

        cluster.on(key, script)

    def _check(self, request: Any, code: ErrorCode) -> ErrorCode:
        if code == ErrorCode.NONE and request.producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        return code

    def _init(self, request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
        self.asked.append("init")
        if code != ErrorCode.NONE:
            return InitProducerIdResponse(error_code=code)
        if request.producer_id >= 0 and request.producer_epoch != self.epoch:
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _add(
        self, request: AddPartitionsToTxnRequest, code: ErrorCode
    ) -> AddPartitionsToTxnResponse:
        topics = request.v3_and_below_topics
        named = [f"{topic.name}-{index}" for topic in topics for index in topic.partitions]
        self.asked.append("add " + " ".join(sorted(named)))
        if request.v3_and_below_producer_epoch != self.epoch:
            code = ErrorCode.PRODUCER_FENCED
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    def _add_offsets(
        self, request: AddOffsetsToTxnRequest, code: ErrorCode
    ) -> AddOffsetsToTxnResponse:
        self.asked.append(f"offsets {request.group_id}")
        return AddOffsetsToTxnResponse(error_code=self._check(request, code))

    def _commit_offsets(
        self, request: TxnOffsetCommitRequest, code: ErrorCode
    ) -> TxnOffsetCommitResponse:
        self.asked.append(f"commit offsets {request.group_id}")
        self.members.append((request.generation_id, request.member_id, request.group_instance_id))
        code = self._check(request, code)
        for topic in request.topics:
            for each in topic.partitions:
                place = request.group_id, TopicPartition(topic.name, each.partition_index)
                if code == ErrorCode.NONE:
                    self._pending[place] = each.committed_offset
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _end(self, request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
        self.asked.append("commit" if request.committed else "abort")
        code = self._check(request, code)
        if code != ErrorCode.NONE:
            return EndTxnResponse(error_code=code)
        if request.committed:
            self.offsets |= self._pending
        self._pending.clear()
        if not self.is_version_2:
            return EndTxnResponse()
        self.epoch += 1
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)
