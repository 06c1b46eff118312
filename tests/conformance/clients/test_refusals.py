"""What is not served is refused so that each family of clients gives up at once, and says why.

A client that takes a refusal as something that passes would ask again for a minute, or for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from tests.conformance.broker_process import SERVES_ALL
from tests.conformance.clients import scenarios
from tests.conformance.clients.install import python_client

pytestmark = [
    *scenarios.MARKS,
    pytest.mark.skipif(SERVES_ALL, reason="Apache Kafka serves what is refused here"),
]

Names = Callable[[], str]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if what is done takes longer."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def test_confluent_kafka_consumer_protocol(
    bootstrap: str, unique_topic: Names, unique_group: Names
) -> None:
    """A consumer of the new protocol ends with a fatal error."""
    library = python_client("confluent_kafka")
    consumer = library.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": unique_group(), "group.protocol": "consumer"}
    )
    with closing(consumer), within(5):
        consumer.subscribe([unique_topic()])
        message = consumer.poll(scenarios.DEADLINE_S)
        assert message is not None
        assert message.error().code() == library.KafkaError._FATAL
        assert "ConsumerGroupHeartbeat" in message.error().str()
