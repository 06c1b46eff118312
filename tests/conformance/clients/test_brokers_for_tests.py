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
from tests.docs.pages import blocks

pytest_plugins = ["pytester"]
pytestmark = [*scenarios.MARKS, pytest.mark.kafka(scope="module")]

_HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "testing" / "how-to.md"
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


def test_a_faststream_application(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the documentation: its tests pass, and fail when it is broken."""
    files = {block.title: block.text for block in blocks(_HOW_TO.read_text())}
    application = files["billing.py"]
    broken = application.replace("order.cents / 100", "order.cents / 10")
    assert broken != application
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(python_packages("faststream.txt")), "."]))
    pytester.makepyfile(billing=application, test_billing=files["test_billing.py"])
    run = ("-p", "kraftrio.testing.plugin", "-p", "no:cacheprovider")
    pytester.runpytest_subprocess(*run).assert_outcomes(passed=3)
    pytester.makepyfile(billing=broken)
    pytester.runpytest_subprocess(*run).assert_outcomes(passed=1, failed=2)
