"""Brokers for tests, as other people's clients use them: the fixtures, and the command for Java."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from kraftrio.testing import KafkaBroker
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentKafka
from tests.conformance.clients.driven import DrivenClient, Driver
from tests.conformance.clients.install import go_program, node_script, python_packages
from tests.conformance.clients.records import Abilities
from tests.conformance.clients.test_aiokafka import AioKafka
from tests.conformance.clients.test_kafka_python import KafkaPython
from tests.conformance.java_programs import run_program, waits_for_java

pytest_plugins = ["pytester"]
pytestmark = [*scenarios.MARKS, pytest.mark.kafka(scope="module")]

_COMMAND = (sys.executable, "-P", "-m", "kraftrio", "test-broker")
_DRIVERS: dict[str, Callable[[], list[str]]] = {
    "kafkajs": lambda: node_script("kafkajs_driver.mjs"),
    "franz-go": lambda: [str(go_program("franz"))],
}

_OF_PYTHON: dict[str, Callable[[str], ConfluentKafka | AioKafka | KafkaPython]] = {
    "confluent-kafka": ConfluentKafka,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
}


@pytest.mark.parametrize("client", [*_DRIVERS, *_OF_PYTHON])
def test_clients_read_what_they_send(kafka_broker: KafkaBroker, client: str) -> None:
    """In every compression, through a group; and the test sees it without a client."""
    if client in _OF_PYTHON:
        with ExitStack() as stack:
            made = _OF_PYTHON[client](kafka_broker.bootstrap_servers)
            if not isinstance(made, ConfluentKafka):
                stack.callback(made.close)
            scenarios.check_reading(made, "orders", "billing")
    else:
        can = Abilities(null_headers=client != "kafkajs")
        with closing(Driver(_DRIVERS[client](), kafka_broker.bootstrap_servers)) as driver:
            scenarios.check_reading(DrivenClient(driver, can=can), "orders", "billing")
    assert len(kafka_broker.records("orders")) == 1000
    kafka_broker.group("billing").empty().wait()


@waits_for_java
def test_java_starts_the_command() -> None:
    """As a test of Java does: it knows the broker by its first line, and ends it."""
    source = Path(__file__).parents[1] / "CommandBroker.java"
    assert run_program(source, *_COMMAND) == ["read 100", "ended true"]


_APPLICATION = '''
from faststream import FastStream
from faststream.confluent import KafkaBroker
from pydantic import BaseModel

class Order(BaseModel):
    number: int
    cents: int

class Invoice(BaseModel):
    order: int
    total: str

def make_app(servers: str) -> FastStream:
    """An application that writes an invoice for each order, and leaves out what is none."""
    broker = KafkaBroker(servers)

    @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.number, total=f"{order.cents / 100:.2f}")

    return FastStream(broker)
'''

_TESTS_OF_THE_APPLICATION = '''
import asyncio
import json
import pytest
from billing import make_app

pytestmark = pytest.mark.kafka(scope="module")

async def run(kafka_broker):
    """Run the application until it has read all there is."""
    app = make_app(kafka_broker.bootstrap_servers)
    await app.start()
    try:
        await kafka_broker.topic("orders").drained(by="billing", timeout_s=60)
    finally:
        await app.stop()

def order(number):
    return json.dumps({"number": number, "cents": 100 + number})

def invoices(kafka_broker):
    return [json.loads(record.value) for record in kafka_broker.records("invoices")]

def test_each_order_has_its_invoice(kafka_broker):
    kafka_broker.create_topic("orders", partitions=2)
    kafka_broker.produce("orders", *map(order, range(20)))
    asyncio.run(run(kafka_broker))
    assert sorted(invoice["order"] for invoice in invoices(kafka_broker)) == list(range(20))
    assert {"order": 7, "total": "1.07"} in invoices(kafka_broker)

def test_what_is_no_order_is_left_out(kafka_broker):
    kafka_broker.produce("orders", "no order", order(1), partition=0)
    asyncio.run(run(kafka_broker))
    assert invoices(kafka_broker) == [{"order": 1, "total": "1.01"}]

def test_it_goes_on_where_it_was(kafka_broker):
    for number in (1, 2):
        kafka_broker.produce("orders", order(number))
        asyncio.run(run(kafka_broker))
    assert [invoice["order"] for invoice in invoices(kafka_broker)] == [1, 2]
'''


def test_a_faststream_application(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own tests pass, and fail when it is broken."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(python_packages("faststream.txt")), "."]))
    pytester.makepyfile(billing=_APPLICATION, test_billing=_TESTS_OF_THE_APPLICATION)
    run = ("-p", "kraftrio.testing.plugin", "-p", "no:cacheprovider")
    pytester.runpytest_subprocess(*run).assert_outcomes(passed=3)
    pytester.makepyfile(billing=_APPLICATION.replace("order.cents / 100", "order.cents / 10"))
    pytester.runpytest_subprocess(*run).assert_outcomes(passed=1, failed=2)
