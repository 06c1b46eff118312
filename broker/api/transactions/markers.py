"""WriteTxnMarkers: what a coordinator decided of transactions, into the partitions they wrote to.

Behaviour (Kafka's)
- A marker is a control batch of the producer. It is answered once it is committed, as with
  acks=all, or with the partition's own error; the others are written all the same.
- A repeated marker is written again and changes nothing. An outdated one is refused with
  INVALID_PRODUCER_EPOCH, one of a coordinator that others have replaced with
  TRANSACTION_COORDINATOR_FENCED.
- A partition that is not hosted here is UNKNOWN_TOPIC_OR_PARTITION.
- Partitions of a coordinator's topic get theirs through that coordinator, which must know when the
  pending records count. While it loads them the answer is NOT_LEADER_OR_FOLLOWER.
- Markers of one producer are answered under one entry.

Version notes: 2 has the transaction version of the coordinator: from 2 on a marker's epoch is one
above the transaction's (KIP-890).

Called by other brokers' and this one's transaction coordinators, and by administrators who abort a
transaction that hangs (KIP-664).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol, TypeAlias

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.outcome import ProducerOfBatch
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES, nested_parts
from kraftrio.broker.server.slices.sliced_work import Work, do_at_once
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch

_APPENDED_AT_ONCE = 16  # markers, between which nobody else gets a turn

Answer: TypeAlias = WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]

_Codes: TypeAlias = dict[int, ErrorCode]  # by partition


class CoordinatedTopic(Protocol):
    """A coordinator whose topic holds records of transactions."""

    def end_transaction(
        self,
        partition: int,
        producer: ProducerOfBatch,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
    ) -> Deferred[ErrorCode]: ...


class MarkerHandlers:
    """Serves WriteTxnMarkers.

    Args:
        coordinated: the coordinators by their topics.
        timeout_ms: how long a marker may take to be committed (request.timeout.ms).
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        coordinated: Mapping[str, CoordinatedTopic],
        clock: Clock,
        timeout_ms: float,
    ) -> None:
        self._hosted = replica_manager.hosted
        self._led = replica_manager.led
        self._coordinated = coordinated
        self._clock = clock
        self._timeout_ms = timeout_ms

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers}

    def write_txn_markers(
        self, request: WriteTxnMarkersRequest, _context: RequestContext
    ) -> Answer | Work[Answer]:
        """Append the markers; answer when all are committed, or refused."""
        work = self._write(request)
        return work if _is_long(request) else do_at_once(work).value

    def _write(self, request: WriteTxnMarkersRequest) -> Work[Answer]:
        answers = _MarkerAnswers()
        for marker in request.markers:
            for part in nested_parts(marker.topics, _partitions_of, _APPENDED_AT_ONCE):
                for topic, indexes in part:
                    codes = answers.codes(marker.producer_id, topic.name)
                    for index in indexes:
                        self._append(marker, TopicPartition(topic.name, index), codes, answers)
                self._led.wake_followers()
                yield None
            yield None
        return answers.when_complete()

    def _append(
        self,
        marker: WritableTxnMarker,
        topic_partition: TopicPartition,
        codes: _Codes,
        answers: _MarkerAnswers,
    ) -> None:
        """Append one marker; its code is noted, now or once it is known."""
        index = topic_partition.partition
        codes[index] = code = self._check(marker, topic_partition)
        if code is not ErrorCode.NONE:
            return
        ending = EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch)
        coordinator = self._coordinated.get(topic_partition.topic)
        if coordinator is not None:
            ended = coordinator.end_transaction(
                index,
                ProducerOfBatch(marker.producer_id, marker.producer_epoch),
                ending,
                transaction_version=marker.transaction_version,
            )
            ended.then(answers.expect(codes, index))
            return
        try:
            info = self._led.append_to_leader(
                topic_partition,
                build_end_transaction_batch(
                    marker.producer_id,
                    marker.producer_epoch,
                    ending,
                    timestamp=self._clock.wall_ms(),
                ),
                origin=AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
                wake_followers=False,
            )
        except KafkaError as error:
            codes[index] = error.code
            return
        end_offset = info.last_offset + 1
        if not self._led.is_committed(topic_partition, end_offset):
            self._led.when_committed(
                topic_partition,
                end_offset,
                self._clock.monotonic_ms() + self._timeout_ms,
                answers.expect(codes, index),
            )

    def _check(self, marker: WritableTxnMarker, topic_partition: TopicPartition) -> ErrorCode:
        if marker.producer_id < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if marker.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        try:
            self._hosted.online(topic_partition)
        except KafkaError:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


class _MarkerAnswers:
    """The codes of one request's markers, by producer and partition, and how many are to come."""

    def __init__(self) -> None:
        self._producers: dict[int, dict[str, _Codes]] = {}
        self._missing_count = 0
        self._response: Deferred[WriteTxnMarkersResponse] | None = None

    def codes(self, producer_id: int, topic: str) -> _Codes:
        """The codes of a producer's markers in a topic, to be filled in."""
        return self._producers.setdefault(producer_id, {}).setdefault(topic, {})

    def expect(self, codes: _Codes, index: int) -> partial[None]:
        """What is to be called with a partition's code, which comes later."""
        self._missing_count += 1
        return partial(self._note, codes, index)

    def _note(self, codes: _Codes, index: int, code: ErrorCode) -> None:
        codes[index] = code
        self._missing_count -= 1
        if not self._missing_count and self._response is not None:
            self._response.complete(self._respond())

    def when_complete(self) -> Answer:
        """The response; called when nothing more is expected."""
        if not self._missing_count:
            return self._respond()
        self._response = Deferred()
        return self._response

    def _respond(self) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=each(
                lambda producer: WritableTxnMarkerResult(
                    producer_id=producer[0], topics=each(_topic_result, list(producer[1].items()))
                ),
                list(self._producers.items()),
            )
        )


def _topic_result(topic: tuple[str, _Codes]) -> WritableTxnMarkerTopicResult:
    name, codes = topic
    return WritableTxnMarkerTopicResult(
        name=name,
        partitions=each(
            lambda entry: WritableTxnMarkerPartitionResult(
                partition_index=entry[0], error_code=entry[1]
            ),
            list(codes.items()),
        ),
    )


def _partitions_of(topic: WritableTxnMarkerTopic) -> list[int]:
    return topic.partition_indexes


def _is_long(request: WriteTxnMarkersRequest) -> bool:
    """Whether there are more markers than are written at once."""
    markers = request.markers
    if len(markers) > PART_ENTRIES:
        return True
    room = PART_ENTRIES
    for marker in markers:
        if len(marker.topics) > room:
            return True
        for topic in marker.topics:
            room -= 1 + len(topic.partition_indexes)
    return room < 0
