"""kafka-configs and the quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.java_tools import KafkaTools

LARGE = "1000000000"


@pytest.mark.parametrize(
    ("entity", "key", "described"),
    [
        (("--entity-type", "users", "--entity-name", "alice"), "producer_byte_rate", "alice"),
        (("--entity-type", "users", "--entity-default"), "consumer_byte_rate", "default"),
        (("--entity-type", "clients", "--entity-name", "app"), "request_percentage", "app"),
        (("--entity-type", "clients", "--entity-default"), "controller_mutation_rate", "default"),
        (
            ("--entity-type", "users", "--entity-name", "al:ce/x", "--entity-type", "clients",
             "--entity-default"),
            "producer_byte_rate",
            "al:ce/x",
        ),
        (("--entity-type", "ips", "--entity-name", "10.9.8.7"), "connection_creation_rate",
         "10.9.8.7"),
        (("--entity-type", "ips", "--entity-default"), "connection_creation_rate", "default"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_quota_is_set_described_and_removed(
    kafka: KafkaTools, entity: tuple[str, ...], key: str, described: str
) -> None:
    """The tool looks a quota up before it changes one, and shows it afterwards."""
    added = kafka.run("kafka-configs", "--alter", *entity, "--add-config", f"{key}={LARGE}")
    assert "Completed updating" in added.output
    shown = "\n".join(kafka.run("kafka-configs", "--describe", *entity).lines)
    assert described in shown
    assert f"{key}=1.0E9" in shown
    kafka.run("kafka-configs", "--alter", *entity, "--delete-config", key)
    assert f"{key}=" not in "\n".join(kafka.run("kafka-configs", "--describe", *entity).lines)


def test_a_quota_below_zero_is_refused_with_the_reason(kafka: KafkaTools) -> None:
    refused = kafka.run(
        "kafka-configs",
        "--alter",
        *("--entity-type", "clients", "--entity-name", "app"),
        *("--add-config", "consumer_byte_rate=-1"),
        check=False,
    )
    assert "Quota consumer_byte_rate must be greater than 0" in refused.output
    assert refused.exit_code != 0


def test_a_tool_that_creates_too_much_gets_an_error(
    kafka: KafkaTools, unique_topic: Callable[[], str], tmp_path: Path
) -> None:
    """With the reason; it does not try again by itself."""
    client_id, name = unique_topic(), unique_topic()
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    kafka.run("kafka-configs", "--alter", *entity, "--add-config", "controller_mutation_rate=1")
    settings = tmp_path / "client.properties"
    settings.write_text(f"client.id={client_id}\n")
    options = ("--create", "--replication-factor", "1", "--command-config", str(settings))
    kafka.run("kafka-topics", *options, "--topic", f"{name}-a", "--partitions", "60")
    refused = kafka.run(
        "kafka-topics", *options, "--topic", f"{name}-b", "--partitions", "1", check=False
    )
    assert "The throttling quota has been exceeded" in refused.output
    assert refused.exit_code != 0
    kafka.run("kafka-configs", "--alter", *entity, "--delete-config", "controller_mutation_rate")
    topics = kafka.run("kafka-topics", "--list").lines
    assert (f"{name}-a" in topics, f"{name}-b" in topics) == (True, False)
