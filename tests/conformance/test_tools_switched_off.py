"""Tools that look for quotas, credentials, ACLs and transactions where there are none."""

from __future__ import annotations

import pytest

from tests.conformance.java_tools import KafkaTools


@pytest.mark.parametrize(
    "entity",
    [
        ("--entity-type", "clients"),
        ("--entity-type", "users"),
        ("--entity-type", "ips"),
        ("--entity-type", "users", "--entity-name", "alice"),
        ("--entity-type", "users", "--entity-default"),
        ("--entity-type", "clients", "--entity-name", "app", "--entity-type", "users"),
    ],
    ids=" ".join,
)
def test_there_are_no_quotas_and_no_credentials(kafka: KafkaTools, entity: tuple[str, ...]) -> None:
    """kafka-configs ends well and prints nothing."""
    assert kafka.run("kafka-configs", "--describe", *entity).lines == []


def test_there_is_no_authorizer(kafka: KafkaTools) -> None:
    refused = kafka.run("kafka-acls", "--list", check=False)
    assert "SecurityDisabledException: No Authorizer is configured" in refused.output


def test_there_are_no_transactions(kafka: KafkaTools, topic: str) -> None:
    assert kafka.run("kafka-transactions", "list").rows("TransactionalId") == []
    hanging = kafka.run("kafka-transactions", "find-hanging", "--broker-id", "1", check=False)
    assert "UnsupportedVersion" not in hanging.output
    chosen = ["--topic", topic, "--partition", "0"]
    shown = kafka.run("kafka-transactions", "describe-producers", *chosen)
    assert shown.rows("ProducerId") == []
