"""ListTransactions and DescribeTransactions: filters, permissions, and requests that name much."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kraftrio.wire.topic_names import TRANSACTION_STATE
from tests.support.authorizers import Denies
from tests.unit.broker.api.transactions.transaction_stand_in import TransactionStandIn


@pytest.fixture
def broker() -> TransactionStandIn:
    """`ongoing`, which has begun a second ago, `done` and `idle`."""
    broker = TransactionStandIn()
    broker.init("idle")
    done = broker.init("done")
    broker.add(done, ("u", [0]), name="done")
    broker.end(done, name="done", version=3)
    ongoing = broker.init("ongoing")
    broker.add(ongoing, ("t", [2, 0]), ("u", [0]), name="ongoing")
    broker.timers.advance(1000)
    return broker


def listed(broker: TransactionStandIn, version: int = 2, **filters: Any) -> list[str]:
    response = broker.ask(ListTransactionsRequest(**filters), version)
    assert response.error_code is ErrorCode.NONE
    return sorted(one.transactional_id for one in response.transaction_states)


@pytest.mark.parametrize("version", range(3))
def test_all_shards_of_the_broker_are_listed(broker: TransactionStandIn, version: int) -> None:
    response = broker.ask(ListTransactionsRequest(), version)
    states = {one.transactional_id: one.transaction_state for one in response.transaction_states}
    assert states == {"idle": "Empty", "done": "CompleteCommit", "ongoing": "Ongoing"}
    assert response.unknown_state_filters == []


def test_filters_hold_together(broker: TransactionStandIn) -> None:
    assert listed(broker, state_filters=["Ongoing", "Empty"]) == ["idle", "ongoing"]
    by_id = {
        one.transactional_id: one.producer_id
        for one in broker.ask(ListTransactionsRequest()).transaction_states
    }
    wanted = [by_id["done"], by_id["ongoing"], 99]
    assert listed(broker, producer_id_filters=wanted) == ["done", "ongoing"]
    assert listed(broker, producer_id_filters=[99]) == []
    assert listed(broker, producer_id_filters=wanted, state_filters=["Ongoing"]) == ["ongoing"]


def test_a_pattern_matches_ids_as_a_whole(broker: TransactionStandIn) -> None:
    assert listed(broker, transactional_id_pattern="i?[do].*") == ["done", "idle", "ongoing"]
    assert listed(broker, transactional_id_pattern="on") == []
    wrong = broker.ask(ListTransactionsRequest(transactional_id_pattern="a("))
    assert wrong.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_unknown_states_are_named_and_match_nothing(broker: TransactionStandIn) -> None:
    response = broker.ask(ListTransactionsRequest(state_filters=["Wrong", "Empty", "Wrong"]))
    assert response.unknown_state_filters == ["Wrong"]
    assert [one.transactional_id for one in response.transaction_states] == ["idle"]
    response = broker.ask(ListTransactionsRequest(state_filters=["Wrong"]))
    assert response.unknown_state_filters == ["Wrong"]
    assert response.transaction_states == []


def test_filters_of_very_many_values_work_alike(broker: TransactionStandIn) -> None:
    states = [f"state-{number}" for number in range(1000)]
    response = broker.ask(ListTransactionsRequest(state_filters=[*states, "Ongoing"]))
    assert list(response.unknown_state_filters) == states
    assert [one.transactional_id for one in response.transaction_states] == ["ongoing"]
    assert listed(broker, producer_id_filters=list(range(3000))) == ["done", "idle", "ongoing"]


def test_while_a_shard_loads_nothing_is_listed() -> None:
    broker = TransactionStandIn()
    broker.init("a")
    for partition in range(2):
        broker.coordinator.resign(partition)
        broker.coordinator.elect(partition, 5)
    response = broker.ask(ListTransactionsRequest())
    assert response.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["a"]))
    (one,) = described.transaction_states
    assert one.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_each_id_is_described_by_its_shard(broker: TransactionStandIn) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["ongoing", "idle", "unknown", ""])
    ongoing, idle, unknown, empty = broker.ask(request).transaction_states
    assert (ongoing.error_code, ongoing.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert [(one.topic, one.partitions) for one in ongoing.topics] == [("t", [0, 2]), ("u", [0])]
    assert ongoing.transaction_timeout_ms == 60_000
    assert ongoing.transaction_start_time_ms == broker.timers.wall_ms() - 1000
    assert (idle.transaction_state, idle.topics) == ("Empty", [])
    assert unknown.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code is ErrorCode.INVALID_REQUEST


def test_another_brokers_ids_are_not_described_here() -> None:
    broker = TransactionStandIn(lead=False)
    assert listed(broker) == []
    request = DescribeTransactionsRequest(transactional_ids=["a"])
    (one,) = broker.ask(request).transaction_states
    assert (one.error_code, one.transactional_id) == (ErrorCode.NOT_COORDINATOR, "a")


def test_what_a_principal_may_not_see_is_left_out(broker: TransactionStandIn) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["ongoing"])
    broker.authorizer = Denies(AclOperation.DESCRIBE, Resource(ResourceType.TOPIC, "t"))
    (described,) = broker.ask(request).transaction_states
    assert [one.topic for one in described.topics] == ["u"]
    ongoing = Resource(ResourceType.TRANSACTIONAL_ID, "ongoing")
    broker.authorizer = Denies(AclOperation.DESCRIBE, ongoing)
    assert listed(broker) == ["done", "idle"]
    (described,) = broker.ask(request).transaction_states
    assert described.error_code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_partition_without_a_log_is_no_shard(broker: TransactionStandIn) -> None:
    broker.coordinator.resign(broker.coordinator.partition_for("ongoing"))
    assert "ongoing" not in listed(broker)
    assert broker.metadata.topic(TRANSACTION_STATE) is not None
