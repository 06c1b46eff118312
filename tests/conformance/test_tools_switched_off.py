"""Tools that look for quotas, credentials and ACLs where none were made."""

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
