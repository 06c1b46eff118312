"""The answers to requests about consumer groups, through the wire: those of Apache Kafka.

The unit tests of the coordinator hold its core to the same traces. With TEST_BROKER=apache they are
checked against Apache Kafka, and with TEST_REWRITE=1 besides they are recorded again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import create_topic, topic_id, wait_for_coordinator
from tests.conformance.cases.raw_client import RawClient
from tests.support.golden import check
from tests.unit.broker.coordinator.groups.consumer.consumer_script import ConsumerScript

TRACES = Path(__file__).resolve().parents[2] / "unit/broker/coordinator/groups/consumer/traces"


class WireScript(ConsumerScript):
    """A broker that is the coordinator of every group."""

    def __init__(self, client: RawClient) -> None:
        super().__init__()
        self._client = client
        self.topics = {
            name: create_topic(client, f"trace-{name}-{uuid.uuid4()}", partitions=count)
            for name, count in (("t", 4), ("u", 1))
        }
        self.topic_ids = {name: topic_id(client, made) for name, made in self.topics.items()}

    def new_group(self) -> str:
        return f"trace-{uuid.uuid4()}"

    def ask(self, request: Any, version: int) -> Any:
        return self._client.call(request, version)


def test_answers_through_the_wire(make_broker: Callable[..., Broker]) -> None:
    """Every command has a group of its own; assignments are computed at once."""
    broker = make_broker(
        group_consumer_assignment_interval_ms=0, group_initial_rebalance_delay_ms=0
    )
    with RawClient(broker.address) as client:
        wait_for_coordinator(client)
        check(TRACES / "answers.txt", WireScript(client).run)
