"""A cluster in virtual time for tests of clients: one broker, unless the mark `kafka` says more."""

from __future__ import annotations

import pytest

from kraftrio.testing import KafkaWorld
from tests.unit.clients.simulated import Kafka


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one broker be enough."""
    for item in items:
        if isinstance(item, pytest.Function) and "kafka" in item.fixturenames:
            item.add_marker(pytest.mark.kafka(brokers=1))


@pytest.fixture
def kafka(kafka_world: KafkaWorld) -> Kafka:
    """The cluster beside which the test runs."""
    return Kafka(kafka_world)
