"""What is not served is refused so that each family of clients gives up at once, and says why.

A client that takes a refusal as something that passes would ask again for a minute, or for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.conformance.broker_process import SERVES_ALL
from tests.conformance.clients import scenarios
from tests.conformance.clients.driven import Driver
from tests.conformance.clients.install import go_program, node_script, python_client
from tests.conformance.clients.scenarios import ClientError

pytestmark = [
    *scenarios.MARKS,
    pytest.mark.skipif(SERVES_ALL, reason="Apache Kafka serves what is refused here"),
]

REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Names = Callable[[], str]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if what is done takes longer."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def test_confluent_kafka_transactions(bootstrap: str, unique_group: Names) -> None:
    """librdkafka takes one code alone as final."""
    library = python_client("confluent_kafka")
    producer = library.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": unique_group()}
    )
    with within(5), pytest.raises(library.KafkaException) as caught:
        producer.init_transactions(scenarios.DEADLINE_S)
    error = caught.value.args[0]
    assert (error.code(), error.fatal()) == (REFUSED, True)
    assert "does not serve transactions" in error.str()


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


def test_kafka_python_transactions(bootstrap: str, unique_group: Names) -> None:
    library = python_client("kafka")
    producer = library.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique_group())
    try:
        with within(5), pytest.raises(library.errors.TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=5)


def test_aiokafka_transactions(bootstrap: str, unique_group: Names) -> None:
    library = python_client("aiokafka")

    async def begin() -> None:
        producer = library.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=unique_group()
        )
        try:
            with pytest.raises(library.errors.TransactionalIdAuthorizationFailed):
                await producer.start()
        finally:
            await producer.stop()

    with within(5):
        asyncio.run(begin())


def test_franz_go_transactions(bootstrap: str, topic: str, unique_group: Names) -> None:
    check_transactions(Driver([str(go_program("franz"))], bootstrap), topic, unique_group())


def test_sarama_transactions(bootstrap: str, topic: str, unique_group: Names) -> None:
    check_transactions(Driver([str(go_program("sarama"))], bootstrap), topic, unique_group())


def test_kafkajs_transactions(bootstrap: str, topic: str, unique_group: Names) -> None:
    """kafkajs gives up with an error of its own."""
    refused = pytest.raises(AssertionError, match="Failed to find group coordinator")
    with (
        closing(Driver(node_script("kafkajs_driver.mjs"), bootstrap)) as driver,
        within(5),
        refused,
    ):
        driver.call("transact", topic=topic, name=unique_group())


def check_transactions(driver: Driver, topic: str, transactional_id: str) -> None:
    """A transaction of a driven client fails with the code that was told."""
    with closing(driver), within(5):
        with pytest.raises(ClientError) as caught:
            driver.call("transact", topic=topic, name=transactional_id)
        assert caught.value.code == REFUSED
