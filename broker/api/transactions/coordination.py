"""What producers ask the coordinator of their transactional id, and brokers on their behalf.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn (KIP-98, KIP-360, KIP-890). What a
request means for a transactional id is its shard's to decide; this module knows the layouts of the
versions, and checks what needs no transaction.

Behaviour (Apache Kafka's)
- Without a transactional id InitProducerId gives a fresh producer id with epoch 0.
- AddPartitionsToTxn adds all of a transaction's partitions or none: beside those that do not exist,
  or that its client may not write, the others are OPERATION_NOT_ATTEMPTED.
- A request that needs a new producer id waits for it here; Kafka's first one has to send it again.

Version notes: AddPartitionsToTxn 4 is for brokers only; it holds a batch of transactions, each to
be added to or verified. EndTxn 5 gives the epoch of the next transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from kraftrio.base.deferred import Deferred, gather
from kraftrio.broker.controller.producer_ids import ProducerIdManager
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kraftrio.broker.coordinator.transactions.ports import (
    NeedsProducerId,
    TransactionProperties,
)
from kraftrio.broker.coordinator.transactions.requests import (
    check_init_producer_id,
    version_of_adding_client,
)
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import EndingTransactions
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES
from kraftrio.broker.server.slices.sliced_work import Work, do_at_once
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.wire.codec.lazy_arrays import Countable, each, pairs
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
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
)
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kraftrio.wire.topic_names import INTERNAL_TOPICS

R = TypeVar("R")

_NONE: Final = ErrorCode.NONE
_ADD_PARTITIONS_BROKERS_VERSION: Final = 4

Codes: TypeAlias = Callable[[TopicPartition], ErrorCode]
"""Gives the code of each partition in an answer."""


class Markers(EndingTransactions, Protocol):
    """Writes the markers of what was decided."""

    def send_now(self) -> None:
        """Send what waits to be sent, instead of a little later."""


class TransactionHandlers:
    """The handlers of one broker.

    Args:
        groups: knows the partition that a group's offsets are in.
        markers: writes the markers of what was decided, at once as far as that can be done.
    """

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        groups: CoordinatorRuntime[Any],
        producer_ids: ProducerIdManager,
        metadata: MetadataCache,
        properties: TransactionProperties,
        markers: Markers,
    ) -> None:
        self._coordinator = coordinator
        self._groups = groups
        self._producer_ids = producer_ids
        self._metadata = metadata
        self._properties = properties
        self._markers = markers

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.END_TXN: self.end_transaction,
        }

    # -- InitProducerId -------------------------------------------------------------------------

    def init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
        """Give a producer its id and epoch."""
        code = self._check_init(request, context)
        if code is not _NONE:
            return _init_refusal(code)
        transactional_id = request.transactional_id
        if transactional_id is None:
            return _now_or_later(self._producer_ids.next_producer_id().map(_fresh_producer))
        api_version = context.api_version

        def ask() -> Deferred[InitProducerIdResponse | NeedsProducerId]:
            return self._coordinator.write(
                transactional_id,
                lambda shard, now: shard.init_producer_id(
                    request, api_version=api_version, now=now
                ),
                _init_refusal,
            )

        return _now_or_later(self._with_producer_ids(ask, _init_refusal))

    def _check_init(self, request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
        transactional_id = request.transactional_id
        if transactional_id is None:
            if not context.may_see(AclOperation.IDEMPOTENT_WRITE, CLUSTER) and not context.may(
                AclOperation.WRITE, ResourceType.TOPIC, None
            ):
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if (request.producer_id == NO_PRODUCER_ID) != (
                request.producer_epoch == NO_PRODUCER_EPOCH
            ):
                return ErrorCode.INVALID_REQUEST
            return _NONE
        if not _may_write(context, transactional_id) or (
            request.enable_2pc
            and not _may(context, AclOperation.TWO_PHASE_COMMIT, transactional_id)
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return check_init_producer_id(request, self._properties)

    def _with_producer_ids(
        self,
        ask: Callable[[], Deferred[R | NeedsProducerId]],
        refuse: Callable[[ErrorCode], R],
    ) -> Deferred[R]:
        """Ask a shard, again whenever it needs a producer id and one has come."""
        answer: Deferred[R] = Deferred()

        def on_answer(asked: Deferred[R | NeedsProducerId]) -> None:
            response = asked.value
            if isinstance(response, NeedsProducerId):
                self._producer_ids.when_at_hand().then(on_producer_ids)
            else:
                answer.complete(response)

        def on_producer_ids(code: ErrorCode) -> None:
            if code is _NONE:
                ask().when_done(on_answer)
            else:
                answer.complete(refuse(code))

        ask().when_done(on_answer)
        return answer

    # -- EndTxn ---------------------------------------------------------------------------------

    def end_transaction(
        self, request: EndTxnRequest, context: RequestContext
    ) -> EndTxnResponse | Deferred[EndTxnResponse]:
        """Commit or abort; the answer comes when the decision is committed."""
        if not _may_write(context, request.transactional_id):
            return _end_refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not request.transactional_id:
            return _end_refusal(ErrorCode.INVALID_REQUEST)
        api_version = context.api_version

        def ask() -> Deferred[EndTxnResponse | NeedsProducerId]:
            ended: Deferred[EndTxnResponse | NeedsProducerId] = self._coordinator.write(
                request.transactional_id,
                lambda shard, now: shard.end_transaction(request, api_version=api_version, now=now),
                _end_refusal,
            )
            self._markers.send_now()
            return ended

        return _now_or_later(self._with_producer_ids(ask, _end_refusal))

    # -- AddOffsetsToTxn ------------------------------------------------------------------------

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, context: RequestContext
    ) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
        """Add the partition that holds a group's offsets; the group need not exist."""
        if not _may_write(context, request.transactional_id):
            return AddOffsetsToTxnResponse(
                error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
        group = Resource(ResourceType.GROUP, request.group_id)
        if not context.is_authorized(AclOperation.READ, group):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        partition = TopicPartition(self._groups.topic, self._groups.partition_for(request.group_id))
        added = self._add(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            {partition},
            context.api_version,
            client_version=0,
        )
        return _now_or_later(added.map(lambda code: AddOffsetsToTxnResponse(error_code=code)))

    def _add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: set[TopicPartition],
        api_version: int,
        client_version: int,
        *,
        waits: bool = True,
    ) -> Deferred[ErrorCode]:
        """Add to a transaction.

        Args:
            waits: a little, where the one before is still ending. Else the producer would be told
                to come again, after a pause that is longer.
        """
        if not transactional_id:
            return Deferred.completed(ErrorCode.INVALID_REQUEST)

        def ask() -> Deferred[ErrorCode]:
            return self._coordinator.write(
                transactional_id,
                lambda shard, now: shard.add_partitions(
                    transactional_id,
                    producer,
                    partitions,
                    api_version=api_version,
                    client_version=client_version,
                    now=now,
                ),
                lambda code: code,
            )

        added = ask()
        if not waits or not added.done or added.value is not ErrorCode.CONCURRENT_TRANSACTIONS:
            return added
        ended = self._markers.when_ended(transactional_id)
        if ended is None:
            return added
        later: Deferred[ErrorCode] = Deferred()
        ended.then(lambda _none: ask().then(later.complete))
        return later

    # -- AddPartitionsToTxn ---------------------------------------------------------------------

    def add_partitions(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
        """Add partitions to transactions, or verify that they are in them."""
        if context.api_version < _ADD_PARTITIONS_BROKERS_VERSION:
            request.transactions = [_of_client(request)]
        elif not context.is_authorized(AclOperation.CLUSTER_ACTION, CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        checks = _PartitionChecks(self._metadata.image, context)
        work = self._add_to_all(request.transactions, checks, context)
        finish = partial(_added_response, request, checks, context.api_version)
        if _is_long(request.transactions):
            return _finish_work(work, finish)
        return _now_or_later(gather(do_at_once(work).value).map(finish))

    def _add_to_all(
        self,
        transactions: Countable[AddPartitionsToTxnTransaction],
        checks: _PartitionChecks,
        context: RequestContext,
    ) -> Work[list[Deferred[Any]]]:
        """Give what becomes of each."""
        added: list[Deferred[Any]] = []
        for transaction in transactions:
            added.append((yield from self._add_to_one(transaction, checks, context)))
            yield None
        return added

    def _add_to_one(
        self,
        transaction: AddPartitionsToTxnTransaction,
        checks: _PartitionChecks,
        context: RequestContext,
    ) -> Work[Deferred[Any]]:
        """Add to one transaction, or verify.

        Returns:
            One code for all its partitions, some code for each of them (verified), or None: they
            were not added because of what their checks say.
        """
        transactional_id = transaction.transactional_id
        if checks.is_client and not _may_write(context, transactional_id):
            return Deferred.completed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        partitions: set[TopicPartition] = set()
        is_refused = False
        for topic in transaction.topics:
            for index in topic.partitions:
                topic_partition = TopicPartition(topic.name, index)
                if checks.code(topic_partition) is _NONE:
                    partitions.add(topic_partition)
                else:
                    is_refused = True
                yield None
            yield None
        if is_refused:
            return Deferred.completed(None)
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only and not checks.is_client:
            return self._verify(transactional_id, producer, partitions)
        return self._add(
            transactional_id,
            producer,
            partitions,
            context.api_version,
            version_of_adding_client(context.api_version),
            waits=checks.is_client,  # a broker asks again by itself: its request has others, too
        )

    def _verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: set[TopicPartition]
    ) -> Deferred[ErrorCode | Mapping[TopicPartition, ErrorCode]]:
        if not transactional_id:
            return Deferred.completed(ErrorCode.INVALID_REQUEST)
        return self._coordinator.write(
            transactional_id,
            lambda shard, _now: shard.verify_partitions(transactional_id, producer, partitions),
            lambda code: code,
        )


class _PartitionChecks:
    """What can be said of a partition without its transaction; of one image, so always the same."""

    def __init__(self, image: MetadataImage, context: RequestContext) -> None:
        self._image = image
        self._context = context
        self.is_client = context.api_version < _ADD_PARTITIONS_BROKERS_VERSION
        self._topic = ""  # the last one that was asked about: partitions come by topic
        self._topic_code = _NONE

    def code(self, topic_partition: TopicPartition) -> ErrorCode:
        """NONE if it may be added."""
        name, index = topic_partition
        if self.is_client and name != self._topic:
            self._topic, self._topic_code = name, self._check_topic(name)
        if self.is_client and self._topic_code is not _NONE:
            return self._topic_code
        topic = self._image.topics_by_name.get(name)
        if topic is None or index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _NONE

    def code_where_refused(self, topic_partition: TopicPartition) -> ErrorCode:
        """The code of a partition in a transaction that some partition of it was refused for."""
        code = self.code(topic_partition)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if code is _NONE else code

    def _check_topic(self, name: str) -> ErrorCode:
        """Brokers add what they have authorized; of a client it is checked here."""
        topic = Resource(ResourceType.TOPIC, name)
        if name in INTERNAL_TOPICS or not self._context.is_authorized(AclOperation.WRITE, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _NONE


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    """The one transaction that a client names."""
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _is_long(transactions: Countable[AddPartitionsToTxnTransaction]) -> bool:
    """Whether there is too much for one step."""
    if len(transactions) > PART_ENTRIES:
        return True
    count = 0
    for transaction in transactions:
        if len(transaction.topics) > PART_ENTRIES:
            return True
        count += sum(1 + len(topic.partitions) for topic in transaction.topics)
        if count > PART_ENTRIES:
            return True
    return False


def _finish_work(
    work: Work[list[Deferred[Any]]], finish: Callable[[list[Any]], AddPartitionsToTxnResponse]
) -> Work[AddPartitionsToTxnResponse]:
    """`gather` with pauses, for what is long."""
    added: list[Any] = []
    for one in (yield from work):
        yield one
        added.append(one.value)
    return finish(added)


def _added_response(
    request: AddPartitionsToTxnRequest, checks: _PartitionChecks, api_version: int, added: list[Any]
) -> AddPartitionsToTxnResponse:
    def codes_of(outcome: Any) -> Codes:
        if outcome is None:
            return checks.code_where_refused
        if isinstance(outcome, ErrorCode):
            return lambda _topic_partition: outcome
        return lambda topic_partition: outcome[topic_partition]

    if api_version < _ADD_PARTITIONS_BROKERS_VERSION:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_topic_results(
                request.v3_and_below_topics, codes_of(added[0])
            )
        )

    def result(one: tuple[AddPartitionsToTxnTransaction, Any]) -> AddPartitionsToTxnResult:
        transaction, outcome = one
        return AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=_topic_results(transaction.topics, codes_of(outcome)),
        )

    return AddPartitionsToTxnResponse(
        results_by_transaction=each(result, pairs(request.transactions, added))
    )


def _topic_results(
    topics: Countable[AddPartitionsToTxnTopic], code_of: Codes
) -> list[AddPartitionsToTxnTopicResult]:
    def topic_result(topic: AddPartitionsToTxnTopic) -> AddPartitionsToTxnTopicResult:
        return AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=each(
                lambda index: AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=code_of(TopicPartition(topic.name, index)),
                ),
                topic.partitions,
            ),
        )

    return each(topic_result, topics)


def _may_write(context: RequestContext, transactional_id: str) -> bool:
    return _may(context, AclOperation.WRITE, transactional_id)


def _may(context: RequestContext, operation: AclOperation, transactional_id: str) -> bool:
    resource = Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
    return context.is_authorized(operation, resource)


def _fresh_producer(given: tuple[ErrorCode, int]) -> InitProducerIdResponse:
    code, producer_id = given
    if code is not _NONE:
        return _init_refusal(code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _init_refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def _end_refusal(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


def _now_or_later(deferred: Deferred[R]) -> R | Deferred[R]:
    return deferred.value if deferred.done else deferred
