"""Tokens signed by a provider, at a real broker: who gets in with one, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ec

from kraftrio.net.connection import AuthenticationFailed, ConnectionLost
from kraftrio.wire.messages.cluster import MetadataRequest
from tests.integration.sasl_broker import BEARER_MODULE, SaslBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("broker")) as made:
        yield made


def bearer(path: Path, token: str) -> dict[str, str]:
    """The settings of a client whose token is in a file."""
    path.write_text(token)
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{BEARER_MODULE} required;",
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }


async def log_in(broker: SaslBroker, settings: dict[str, str]) -> None:
    async with broker.connection(settings) as connection:
        await connection.call(MetadataRequest(topics=[]), 9, 10)


def test_a_signed_token_lets_in(broker: SaslBroker, tmp_path: Path) -> None:
    trio.run(log_in, broker, bearer(tmp_path / "token", broker.token()))


@pytest.mark.parametrize(
    "claims", [{"aud": "other"}, {"exp": time.time() - 60}, {"sub": ""}, {"iat": None}]
)
def test_a_token_whose_claims_do_not_hold(
    broker: SaslBroker, tmp_path: Path, claims: dict[str, Any]
) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        trio.run(log_in, broker, bearer(tmp_path / "token", broker.token(**claims)))


def test_a_token_by_a_key_that_the_provider_does_not_have(
    broker: SaslBroker, tmp_path: Path
) -> None:
    before, broker.key = broker.key, ec.generate_private_key(ec.SECP256R1())
    settings = bearer(tmp_path / "token", broker.token())
    broker.key = before
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        trio.run(log_in, broker, settings)


def test_a_session_is_no_longer_than_its_token(broker: SaslBroker, tmp_path: Path) -> None:
    """An expired token, still valid by the skew of clocks, makes a session of no length."""
    settings = bearer(tmp_path / "token", broker.token(exp=int(time.time()) - 24))
    with pytest.raises(ConnectionLost, match="closed the connection"):
        trio.run(log_in, broker, settings)
