"""SASL in a node: as whom it goes elsewhere, who may come, and which sentence ends a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.types import PropertyError
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.security.logins import (
    CONTROLLER_MECHANISM,
    INTER_BROKER_MECHANISM,
    NodeLogins,
)
from kraftrio.wire.sasl.scram_keys import ScramMechanism
from tests.unit.broker.security.sasl.test_signed_tokens import es_jwk

SHA_256 = ScramMechanism.SCRAM_SHA_256
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PREFIX = "listener.name.in."
SCRAM_JAAS = f"{SCRAM} required username=node password=secret;"
SCRAM_SETTINGS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    INTER_BROKER_MECHANISM: "SCRAM-SHA-256",
    CONTROLLER_MECHANISM: "SCRAM-SHA-256",
    f"{PREFIX}scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
}
JWKS = "sasl.oauthbearer.jwks.endpoint.url"


def logins(settings: dict[str, str]) -> NodeLogins:
    return NodeLogins(BrokerConfig.load(None, settings, {}), Environment())


def test_a_node_logs_in_as_its_jaas_text_says_and_knows_that_user() -> None:
    node = logins(SCRAM_SETTINGS)
    assert node.listener("IN").names == ["SCRAM-SHA-256"]
    assert node.users.credential(SHA_256, "node") is None
    node.login_at("IN", INTER_BROKER_MECHANISM)
    assert node.users.credential(SHA_256, "node") is not None


def test_a_listener_has_its_own_settings() -> None:
    node = logins(
        {
            **SCRAM_SETTINGS,
            f"{PREFIX}sasl.enabled.mechanisms": "PLAIN",
            f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN} required user_a=b;",
        }
    )
    assert node.listener("IN").names == ["PLAIN"]
    assert node.listener("OUT").names == ["SCRAM-SHA-256"]


async def test_keys_in_a_file_are_there_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(json.dumps({"keys": [es_jwk()]}))
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", JWKS: path.as_uri()}
    mechanism = logins(settings).listener("IN").mechanisms["OAUTHBEARER"]
    assert mechanism.keys is not None and len(mechanism.keys.keys) == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "sasl.enabled.mechanisms of listener IN is GSSAPI"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", JWKS: "file:///no/such"},
            "listener IN: file:///no/such cannot be read",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": "secret"},
            "listener.name.in.plain.sasl.jaas.config: the login module",
        ),
    ],
)
def test_a_listener_that_cannot_let_anybody_in(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(StartError) as refused:
        logins(settings).listener("IN")
    assert str(refused.value).startswith(sentence) and "secret" not in str(refused.value)


def test_the_mechanism_between_brokers_must_be_among_those_of_the_listener() -> None:
    config = {**SCRAM_SETTINGS, INTER_BROKER_MECHANISM: "PLAIN"}
    node = logins(config)
    name = BrokerConfig.load(None, config, {}).inter_broker_listener_name
    with pytest.raises(StartError, match="which is not among"):
        node.listener(name)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({INTER_BROKER_MECHANISM: "GSSAPI"}, f"{INTER_BROKER_MECHANISM} of listener"),
        (
            {INTER_BROKER_MECHANISM: "SCRAM-SHA-512"},
            "listener.name.in.scram-sha-512.sasl.jaas.config is not set, and says as"
            " whom to log in at other nodes",
        ),
        (
            {f"{PREFIX}scram-sha-256.sasl.jaas.config": f"{SCRAM} required;"},
            "listener IN: the JAAS text has no username and password",
        ),
        ({INTER_BROKER_MECHANISM: "OAUTHBEARER"}, "listener IN: an unsecured token has no claim"),
    ],
)
def test_a_node_that_cannot_go_anywhere(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(StartError) as refused:
        logins({**SCRAM_SETTINGS, **changes}).login_at("IN", INTER_BROKER_MECHANISM)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        (f"{PREFIX}scram-sha-256.sasl.jaas.config", True),
        (f"{PREFIX}sasl.enabled.mechanisms", True),
        (f"{PREFIX}plain.connections.max.reauth.ms", True),
        ("listener.name.out.plain.sasl.jaas.config", False),
        (f"{PREFIX}ssl.keystore.location", False),
        ("log.retention.ms", False),
    ],
)
def test_a_listener_keeps_its_logins_as_long_as_it_is_there(name: str, is_refused: bool) -> None:
    node = logins(SCRAM_SETTINGS)
    node.listener("IN")
    changed = BrokerConfig.load(None, {**SCRAM_SETTINGS, name: "1"}, {})
    if not is_refused:
        node.check_unchanged(changed)
        return
    with pytest.raises(PropertyError, match="cannot be updated dynamically for existing listener"):
        node.check_unchanged(changed)
