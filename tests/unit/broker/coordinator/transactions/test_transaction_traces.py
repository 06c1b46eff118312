"""Answers of the shard beside Apache Kafka's, for every state, request, epoch and version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftrio.broker.coordinator.transactions.requests import (
    check_init_producer_id,
    version_of_adding_client,
)
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from kraftrio.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
)
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition
from tests.support.golden import check
from tests.unit.broker.coordinator.transactions.transaction_context import TransactionContext
from tests.unit.broker.coordinator.transactions.transaction_script import TransactionScript

TRACES = Path(__file__).resolve().parent / "traces"


class ShardScript(TransactionScript):
    """The shard itself; requests and responses go through the wire's bytes, for their versions."""

    def __init__(self) -> None:
        super().__init__()
        self._context = TransactionContext()

    def ask(self, request: Any, version: int) -> Any:
        received, _ = decode(type(request), version, encode(request, version))
        response = self._answer(received, version)
        return decode(type(response), version, encode(response, version))[0]

    def _answer(self, request: Any, version: int) -> Any:
        context, shard = self._context, self._context.shard
        if isinstance(request, InitProducerIdRequest):
            code = check_init_producer_id(request, context.properties)  # as handlers do
            if code is not ErrorCode.NONE:
                return InitProducerIdResponse(error_code=code)
            return context.carry_out(
                shard.init_producer_id(request, api_version=version, now=context.now)
            )
        if isinstance(request, EndTxnRequest):
            return context.carry_out(
                shard.end_transaction(request, api_version=version, now=context.now)
            )
        if isinstance(request, AddOffsetsToTxnRequest):
            code = self._add_to(
                request.transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                [TopicPartition("__consumer_offsets", 0)],
                version,
                0,
            )
            return AddOffsetsToTxnResponse(error_code=code)
        assert isinstance(request, AddPartitionsToTxnRequest)
        return self._add_or_verify_all(request, version)

    def _add_to(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: list[TopicPartition],
        version: int,
        client_version: int,
    ) -> ErrorCode:
        context = self._context
        code = context.carry_out(
            context.shard.add_partitions(
                transactional_id,
                producer,
                partitions,
                api_version=version,
                client_version=client_version,
                now=context.now,
            )
        )
        assert isinstance(code, ErrorCode)
        return code

    def _add_or_verify_all(
        self, request: AddPartitionsToTxnRequest, version: int
    ) -> AddPartitionsToTxnResponse:
        if version < 4:
            producer = ProducerIdAndEpoch(
                request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
            )
            (topic,) = request.v3_and_below_topics
            code = self._add_to(
                request.v3_and_below_transactional_id, producer, _named(topic), version, 0
            )
            codes = dict.fromkeys(_named(topic), code)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[_result(topic, codes)])
        (transaction,) = request.transactions
        (topic,) = transaction.topics
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            codes = self._context.shard.verify_partitions(
                transaction.transactional_id, producer, _named(topic)
            ).response
        else:
            client_version = version_of_adding_client(version)
            code = self._add_to(
                transaction.transactional_id, producer, _named(topic), version, client_version
            )
            codes = dict.fromkeys(_named(topic), code)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[_result(topic, codes)],
                )
            ]
        )

    def settle(self, transactional_id: str) -> str:
        while self._context.ends:
            self._context.write_markers()
        return self._context.state(transactional_id)

    def preset(self, epoch: int) -> None:
        """Change the record of a new id: epochs take long to count."""
        self._start()
        self._context.set_epoch(epoch)
        self._become(self._producer[0], epoch - 1)
        self._become(self._producer[0], epoch)


def _named(topic: AddPartitionsToTxnTopic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for index in topic.partitions]


def _result(
    topic: AddPartitionsToTxnTopic, codes: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=each.partition, partition_error_code=code
            )
            for each, code in codes.items()
        ],
    )


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.txt")), ids=lambda path: path.stem)
def test_answers_are_those_of_apache_kafka(path: Path) -> None:
    check(path, ShardScript().run)
