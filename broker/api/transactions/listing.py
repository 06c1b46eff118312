"""ListTransactions and DescribeTransactions (KIP-664): what administrators see of transactions.

Behaviour: a broker lists the transactional ids that it coordinates, and no others; while it loads
some of them the answer is COORDINATOR_LOAD_IN_PROGRESS. Ids, and topics of a transaction, that a
principal may not see are left out of lists.
"""

from __future__ import annotations

from typing import Final

from kraftrio.base.clock import Clock
from kraftrio.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kraftrio.broker.coordinator.transactions.listing import TransactionFilter, listed_transaction
from kraftrio.broker.coordinator.transactions.state import STATES_BY_NAME, TransactionMetadata
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_sets import distinct
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsState,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kraftrio.wire.protocol.api import ApiKey

# Stand for filters that nothing matches; an empty filter would match everything.
_NO_STATE: Final = ""
_NO_PRODUCER_ID: Final = -1


class TransactionListingHandlers:
    """Serves look-ups of transactions."""

    def __init__(self, coordinator: TransactionCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
        }

    # -- ListTransactions -----------------------------------------------------------------------

    def list_transactions(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> Slices[ListTransactionsResponse]:
        """List those that pass all filters; name the states that do not exist."""
        try:
            by_shard = self._coordinator.read_all(lambda shard: shard.transactions())
            unknown = yield from _cut_states(request)
            yield from _cut_producer_ids(request, by_shard)
            chosen = TransactionFilter(request, self._clock.wall_ms())
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
        listed = []
        for transactions in by_shard:
            for transaction in transactions:
                passes = yield from chosen.passes(transaction)
                if passes and context.may_see(
                    AclOperation.DESCRIBE,
                    Resource(ResourceType.TRANSACTIONAL_ID, transaction.transactional_id),
                ):
                    listed.append(transaction)
                yield
        return ListTransactionsResponse(
            unknown_state_filters=unknown, transaction_states=each(listed_transaction, listed)
        )

    # -- DescribeTransactions -------------------------------------------------------------------

    def describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        """Describe each id by what its shard says."""
        return DescribeTransactionsResponse(
            transaction_states=each(
                lambda transactional_id: self._describe(transactional_id, context),
                request.transactional_ids,
            )
        )

    def _describe(
        self, transactional_id: str, context: RequestContext
    ) -> DescribeTransactionsState:
        code = ErrorCode.NONE
        if not context.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not transactional_id:
            code = ErrorCode.INVALID_REQUEST
        if code is not ErrorCode.NONE:
            return DescribeTransactionsState(error_code=code, transactional_id=transactional_id)
        try:
            described = self._coordinator.read(
                transactional_id, lambda shard, _now: shard.describe(transactional_id)
            )
        except KafkaError as error:
            return DescribeTransactionsState(
                error_code=error.code, transactional_id=transactional_id
            )
        described.topics = [
            topic
            for topic in described.topics
            if context.may_see(AclOperation.DESCRIBE, Resource(ResourceType.TOPIC, topic.topic))
        ]
        return described


def _cut_states(request: ListTransactionsRequest) -> Slices[list[str]]:
    """Leave the states that exist in the filter; return the others."""
    states = yield from distinct(request.state_filters)
    known: list[str] = []
    unknown: list[str] = []
    for state in states:
        (known if state in STATES_BY_NAME else unknown).append(state)
        yield
    request.state_filters = known if known or not unknown else [_NO_STATE]
    return unknown


def _cut_producer_ids(
    request: ListTransactionsRequest, by_shard: list[list[TransactionMetadata]]
) -> Slices[None]:
    """Leave the producer ids of transactions in the filter, so that it cannot be larger."""
    if not len(request.producer_id_filters):
        return
    existing = set()
    for transactions in by_shard:
        for transaction in transactions:
            existing.add(transaction.producer.producer_id)
            yield
    wanted = set()
    for producer_id in request.producer_id_filters:
        if producer_id in existing:
            wanted.add(producer_id)
        yield
    request.producer_id_filters = list(wanted) or [_NO_PRODUCER_ID]
