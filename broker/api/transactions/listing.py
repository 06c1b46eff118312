"""ListTransactions and DescribeTransactions (KIP-664), where no transaction can be started.

Behaviour: as of a broker of Apache Kafka that coordinates none: an empty list, and
TRANSACTIONAL_ID_NOT_FOUND. FindCoordinator and InitProducerId refuse transactional ids with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: of all codes the one that each family of clients takes as
final.
"""

from __future__ import annotations

from typing import Final

from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.sliced_sets import distinct
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsState,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kraftrio.wire.protocol.api import ApiKey

_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


class TransactionHandlers:
    """Serves look-ups of transactions."""

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
        }

    def list_transactions(
        self, request: ListTransactionsRequest, _context: RequestContext
    ) -> Slices[ListTransactionsResponse]:
        """List none; name the states that do not exist."""
        states = yield from distinct(request.state_filters)
        unknown = []
        for state in states:
            if state not in _STATES:
                unknown.append(state)
            yield
        return ListTransactionsResponse(unknown_state_filters=unknown)

    def describe_transactions(
        self, request: DescribeTransactionsRequest, _context: RequestContext
    ) -> DescribeTransactionsResponse:
        """Find no transactional id."""
        return DescribeTransactionsResponse(
            transaction_states=each(_not_found, request.transactional_ids)
        )


def _not_found(transactional_id: str) -> DescribeTransactionsState:
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if not transactional_id:
        code = ErrorCode.INVALID_REQUEST
    return DescribeTransactionsState(error_code=code, transactional_id=transactional_id)
