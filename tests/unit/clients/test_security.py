"""Settings of security: what is said about wrong ones, what is shown, and what a refusal does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from kraftrio import Admin, Consumer, Producer, ShareConsumer
from kraftrio.clients.config import ClientConfig, ProducerConfig, make_config
from kraftrio.clients.errors import (
    AuthenticationError,
    ConfigError,
    SaslAuthenticationError,
    SslAuthenticationError,
)
from kraftrio.clients.security import SECRET_NAMES, secured
from kraftrio.net.sasl.jaas import PLAIN_MODULE
from kraftrio.net.security_errors import LoginRefused, SecurityError, TlsHandshakeFailed
from kraftrio.net.security_protocol import SecurityProtocol

SECRET = "hush-hush"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"security_protocol": "TLS"},
            "security_protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'",
        ),
        ({"security_protocol": None}, "security_protocol must be a string, not None"),
        (
            {"security_protocol": "SSL", "ssl_truststore_type": "BCFKS"},
            "ssl_truststore_type is BCFKS: it must be one of JKS, PKCS12, PEM",
        ),
        (
            {"security_protocol": "SSL", "ssl_keystore_location": "/k.jks"},
            "ssl_keystore_location is set, but ssl_keystore_password is not",
        ),
        (
            {"security_protocol": "SSL", "ssl_enabled_protocols": ["TLSv1.1"]},
            "ssl_enabled_protocols has TLSv1.1: it may have TLSv1.2 and TLSv1.3 only",
        ),
        (
            {"security_protocol": "SASL_SSL"},
            "sasl_mechanism must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, but"
            " is not set",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
            "sasl_jaas_config is not set, and says with what to log in by PLAIN",
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{PLAIN_MODULE} required password="{SECRET}"',
            },
            "sasl_jaas_config: the entry does not end with a semicolon",
        ),
        ({"ssl_enabled_protocols": [1]}, "ssl_enabled_protocols must be a string, not 1"),
        ({"ssl_key_password": 12345}, "ssl_key_password must be a string, not int"),
    ],
)
def test_a_wrong_setting_is_named_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(ClientConfig, "b:9092", settings)
    assert str(caught.value) == sentence


def test_nothing_shows_secrets() -> None:
    secrets: dict[str, Any] = dict.fromkeys(SECRET_NAMES, SECRET)
    config = make_config(ProducerConfig, "b:9092", secrets)
    assert SECRET not in repr(config)
    assert config.security_properties()["ssl.key.password"] == SECRET


def test_settings_have_the_names_of_java() -> None:
    config = make_config(
        ClientConfig,
        "b:9092",
        {"security_protocol": "ssl", "ssl_cipher_suites": ["A", "B"], "sasl_mechanism": "X"},
    )
    assert config.protocol is SecurityProtocol.SSL
    assert config.security_properties() == {"ssl.cipher.suites": "A,B", "sasl.mechanism": "X"}


def test_without_security_nothing_is_in_between() -> None:
    network: Any = object()
    assert secured(make_config(ClientConfig, "b:9092", {}), network, "c") is network


class Refusing:
    """A network on which every connection is refused in one way."""

    def __init__(self, failure: SecurityError) -> None:
        self.failure = failure
        self.attempts = 0

    async def connect(self, _host: str, _port: int) -> Any:
        await trio.lowlevel.checkpoint()
        self.attempts += 1
        raise self.failure


REFUSALS = [
    (TlsHandshakeFailed("certificate has expired"), SslAuthenticationError),
    (LoginRefused("wrong password"), SaslAuthenticationError),
]


async def _produce(network: Any) -> None:
    async with Producer("b:9092", network=network) as producer:
        await (await producer.send("t", value=b"x"))


async def _produce_in_transaction(network: Any) -> None:
    async with (
        Producer("b:9092", network=network, transactional_id="t") as producer,
        producer.transaction(),
    ):
        await producer.send("t", value=b"x")


async def _consume(network: Any) -> None:
    async with Consumer("b:9092", network=network, group_id="g") as consumer:
        await consumer.subscribe("t")
        await consumer.poll()


async def _consume_share(network: Any) -> None:
    async with ShareConsumer("b:9092", network=network, group_id="g") as consumer:
        await consumer.subscribe("t")
        await anext(aiter(consumer))


async def _list_topics(network: Any) -> None:
    async with Admin("b:9092", network=network) as admin:
        await admin.list_topics()


async def _delete_topic(network: Any) -> None:
    async with Admin("b:9092", network=network) as admin:
        await admin.delete_topics(["t"])


async def _list_acls(network: Any) -> None:
    async with Admin("b:9092", network=network) as admin:
        await admin.acls.describe()


@pytest.mark.parametrize(("failure", "expected"), REFUSALS)
@pytest.mark.parametrize(
    "call",
    [
        _produce,
        _produce_in_transaction,
        _consume,
        _consume_share,
        _list_topics,
        _delete_topic,
        _list_acls,
    ],
)
async def test_a_refusal_is_raised_at_once(
    autojump_clock: trio.abc.Clock,
    call: Any,
    failure: SecurityError,
    expected: type[AuthenticationError],
) -> None:
    """Not after the time that lost connections are given, since more attempts would end alike."""
    begun = trio.current_time()
    with trio.fail_after(200), pytest.raises(expected, match=str(failure)) as caught:
        await call(Refusing(failure))
    assert trio.current_time() - begun < 1
    assert not caught.value.retriable


async def test_a_consumer_says_it_again_and_goes_on_trying(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Each poll raises it, as in Java; attempts are as far apart as after lost connections."""
    network: Any = Refusing(LoginRefused("wrong password"))
    async with Consumer(
        "b:9092", network=network, group_id="g", reconnect_backoff_ms=1000
    ) as consumer:
        await consumer.subscribe("t")
        for _ in range(3):
            with trio.fail_after(60), pytest.raises(SaslAuthenticationError):
                await consumer.poll()
        attempts = network.attempts
        await trio.sleep(60)
        assert 20 <= network.attempts - attempts <= 100
    assert math.isfinite(trio.current_time())
