"""DescribeTransactions and ListTransactions: what administrators see of transactional ids.

Version notes of ListTransactions: 1 adds the filter by duration (KIP-994), 2 the one by a pattern
that an id matches as a whole (KIP-1152). All filters hold together; an empty one means any.

Sans-IO; called by `shard` and by the handlers.
"""

from __future__ import annotations

from kraftrio.base.patterns.pattern import Pattern
from kraftrio.base.patterns.syntax import PatternError
from kraftrio.broker.coordinator.transactions.state import (
    STATES_BY_NAME,
    TransactionMetadata,
)
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsState,
    DescribeTransactionsTopicData,
    ListTransactionsRequest,
    ListTransactionsState,
)
from kraftrio.wire.primitives import indexes_by_topic


def describe_transaction(
    transactional_id: str, transaction: TransactionMetadata | None
) -> DescribeTransactionsState:
    """Answer DescribeTransactions for one id."""
    if transaction is None:
        return DescribeTransactionsState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    return DescribeTransactionsState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.wire_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.epoch,
        topics=[
            DescribeTransactionsTopicData(topic=topic, partitions=indexes)
            for topic, indexes in indexes_by_topic(sorted(transaction.partitions)).items()
        ],
    )


class TransactionFilter:
    """Which transactions a ListTransactions asks for.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """

    __slots__ = (
        "_duration_ms",
        "_now_ms",
        "_pattern",
        "_producer_ids",
        "_states",
    )

    def __init__(self, request: ListTransactionsRequest, now_ms: int) -> None:
        self._producer_ids = frozenset(request.producer_id_filters)
        self._states = {STATES_BY_NAME.get(name) for name in request.state_filters}
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms
        self._pattern = _pattern(request.transactional_id_pattern)

    def passes(self, transaction: TransactionMetadata) -> Slices[bool]:
        """Whether a transaction belongs to the answer; pauses where its id takes long."""
        if self._producer_ids and transaction.producer.producer_id not in self._producer_ids:
            return False
        if self._states and transaction.state not in self._states:
            return False
        age_ms = self._now_ms - transaction.start_ms
        if self._duration_ms >= 0 and age_ms <= self._duration_ms:
            return False
        if self._pattern is None:
            return True
        return (yield from self._pattern.match(transaction.transactional_id))


def _pattern(text: str | None) -> Pattern | None:
    if not text:
        return None
    try:
        return Pattern(text)
    except PatternError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def listed_transaction(transaction: TransactionMetadata) -> ListTransactionsState:
    """Give a transaction's entry in ListTransactions."""
    return ListTransactionsState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer.producer_id,
        transaction_state=transaction.state.wire_name,
    )
