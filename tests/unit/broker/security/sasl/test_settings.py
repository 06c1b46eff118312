"""What the settings of a listener mean to its logins, and which sentence refuses what is wrong."""

from __future__ import annotations

import pytest

from kraftrio.broker.security.sasl.oauthbearer import BearerExchange
from kraftrio.broker.security.sasl.plain import PlainExchange
from kraftrio.broker.security.sasl.scram import ScramExchange
from kraftrio.broker.security.sasl.settings import (
    ListenerSasl,
    LoginPorts,
    SaslSettingError,
    listener_sasl,
)
from tests.unit.broker.server.sasl_context import (
    BEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    Users,
)

PLAIN_USERS = {"plain.sasl.jaas.config": f"{PLAIN_MODULE} required user_a='b';"}
MECHANISMS = "sasl.enabled.mechanisms"
URL = "sasl.oauthbearer.jwks.endpoint.url"
HANDLER = "oauthbearer.sasl.server.callback.handler.class"
OAUTH = "org.apache.kafka.common.security.oauthbearer."


def read(settings: dict[str, str]) -> ListenerSasl:
    return listener_sasl("Out", settings, LoginPorts(Users(), lambda: "n"))


def test_each_mechanism_has_its_exchange_and_its_times() -> None:
    sasl = read(
        {
            MECHANISMS: " SCRAM-SHA-512, PLAIN,OAUTHBEARER,PLAIN",
            **PLAIN_USERS,
            "connections.max.reauth.ms": "7000",
            "plain.connections.max.reauth.ms": "9000",
            "sasl.server.max.receive.size": "1000",
            "connection.failed.authentication.delay.ms": "5",
        }
    )
    assert sasl.names == ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]
    made = [mechanism.new_exchange() for mechanism in sasl.mechanisms.values()]
    assert [type(one) for one in made] == [ScramExchange, PlainExchange, BearerExchange]
    times = [mechanism.max_reauth_ms for mechanism in sasl.mechanisms.values()]
    assert times == [7000, 9000, 7000]
    assert (sasl.max_receive_bytes, sasl.failure_delay_ms) == (1000, 5)
    assert [one.is_for_tests for one in sasl.mechanisms.values()] == [False, False, True]


@pytest.mark.parametrize(
    "settings",
    [
        {URL: "https://idp/keys"},
        {URL: "file:///keys", HANDLER: f"{OAUTH}OAuthBearerValidatorCallbackHandler"},
        {URL: "file:///keys", HANDLER: f"{OAUTH}secured.OAuthBearerValidatorCallbackHandler"},
    ],
)
def test_tokens_are_checked_where_it_is_said_with_which_keys(settings: dict[str, str]) -> None:
    mechanism = read({MECHANISMS: "OAUTHBEARER", **settings}).mechanisms["OAUTHBEARER"]
    assert mechanism.keys is not None and mechanism.keys.url == settings[URL]
    assert not mechanism.is_for_tests


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "sasl.enabled.mechanisms of listener Out is GSSAPI, which is not supported"),
        ({MECHANISMS: "GSSAPI,PLAIN"}, "sasl.enabled.mechanisms of listener Out is GSSAPI"),
        ({MECHANISMS: "plain"}, "sasl.enabled.mechanisms of listener Out names 'plain'"),
        ({MECHANISMS: " "}, "listener Out has no sasl.enabled.mechanisms"),
        (
            {MECHANISMS: "PLAIN", "sasl.jaas.config": f"{PLAIN_MODULE} required;"},
            "listener Out needs listener.name.out.plain.sasl.jaas.config",
        ),
        (
            {MECHANISMS: "PLAIN", "plain.sasl.jaas.config": "secret"},
            "listener.name.out.plain.sasl.jaas.config: the login module is not followed by a flag",
        ),
        (
            {MECHANISMS: "PLAIN", "plain.sasl.jaas.config": f"{SCRAM_MODULE} required;"},
            f"listener.name.out.plain.sasl.jaas.config names the login module {SCRAM_MODULE}",
        ),
        (
            {MECHANISMS: "SCRAM-SHA-256", "connections.max.reauth.ms": "soon"},
            "connections.max.reauth.ms is 'soon', not a whole number",
        ),
        (
            {MECHANISMS: "PLAIN", "plain.sasl.server.callback.handler.class": "a.B", **PLAIN_USERS},
            "plain.sasl.server.callback.handler.class of listener Out is a.B: Java classes are not",
        ),
        ({MECHANISMS: "OAUTHBEARER", HANDLER: "a.B"}, f"{HANDLER} of listener Out is a.B"),
        (
            {MECHANISMS: "OAUTHBEARER", HANDLER: f"{OAUTH}OAuthBearerValidatorCallbackHandler"},
            f"listener Out needs {URL} to check signed tokens",
        ),
        ({MECHANISMS: "OAUTHBEARER", URL: "ftp://x"}, f"{URL} of listener Out is 'ftp://x'"),
        (
            {
                MECHANISMS: "OAUTHBEARER",
                "oauthbearer.sasl.jaas.config": f"{BEARER_MODULE} required"
                " unsecuredValidatorAllowableClockSkewMs=x;",
            },
            "the JAAS text of listener Out: the option unsecuredValidatorAllowableClockSkewMs",
        ),
    ],
)
def test_what_is_refused(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(SaslSettingError) as refused:
        read(settings)
    assert str(refused.value).startswith(sentence)
    assert "secret" not in str(refused.value)
