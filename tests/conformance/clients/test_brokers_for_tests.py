"""Brokers for tests with other projects' clients: the fixtures, and the command for Java."""

from __future__ import annotations

import os
import re
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
from tests.conformance.clients.members import wait_until
from tests.conformance.clients.records import Abilities, Record
from tests.conformance.clients.test_aiokafka import AioKafka
from tests.conformance.clients.test_kafka_python import KafkaPython
from tests.conformance.java_programs import run_program, waits_for_java
from tests.docs.pages import blocks

pytest_plugins = ["pytester"]
pytestmark = [*scenarios.MARKS, pytest.mark.kafka(scope="module")]

_HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "testing" / "how-to.md"
_COMMAND = (sys.executable, "-P", "-m", "kraftrio", "test-broker")
_DRIVERS: dict[str, Callable[[], list[str]]] = {
    "kafkajs": lambda: node_script("kafkajs_driver.mjs"),
    "franz-go": lambda: [str(go_program("franz"))],
}

_OF_PYTHON: dict[str, Callable[..., ConfluentKafka | AioKafka | KafkaPython]] = {
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


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"])
def test_clients_try_again(kafka_broker: KafkaBroker, client: str) -> None:
    """After an answer that was lost, and a commit that was refused: records are written once, each
    is read, and the position is committed."""
    kafka_broker.create_topic("orders", 1)
    sent = [Record(b"k", str(number).encode()) for number in range(10)]
    with ExitStack() as stack:
        made = _OF_PYTHON[client](kafka_broker.bootstrap_servers, enable_idempotence=True)
        if not isinstance(made, ConfluentKafka):
            stack.callback(made.close)
        kafka_broker.lose_answer("Produce")
        made.produce("orders", "none", sent)
        with made.member("orders", "billing", "reader") as member:
            wait_until(lambda: len(member.received) == len(sent), [member], "all records")
            kafka_broker.refuse("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", machine="reader")
            kafka_broker.delay("OffsetCommit", seconds=0.2)
            member.commit()
            kafka_broker.topic("orders").drained(by="billing").wait()
    assert [record.value for record in kafka_broker.records("orders")] == [
        record.value for record in sent
    ]
    story = kafka_broker.story()
    assert re.search(r"fault +PRODUCE of \S+ its answer is lost", story)
    assert re.search(r"reader +asks +OffsetCommit to n1: .* COORDINATOR_LOAD_IN_PROGRESS", story)
    assert re.search(r"reader +asks +OffsetCommit to n1: billing orders-0=10; done", story)


_LEAVES = """
import asyncio
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

pytestmark = pytest.mark.kafka(scope="module")
loop = asyncio.new_event_loop()

async def main(servers):
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="billing")
    await consumer.start()
    return consumer

def test_leaves_a_consumer(kafka_broker):
    kafka_broker.create_topic("orders")
    loop.run_until_complete(main(kafka_broker.bootstrap_servers))

def test_stops_it(kafka_broker):
    kafka_broker.create_topic("orders")

    async def both():
        await (await main(kafka_broker.bootstrap_servers)).stop()

    loop.run_until_complete(both())
"""


def test_what_aiokafka_leaves(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that was not stopped fails its test, and no other one."""
    monkeypatch.setenv("PYTHONPATH", str(python_packages("python-clients.txt")))
    pytester.makepyfile(_LEAVES)
    result = pytester.runpytest_subprocess("-p", "kraftrio.testing.plugin", "-W", "ignore")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*LeftOpen: *left open: AIOKafkaConsumer, not stopped; enter*"])


@waits_for_java
def test_java_starts_the_command() -> None:
    """As a test in Java does: it gets the address from the first line, and ends the broker."""
    source = Path(__file__).parents[1] / "CommandBroker.java"
    assert run_program(source, *_COMMAND) == ["read 100", "ended true"]


def test_a_faststream_application(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one in the documentation: its tests pass, and fail when it is broken."""
    files = {block.title: block.text for block in blocks(_HOW_TO.read_text())}
    application = files["billing.py"]
    broken = application.replace("order.cents / 100", "order.cents / 10")
    assert broken != application
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(python_packages("faststream.txt")), "."]))
    pytester.makepyfile(billing=application, test_billing=files["test_billing.py"])
    run = ("-p", "kraftrio.testing.plugin", "-p", "no:cacheprovider")
    pytester.runpytest_subprocess(*run).assert_outcomes(passed=3)
    pytester.makepyfile(billing=broken)
    # Each application waits five seconds for librdkafka's own commit: no more of them than needed.
    broken_run = pytester.runpytest_subprocess(*run, "-k", "invoice or left_out")
    broken_run.assert_outcomes(failed=2, deselected=1)
