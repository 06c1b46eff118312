"""DescribeTransactions and ListTransactions: what is returned for which transactional ids."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.transactions.listing import (
    TransactionFilter,
    describe_transaction,
    listed_transaction,
)
from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.broker.coordinator.transactions.state import TransactionMetadata, TransactionState
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsState,
    DescribeTransactionsTopicData,
    ListTransactionsRequest,
    ListTransactionsState,
)
from kraftrio.wire.primitives import TopicPartition
from tests.support.sliced import finish

NOW_MS = 100_000
ONGOING = TransactionMetadata(
    "orders-1",
    ProducerIdentity(5, 3),
    60_000,
    TransactionState.ONGOING,
    frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)}),
    start_ms=90_000,
    last_update_ms=95_000,
)
EMPTY = TransactionMetadata("orders-2", ProducerIdentity(6, 0), 60_000, last_update_ms=99_000)


def test_description_of_an_ongoing_transaction() -> None:
    assert describe_transaction("orders-1", ONGOING) == DescribeTransactionsState(
        transactional_id="orders-1",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=90_000,
        producer_id=5,
        producer_epoch=3,
        topics=[
            DescribeTransactionsTopicData(topic="a", partitions=[2]),
            DescribeTransactionsTopicData(topic="b", partitions=[0, 1]),
        ],
    )


def test_description_of_an_id_that_is_not_there() -> None:
    described = describe_transaction("none", None)
    assert described.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert described.transactional_id == "none"
    assert (described.transaction_state, described.topics) == ("", [])


@pytest.mark.parametrize(
    ("filters", "listed"),
    [
        ({}, ["orders-1", "orders-2"]),
        ({"producer_id_filters": [6, 7]}, ["orders-2"]),
        ({"state_filters": ["Ongoing", "PrepareCommit"]}, ["orders-1"]),
        ({"state_filters": ["ongoing"]}, []),  # names are exact; what is unknown matches nothing
        ({"state_filters": ["Dead"]}, []),
        ({"state_filters": ["Empty", "Ongoing"], "producer_id_filters": [5]}, ["orders-1"]),
        ({"duration_filter": 0}, ["orders-1", "orders-2"]),
        ({"duration_filter": 9_999}, ["orders-1", "orders-2"]),
        ({"duration_filter": 10_000}, ["orders-2"]),  # an id without a transaction starts at -1
        ({"duration_filter": -1}, ["orders-1", "orders-2"]),
        ({"transactional_id_pattern": r"orders-\d"}, ["orders-1", "orders-2"]),
        ({"transactional_id_pattern": "orders"}, []),  # the whole id has to match
        ({"transactional_id_pattern": ""}, ["orders-1", "orders-2"]),
        ({"transactional_id_pattern": ".*1", "state_filters": ["Empty"]}, []),
    ],
)
def test_filters_hold_together(filters: dict[str, Any], listed: list[str]) -> None:
    wanted = TransactionFilter(ListTransactionsRequest(**filters), NOW_MS)
    passed = [each for each in (ONGOING, EMPTY) if finish(wanted.passes(each))]
    assert [each.transactional_id for each in passed] == listed


@pytest.mark.parametrize("pattern", ["(", "*", "(?=a)", "(a{1000}){1000}"])
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        TransactionFilter(ListTransactionsRequest(transactional_id_pattern=pattern), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_entry_of_the_list() -> None:
    assert listed_transaction(ONGOING) == ListTransactionsState(
        transactional_id="orders-1", producer_id=5, transaction_state="Ongoing"
    )
