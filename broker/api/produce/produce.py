"""Produce and DescribeProducers.

Behaviour (Apache Kafka's)
- Every partition of a Produce succeeds or fails by itself, with its own error code; a partition's
  batch is written whole or not at all.
- acks=0 has no response; if a partition fails, the connection is closed, which is the only way to
  make such a producer look at its metadata again.
- acks=all answers when the high watermark has passed every batch, or REQUEST_TIMED_OUT at
  `timeout_ms` for those it has not passed; they stay in the log.  NOT_ENOUGH_REPLICAS refuses a
  batch, NOT_ENOUGH_REPLICAS_AFTER_APPEND leaves it in the log, too.
- The first batch of a transaction waits until its coordinator has confirmed it
  (`replica/verification`). What belongs to a transaction needs its transactional id, and the right
  to write under it: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, for the whole request.
- Each topic is written to by those who may: TOPIC_AUTHORIZATION_FAILED for the others, before the
  gate, and again when it has let them wait.
- Clients may not write to brokers' internal topics: INVALID_TOPIC_EXCEPTION.
- An idempotent batch that is already there is answered with its first offset (KIP-98).
- A batch whose sequence does not follow is refused for that only when the followers have shown that
  this broker still leads: a leader deposed without knowing it has not seen what the producer sent
  since, and the refusal would end a producer that did nothing wrong.
- The batches of a producer that the partition does not know begin anywhere, but not after one that
  it was just told to send again (`refused_batches`).

Version notes: Produce 3 brought transactional ids and record batches v2, 7 zstd (KIP-110), 8 record
errors (KIP-467), 10 the leader beside an error (KIP-951), 13 topic ids (KIP-516).
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from functools import partial

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.produce.long_produce import Answer, is_long, produce_in_parts
from kraftrio.broker.api.produce.refused_batches import RefusedBatches, sequenced
from kraftrio.broker.log.partition.partition_log import RecordValidationError
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.metadata.leader_hints import WRONG_LEADER, LeaderHints
from kraftrio.broker.replica.append_gate import GateDecision, RequestedPartition
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.messages.data import (
    BatchIndexAndErrorMessage,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ProducerState,
    TopicProduceData,
    TopicProduceResponse,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.batch import Compression, is_transactional, stored_compression
from kraftrio.wire.topic_names import INTERNAL_TOPICS, check_topic_name

# Of tools that may write to internal topics, as in Kafka.
ADMIN_CLIENT_ID = "__admin_client"

_NONE = ErrorCode.NONE
_NOT_AUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_WRITE, _TOPIC = AclOperation.WRITE, ResourceType.TOPIC
_TOPIC_ID_VERSION = 13
_TRANSACTION_ABORTABLE_VERSION = 11
_ZSTD_VERSION = 7
_CONFIRM_TIMEOUT_MS = 2000

# Only a log that knows all that a batch's producer has sent before may refuse it for these.
_BY_PRODUCER_STATE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)
_LEADER_HINTS_VERSION = 10


class ProduceHandlers:
    """Handlers of what producers send."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        clock: Clock,
    ) -> None:
        self._replicas = replica_manager.led
        self._hosted = replica_manager.hosted
        self._metadata = metadata
        self._clock = clock
        self._refused = RefusedBatches()

    def table(self) -> HandlerTable:
        return {
            ApiKey.PRODUCE: self.produce,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    # -- Produce --------------------------------------------------------------------------------

    def produce(self, request: ProduceRequest, context: RequestContext) -> Answer | Work[Answer]:
        """Append each partition's batch, once the gate lets it in, and answer as the acks ask."""
        if is_long(request):
            return produce_in_parts(
                lambda part: self._produce(part, context),
                partial(_is_forbidden, _may_write_transactions(request, context)),
                _refusal,
                request,
            )
        return self._produce(request, context)

    def _produce(self, request: ProduceRequest, context: RequestContext) -> Answer | Work[Answer]:
        if _has_transactional_batch(request) and not _may_write_transactions(request, context):
            return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        by_id = context.api_version >= _TOPIC_ID_VERSION
        refused = self._not_writable(request, context)
        asked = _without(request, refused, by_id=by_id) if refused else request
        admission = self._replicas.gate.admit(asked, api_version=context.api_version, by_id=by_id)
        if admission is None:
            return self._append_all(request, context, None, refused)
        if admission.done:
            return self._append_all(request, context, admission.value, refused)
        context.wait_for(lambda: "the coordinator of its transaction, to verify it")
        return self._append_admitted(request, context, admission)

    def _not_writable(
        self, request: ProduceRequest, context: RequestContext
    ) -> Collection[str | bytes]:
        """Return the topics, as the request names them, that its sender may not write to now."""
        if not context.is_guarded:
            return ()
        by_id = context.api_version >= _TOPIC_ID_VERSION
        refused: list[str | bytes] = []
        for topic in request.topic_data:
            name = self._metadata.topic_name(topic.topic_id) if by_id else topic.name
            if name is not None and not context.may(_WRITE, _TOPIC, name):
                refused.append(topic.topic_id if by_id else topic.name)
        return refused

    def _append_admitted(
        self, request: ProduceRequest, context: RequestContext, admission: Deferred[GateDecision]
    ) -> Work[Answer]:
        """Append once the gate has decided; requests behind this one wait meanwhile."""
        yield admission
        refused = self._not_writable(request, context)  # much may have changed meanwhile
        return self._append_all(request, context, admission.value, refused)

    def _append_all(
        self,
        request: ProduceRequest,
        context: RequestContext,
        admission: GateDecision | None,
        refused: Collection[str | bytes],
    ) -> Answer:
        by_id = context.api_version >= _TOPIC_ID_VERSION
        acks = request.acks
        waiting: list[tuple[TopicPartition, int, PartitionProduceResponse]] = []
        doubted: list[tuple[TopicPartition, PartitionProduceResponse]] = []
        topics: list[TopicProduceResponse] = []
        for topic in request.topic_data:
            name: str | None = topic.name
            if by_id:
                name = self._metadata.topic_name(topic.topic_id)
            answers: list[PartitionProduceResponse] = []
            if refused and (topic.topic_id if by_id else topic.name) in refused:
                answers = [_refusal(data, _NOT_AUTHORIZED) for data in topic.partition_data]
                topics.append(_topic_response(topic, answers))
                continue
            for data in topic.partition_data:
                requested = topic.topic_id if by_id else topic.name, data.index
                if name is None:
                    answers.append(_refusal(data, ErrorCode.UNKNOWN_TOPIC_ID, None))
                    self._note_refusal(requested, data, ErrorCode.UNKNOWN_TOPIC_ID)
                    continue
                topic_partition = TopicPartition(name, data.index)
                answer, end_offset = self._append(
                    requested, topic_partition, data, acks, context, admission
                )
                answers.append(answer)
                if answer.error_code in _BY_PRODUCER_STATE:
                    doubted.append((topic_partition, answer))
                elif acks == -1 and end_offset >= 0:
                    waiting.append((topic_partition, end_offset, answer))
            topics.append(_topic_response(topic, answers))
        self._replicas.wake_followers()
        response = ProduceResponse(responses=topics)
        if acks == 0:
            _close_on_error(topics)
            return None
        if not waiting and not doubted:
            return self._with_hints(response, context)
        return self._await(response, waiting, doubted, request.timeout_ms, context)

    def _with_hints(self, response: ProduceResponse, context: RequestContext) -> ProduceResponse:
        """Name the leader of each partition that the wrong broker was asked about."""
        if context.api_version < _LEADER_HINTS_VERSION:
            return response
        hints: LeaderHints | None = None
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code in WRONG_LEADER:
                    hints = hints or LeaderHints(self._metadata, context.listener_name)
                    name = topic.name or self._metadata.topic_name(topic.topic_id)
                    if name is not None:
                        answer.current_leader = hints.leader_of(name, answer.index)
        if hints is not None:
            response.node_endpoints = hints.node_endpoints()
        return response

    def _append(
        self,
        requested: RequestedPartition,
        topic_partition: TopicPartition,
        data: PartitionProduceData,
        acks: int,
        context: RequestContext,
        admission: GateDecision | None,
    ) -> tuple[PartitionProduceResponse, int]:
        """Append one batch; return its answer and the offset to be committed, -1 if refused."""
        if acks not in (-1, 0, 1):
            return _refusal(data, ErrorCode.INVALID_REQUIRED_ACKS, None), -1
        records = data.records
        if not records:
            return _refusal(data, ErrorCode.INVALID_RECORD, None), -1
        if context.api_version < _ZSTD_VERSION and stored_compression(records) == Compression.ZSTD:
            return _refusal(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None), -1
        guard = None
        if admission is not None:
            refusal = admission.refusals.get(requested)
            if refusal is not None:
                self._note_refusal(requested, data, refusal.code)
                return _refusal(data, *refusal), -1
            guard = admission.guards.get(requested)
        if topic_partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
            return _refusal(data, self._why_internal(topic_partition), None), -1
        if self._refused and not self._knows_producer(topic_partition, records):
            code = self._why_overtaking(requested, records)
            if code is not None:
                return _refusal(data, code, None), -1
        try:
            info = self._replicas.append_to_leader(
                topic_partition, records, required_acks=acks, guard=guard, wake_followers=False
            )
        except RecordValidationError as error:
            answer = _refusal(data, error.code, error.message)
            answer.log_start_offset = self._replicas.log(topic_partition).log_start_offset
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ]
            return answer, -1
        except KafkaError as error:
            if self._refused and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                code = self._why_overtaking(requested, records)
                if code is not None:
                    return _refusal(data, code, None), -1
            self._note_refusal(requested, data, error.code)
            answer = _refusal(data, _known_to_version(error.code, context), None)
            if error.code in _BY_PRODUCER_STATE:
                answer.log_start_offset = self._replicas.log(topic_partition).log_start_offset
            return answer, -1
        if self._refused and (batch := sequenced(records)) is not None:
            self._refused.accepted(requested, batch)
        answer = PartitionProduceResponse(
            index=data.index,
            error_code=_NONE,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        return answer, info.last_offset + 1

    def _why_internal(self, topic_partition: TopicPartition) -> ErrorCode:
        if self._metadata.partition(*topic_partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INVALID_TOPIC_EXCEPTION

    def _note_refusal(
        self, requested: RequestedPartition, data: PartitionProduceData, code: ErrorCode
    ) -> None:
        if code.retriable and (batch := sequenced(data.records)) is not None:
            self._refused.note(requested, batch, code, self._clock.monotonic_ms())

    def _why_overtaking(
        self, requested: RequestedPartition, records: memoryview
    ) -> ErrorCode | None:
        """Why a batch is to be sent again after an earlier one; None: there is none to come."""
        batch = sequenced(records)
        if batch is None:
            return None
        return self._refused.why_overtaking(requested, batch, self._clock.monotonic_ms())

    def _knows_producer(self, topic_partition: TopicPartition, records: memoryview) -> bool:
        """Whether the partition checks the batch's sequence by those that came before."""
        batch = sequenced(records)
        try:
            log = self._replicas.log(topic_partition)
        except KafkaError:
            return True  # the append finds out why
        return batch is None or log.producer_state.get(batch.producer_id) is not None

    def _await(
        self,
        response: ProduceResponse,
        waiting: list[tuple[TopicPartition, int, PartitionProduceResponse]],
        doubted: list[tuple[TopicPartition, PartitionProduceResponse]],
        timeout_ms: int,
        context: RequestContext,
    ) -> ProduceResponse | Deferred[ProduceResponse]:
        """Answer when every batch is committed, or rightly refused; at once if so already."""
        pending = [entry for entry in waiting if not self._replicas.is_committed(*entry[:2])]
        if not pending and not doubted:
            return self._with_hints(response, context)
        answered: Deferred[ProduceResponse] = Deferred()
        left = len(pending) + len(doubted)

        def on_commit(answer: PartitionProduceResponse, code: ErrorCode) -> None:
            nonlocal left
            if code is not _NONE:
                answer.error_code = code
                answer.base_offset = -1
                answer.error_message = None
            left -= 1
            if not left:
                answered.complete(response)

        context.wait_for(lambda: self._replicas.why_uncommitted([one[:2] for one in pending]))
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        for topic_partition, end_offset, answer in pending:
            self._replicas.when_committed(
                topic_partition,
                end_offset,
                deadline_ms,
                partial(on_commit, answer),
            )
        for topic_partition, answer in doubted:
            self._replicas.when_confirmed(
                topic_partition, min(timeout_ms, _CONFIRM_TIMEOUT_MS), partial(on_commit, answer)
            )
        return answered.map(lambda response: self._with_hints(response, context))

    # -- DescribeProducers ----------------------------------------------------------------------

    def describe_producers(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersResponse:
        """List the producers that each replica hosted here knows, leader or not (KIP-664)."""
        return DescribeProducersResponse(
            topics=each(
                lambda topic: DescribeProducersTopicResponse(
                    name=topic.name,
                    partitions=each(
                        partial(
                            self._describe_partition,
                            topic.name,
                            context.may(AclOperation.READ, ResourceType.TOPIC, topic.name),
                        ),
                        topic.partition_indexes,
                    ),
                ),
                request.topics,
            )
        )

    def _describe_partition(
        self, topic: str, is_permitted: bool, index: int
    ) -> DescribeProducersPartitionResponse:
        topic_partition = TopicPartition(topic, index)
        answer = DescribeProducersPartitionResponse(partition_index=topic_partition.partition)
        try:
            if not is_permitted:
                raise KafkaError(_NOT_AUTHORIZED)
            check_topic_name(topic)
            if self._metadata.topic(topic) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except KafkaError as error:
            answer.error_code = error.code
            answer.error_message = error.message or error.code.sentence
            return answer
        try:
            log = self._hosted.online(topic_partition).log
        except KafkaError as error:  # about a partition Kafka says no more than the code
            answer.error_code = error.code
            return answer
        answer.active_producers = [
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=(
                    -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset
                ),
            )
            for entry in log.producer_state.active_producers()
        ]
        return answer


def _topic_response(
    topic: TopicProduceData, answers: list[PartitionProduceResponse]
) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=answers
    )


def _refusal(
    data: PartitionProduceData, code: ErrorCode, message: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        error_message=message,
    )


def _known_to_version(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """Clients before Produce 11 do not know TRANSACTION_ABORTABLE (KIP-890)."""
    if (
        code is ErrorCode.TRANSACTION_ABORTABLE
        and context.api_version < _TRANSACTION_ABORTABLE_VERSION
    ):
        return ErrorCode.INVALID_TXN_STATE
    return code


def _is_transactional(data: PartitionProduceData) -> bool:
    return data.records is not None and is_transactional(data.records)


def _without(
    request: ProduceRequest, refused: Collection[str | bytes], *, by_id: bool
) -> ProduceRequest:
    """Return a request without some topics: nothing of them begins a transaction."""
    asked = copy(request)
    asked.topic_data = [
        topic
        for topic in request.topic_data
        if (topic.topic_id if by_id else topic.name) not in refused
    ]
    return asked


def _may_write_transactions(request: ProduceRequest, context: RequestContext) -> bool:
    transactional_id = request.transactional_id
    return transactional_id is not None and context.is_authorized(
        AclOperation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
    )


def _is_forbidden(may_write_transactions: bool, data: PartitionProduceData) -> bool:
    return not may_write_transactions and _is_transactional(data)


def _has_transactional_batch(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if _is_transactional(data):
                return True
    return False


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    topics = [
        _topic_response(topic, [_refusal(data, code, None) for data in topic.partition_data])
        for topic in request.topic_data
    ]
    if request.acks == 0:
        _close_on_error(topics)
        return None
    return ProduceResponse(responses=topics)


def _close_on_error(topics: list[TopicProduceResponse]) -> None:
    for topic in topics:
        for answer in topic.partition_responses:
            if answer.error_code != _NONE:
                name = topic.name or "a topic id"
                raise RemoteProtocolError(
                    f"a Produce with acks=0 to {name} partition {answer.index} failed with"
                    f" {answer.error_code.name}"
                )
