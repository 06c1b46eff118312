"""The admin client's part for transactions: which there are, what they are in, and ending them.

Owns `TransactionAdmin`, which programs reach as `Admin.transactions`.

Called by: `admin`. KIP-360 (fencing by InitProducerId), KIP-664, KIP-994 and KIP-1152 (filters).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraftrio.clients.admin.calls import (
    MOVED_COORDINATOR,
    AdminCalls,
    Begin,
    Deadline,
    collect,
    finish,
    for_each,
)
from kraftrio.clients.admin.types import (
    AbortTransactionSpec,
    FencedProducer,
    ProducerState,
    Results,
    TransactionDescription,
    TransactionListing,
)
from kraftrio.clients.arguments.several import (
    Partitions,
    Texts,
    several,
    texts,
    topic_partition,
    topic_partitions,
)
from kraftrio.clients.arguments.times import Duration, Milliseconds, whole_milliseconds
from kraftrio.clients.arguments.values import MAX_INT16, MAX_INT32, text, whole_number
from kraftrio.clients.coordinators import TRANSACTION_KEY_TYPE
from kraftrio.clients.errors import error_for
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    InitProducerIdRequest,
)
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.primitives import TopicPartition, indexes_by_topic

_NO_FILTER: Final = -1

# Fencing waits for the transaction that it aborts to be ended.
_RETRIED_FENCING: Final = MOVED_COORDINATOR | {ErrorCode.CONCURRENT_TRANSACTIONS}


class TransactionAdmin:
    """Administers transactions.

    Args:
        begin: begins a call, which may take some milliseconds at most.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    async def list_ids(
        self,
        *,
        states: Texts = (),
        producer_ids: int | Iterable[int] = (),
        min_duration_ms: Milliseconds | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: Duration | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators that pass every filter given.

        Args:
            min_duration_ms: only ids whose last transaction began longer ago, open or not.
            transactional_id_pattern: in RE2's syntax; the whole id must match.

        Raises:
            UnsupportedVersionError: a broker does not know the filter.
            TimedOutError, NetworkError: not every broker answered.
        """
        calls, deadline = self._begin(timeout_ms)
        request = ListTransactionsRequest(
            state_filters=texts("states", states, "a state"),
            producer_id_filters=[
                whole_number("a producer id", each)
                for each in several("producer_ids", producer_ids, int)
            ],
            duration_filter=_NO_FILTER
            if min_duration_ms is None
            else whole_milliseconds("min_duration_ms", min_duration_ms),
            transactional_id_pattern=None
            if transactional_id_pattern is None
            else text("transactional_id_pattern", transactional_id_pattern),
        )
        cluster = calls.cluster
        await cluster.refresh(timeout_s=deadline.left_s)
        found: dict[str, TransactionListing] = {}
        for node_id in sorted(cluster.metadata.brokers):
            response = await _list_of(calls, node_id, request, deadline)
            for each in response.transaction_states:
                found[each.transactional_id] = TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state
                )
        return [found[transactional_id] for transactional_id in sorted(found)]

    async def describe(
        self,
        transactional_ids: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, TransactionDescription]:
        """Return the states of transactional ids, and the partitions of open transactions.

        Raises:
            TransactionalIdNotFoundError, ...: for an id, if `raise_errors`.
        """
        calls, deadline = self._begin(timeout_ms)

        async def ask(transactional_id: str) -> TransactionDescription:
            node_id, response = await calls.ask_coordinator(
                transactional_id,
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                deadline,
                _codes_of_states,
                key_type=TRANSACTION_KEY_TYPE,
            )
            return _description(response.transaction_states[0], node_id)

        return finish(await for_each(_checked_ids(transactional_ids), ask), raise_errors)

    async def fence_producers(
        self,
        transactional_ids: Texts,
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[str, FencedProducer]:
        """Shut the producers of transactional ids out, which aborts their open transactions.

        Raises:
            TransactionalIdAuthorizationError, ...: for an id, if `raise_errors`.
        """
        calls, deadline = self._begin(timeout_ms)

        async def ask(transactional_id: str) -> FencedProducer:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                # For an id that was never used: it is not to linger.
                transaction_timeout_ms=max(int(deadline.request_timeout_s * 1000), 1),
            )
            _, response = await calls.ask_coordinator(
                transactional_id,
                request,
                deadline,
                lambda answer: [answer.error_code],
                key_type=TRANSACTION_KEY_TYPE,
                retried=_RETRIED_FENCING,
            )
            if response.error_code != ErrorCode.NONE:
                raise error_for(response.error_code)
            return FencedProducer(response.producer_id, response.producer_epoch)

        return finish(await for_each(_checked_ids(transactional_ids), ask), raise_errors)

    async def abort(
        self, spec: AbortTransactionSpec, *, timeout_ms: Duration | None = None
    ) -> None:
        """Write an abort marker into one partition: for a transaction that hangs there.

        The coordinator is not asked. A transaction that it still knows must not be aborted like
        this, since the rest of it could be committed.

        Raises:
            InvalidProducerEpochError: the producer has another epoch there.
            TransactionCoordinatorFencedError: a marker of a later coordinator is there.
            UnknownTopicOrPartitionError, ...: the partition is not there.
        """
        calls, deadline = self._begin(timeout_ms)
        if not isinstance(spec, AbortTransactionSpec):
            raise TypeError(f"spec must be an AbortTransactionSpec, not {spec!r}")
        partition = topic_partition(spec.topic_partition)
        marker = _abort_marker(spec, partition)
        results = await calls.ask_leaders(
            {partition: None},
            deadline,
            lambda _partitions: WriteTxnMarkersRequest(markers=[marker]),
            _marker_results,
        )
        finish(results, raise_errors=True)

    async def describe_producers(
        self,
        partitions: Partitions,
        *,
        broker_id: int | None = None,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that partitions know, and where their transactions began.

        Args:
            broker_id: ask this replica instead of the leaders.

        Raises:
            UnknownTopicOrPartitionError, ...: for a partition, if `raise_errors`.
        """
        calls, deadline = self._begin(timeout_ms)
        wanted = dict.fromkeys(sorted(topic_partitions("partitions", partitions)))
        if broker_id is None:
            results = await calls.ask_leaders(
                wanted, deadline, _producers_request, _producer_results
            )
        else:
            broker_id = whole_number("broker_id", broker_id, 0, MAX_INT32)
            response = await calls.ask_node(broker_id, _producers_request(wanted), deadline)
            results = collect(
                (each, code, None, states) for each, code, states in _producer_results(response)
            )
        return finish(results, raise_errors)


async def _list_of(
    calls: AdminCalls, node_id: int, request: ListTransactionsRequest, deadline: Deadline
) -> ListTransactionsResponse:
    while True:
        response: ListTransactionsResponse = await calls.ask_node(node_id, request, deadline)
        if response.error_code == ErrorCode.NONE:
            return response
        if response.error_code not in MOVED_COORDINATOR or not await deadline.pause():
            raise error_for(response.error_code)


def _checked_ids(given: Texts) -> list[str]:
    return texts("transactional_ids", given, "a transactional id")


def _abort_marker(spec: AbortTransactionSpec, partition: TopicPartition) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=whole_number("producer_id", spec.producer_id),
        producer_epoch=whole_number("producer_epoch", spec.producer_epoch, 0, MAX_INT16),
        coordinator_epoch=whole_number("coordinator_epoch", spec.coordinator_epoch, -1, MAX_INT32),
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        ],
    )


