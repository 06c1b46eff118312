"""Every client over TLS with a certificate, and over SASL with each mechanism that it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.secured.access import MECHANISMS
from tests.conformance.secured.broker import SecuredBroker
from tests.conformance.secured.programs import NAMES, VALUES, Program

pytestmark = scenarios.MARKS

Names = Callable[[], str]


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
    access = secured.access("SASL_PLAINTEXT", "SCRAM-SHA-256")
    assert clients[name].round_trip(access, unique_topic(), unique_group()) == VALUES
