"""Every client over TLS with a certificate, and over SASL with each mechanism that it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.broker_process import KIND
from tests.conformance.clients import scenarios
from tests.conformance.secured.access import MECHANISMS
from tests.conformance.secured.broker import SecuredBroker
from tests.conformance.secured.programs import NAMES, VALUES, Program

pytestmark = scenarios.MARKS

Names = Callable[[], str]


def check_is_served(name: str, mechanism: str) -> None:
    """Skip what Apache Kafka refuses: librdkafka before 2.10.1 sends its SCRAM nonce twice."""
    if KIND == "apache" and name == "kcat" and mechanism.startswith("SCRAM"):
        pytest.skip("Apache Kafka does not serve SCRAM to the librdkafka of kcat")


@pytest.mark.parametrize("name", NAMES)
def test_by_certificate(
    secured: SecuredBroker,
    clients: dict[str, Program],
    name: str,
    unique_topic: Names,
    unique_group: Names,
) -> None:
    found = clients[name].round_trip(secured.access("SSL"), unique_topic(), unique_group())
    assert found == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", NAMES)
def test_by_login(
    secured: SecuredBroker,
    clients: dict[str, Program],
    name: str,
    mechanism: str,
    unique_topic: Names,
    unique_group: Names,
) -> None:
    check_is_served(name, mechanism)
    access = secured.access("SASL_SSL", mechanism)
    assert clients[name].round_trip(access, unique_topic(), unique_group()) == VALUES


@pytest.mark.parametrize("name", NAMES)
def test_by_login_without_tls(
    secured: SecuredBroker,
    clients: dict[str, Program],
    name: str,
    unique_topic: Names,
    unique_group: Names,
) -> None:
    check_is_served(name, "SCRAM-SHA-256")
    access = secured.access("SASL_PLAINTEXT", "SCRAM-SHA-256")
    assert clients[name].round_trip(access, unique_topic(), unique_group()) == VALUES
