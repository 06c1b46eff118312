"""The answers to requests about transactional ids, through the wire: those of Apache Kafka.

The unit tests of the coordinator hold its core to the same traces. With TEST_BROKER=apache they are
checked against Apache Kafka, and with TEST_REWRITE=1 besides they are recorded again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.messages.transactions import DescribeTransactionsRequest
from tests.conformance.cases.raw_client import RawClient
from tests.support.golden import check
from tests.unit.broker.coordinator.transactions.transaction_script import TransactionScript

TRACES = Path(__file__).resolve().parents[2] / "unit/broker/coordinator/transactions/traces"
SETTLE_S = 30.0


class WireScript(TransactionScript):
    """A broker that is the coordinator of every id."""

    def __init__(self, client: RawClient, topic: str) -> None:
        super().__init__()
        self._client = client
        self.topic = topic

    def new_id(self) -> str:
        return f"trace-{uuid.uuid4()}"

    def ask(self, request: Any, version: int) -> Any:
        return self._client.call(request, version)

    def settle(self, transactional_id: str) -> str:
        deadline = time.monotonic() + SETTLE_S
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (described,) = self._client.call(request).transaction_states
            if described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return "absent"
            assert described.error_code == ErrorCode.NONE
            if not described.transaction_state.startswith("Prepare"):
                return str(described.transaction_state)
            assert time.monotonic() < deadline, f"{transactional_id} stays {described}"


def test_answers_through_the_wire(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Every command uses an id of its own. The highest epochs are left to the unit test."""
    wait_until_done(client, FindCoordinatorRequest(key="trace", key_type=1), 2)  # makes the topic
    wait_until_done(client, InitProducerIdRequest(transactional_id=None), 4)
    check(TRACES / "answers.txt", WireScript(client, new_topic(partitions=2)).run)


def wait_until_done(client: RawClient, request: Any, version: int) -> None:
    """Ask until the broker is ready; the first answers may be to try again later."""
    deadline = time.monotonic() + SETTLE_S
    while (code := client.call(request, version).error_code) != ErrorCode.NONE:
        assert time.monotonic() < deadline, code
        time.sleep(0.05)