def _codes_of_states(response: DescribeTransactionsResponse) -> list[ErrorCode]:
    return [state.error_code for state in response.transaction_states]


def _description(reported: DescribeTransactionsState, node_id: int) -> TransactionDescription:
    if reported.error_code != ErrorCode.NONE:
        raise error_for(reported.error_code)
    start_ms = reported.transaction_start_time_ms
    return TransactionDescription(
        coordinator=node_id,
        state=reported.transaction_state,
        producer_id=reported.producer_id,
        producer_epoch=reported.producer_epoch,
        transaction_timeout_ms=reported.transaction_timeout_ms,
        transaction_start_time_ms=start_ms if start_ms >= 0 else None,
        topic_partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in reported.topics
            for partition in topic.partitions
        ),
    )


def _marker_results(
    response: WriteTxnMarkersResponse,
) -> Iterable[tuple[TopicPartition, ErrorCode, None]]:
    for marker in response.markers:
        for topic in marker.topics:
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition_index), each.error_code, None


def _producers_request(partitions: Mapping[TopicPartition, Any]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[
            DescribeProducersTopicRequest(name=topic, partition_indexes=indexes)
            for topic, indexes in indexes_by_topic(sorted(partitions)).items()
        ]
    )


def _producer_results(
    response: DescribeProducersResponse,
) -> Iterable[tuple[TopicPartition, ErrorCode, tuple[ProducerState, ...]]]:
    for topic in response.topics:
        for reported in topic.partitions:
            states = tuple(
                ProducerState(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
                    each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
                )
                for each in reported.active_producers
            )
            yield TopicPartition(topic.name, reported.partition_index), reported.error_code, states
