"""kafka-client-metrics, and what Java clients push when they are asked to (KIP-714)."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path

import pytest

from tests.conformance.broker_process import KIND, Broker
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.conformance.test_prometheus import some_ports

TOOL = "kafka-client-metrics"
DEADLINE_S = 60.0


def test_a_subscription_is_made_listed_changed_and_deleted(kafka: KafkaTools) -> None:
    altered = kafka.run(
        *(TOOL, "--alter", "--name", "slow-ones", "--metrics", "org.apache.kafka.consumer."),
        *("--interval", "10000", "--match", "client_id=app-[0-9]+,client_software_name=x"),
    )
    assert "Altered client metrics config for slow-ones." in altered.output
    assert kafka.run(TOOL, "--list").lines == ["slow-ones"]
    shown = kafka.run(TOOL, "--describe", "--name", "slow-ones").output
    for wanted in (
        "Client metrics configs for slow-ones are:",
        "interval.ms=10000",
        "metrics=org.apache.kafka.consumer.",
        "match=client_id=app-[0-9]+,client_software_name=x",
    ):
        assert wanted in shown
    kafka.run(TOOL, "--alter", "--name", "slow-ones", "--interval", "")
    assert "interval.ms=300000" in kafka.run(TOOL, "--describe", "--name", "slow-ones").output
    assert "Deleted client metrics config" in kafka.run(TOOL, "--delete", "--name=slow-ones").output
    assert not kafka.run(TOOL, "--list").lines


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--interval", "50"), "Invalid value 50 for interval.ms, interval must be between"),
        (("--match", "shoe_size=9"), "Illegal client matching pattern: shoe_size=9"),
        (("--match", "client_id=("), "Illegal client matching pattern: client_id=("),
    ],
)
def test_what_a_subscription_cannot_be(
    kafka: KafkaTools, options: tuple[str, ...], reason: str
) -> None:
    refused = kafka.run(TOOL, "--alter", "--name", "wrong", *options, check=False)
    assert refused.exit_code != 0
    assert reason in refused.output
    assert "wrong" not in kafka.run(TOOL, "--list").lines


@pytest.mark.skipif(KIND != "kraftrio", reason="of our own metrics")
def test_java_clients_push_what_was_asked_for(tmp_path: Path, tool_runner: ToolRunner) -> None:
    """Nothing else, and only clients whose id matches; metrics are shown beside our own."""
    (port,) = some_ports(1)
    with Broker(tmp_path / "broker", metrics_listener=f"127.0.0.1:{port}") as broker:
        kafka = KafkaTools(broker.address, tool_runner)
        kafka.create_topic("topic")
        kafka.run(
            *(TOOL, "--alter", "--name", "mine", "--interval", "500"),
            *("--metrics", "org.apache.kafka.producer.record", "--match", "client_id=mine"),
        )
        names = ("mine", "other")
        producers = [
            kafka.start(
                *("kafka-producer-perf-test", "--topic", "topic", "--num-records", "1000000"),
                *("--record-size", "100", "--throughput", "200"),
                *("--producer-props", f"client.id={name}"),
            )
            for name in names
        ]
        with producers[0], producers[1]:
            deadline = time.monotonic() + DEADLINE_S
            shown: dict[str, float] = {}
            while not shown.get("kafka_client_producer_record_send_total"):
                assert time.monotonic() < deadline, f"nothing is shown\n{broker.log_tail()}"
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                    text = page.read().decode()
                lines = re.findall(r'^(\w+)\{.*client_id="(\w+)".*\} (\S+)$', text, re.M)
                shown = {name: float(value) for name, _, value in lines}
                assert {client for _, client, _ in lines} <= {"mine"}
                time.sleep(0.2)
        assert all(name.startswith("kafka_client_producer_record") for name in shown)
