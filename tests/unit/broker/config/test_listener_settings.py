"""Dynamic settings whose names have a listener prefix; what Kafka 4.3 allows, refuses and shows."""

from __future__ import annotations

import pytest

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.describe import (
    DEFAULT_SOURCE,
    DYNAMIC_BROKER_SOURCE,
    DYNAMIC_DEFAULT_SOURCE,
    STATIC_BROKER_SOURCE,
    describe_broker,
    describe_default_broker,
)
from kraftrio.broker.config.dynamic_config import DynamicConfig, validate_broker_configs
from kraftrio.broker.config.listener_settings import setting_of, settings_of
from kraftrio.broker.config.types import ConfigType, PropertyError
from kraftrio.kraft_meta.metadata.image import BROKER, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import ConfigRecord
from kraftrio.wire.messages.configs import DescribeConfigsResourceResult

P = "listener.name.plaintext."


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        (P + "max.connections", "max.connections"),
        ("listener.name.OTHER.ssl.key.password", "ssl.key.password"),
        (P + "plain.sasl.jaas.config", "sasl.jaas.config"),
        (P + "scram-sha-256.sasl.server.callback.handler.class",
         "sasl.server.callback.handler.class"),
        (P + "nonsense", "nonsense"),
        ("listener.name.plaintext", None),
        ("max.connections", None),
        ("my." + P + "max.connections", None),
    ],
)  # fmt: skip
def test_what_a_name_is_about(name: str, setting: str | None) -> None:
    assert setting_of(name) == setting


def refusal(name: str, text: str, *, per_broker: bool) -> str | None:
    """Why a dynamic setting cannot be; None: it can."""
    try:
        validate_broker_configs(
            {name: text}, BrokerConfig.load(None, {}, {}), per_broker=per_broker
        )
    except PropertyError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("name", "text", "for_one", "for_all"),
    [
        (P + "max.connections", "5", None, None),
        ("listener.name.nobody.max.connections", "5", None, None),
        (P + "max.connection.creation.rate", "5", None, None),
        (P + "num.network.threads", "5", None, None),
        (P + "max.connections", "x", "x for configuration max.connections", "Not a number"),
        (P + "ssl.client.auth", "none", None, "at default cluster level"),
        (P + "ssl.client.auth", "x", "String must be one of", "String must be one of"),
        (P + "ssl.keystore.location", "/x", None, "at default cluster level"),
        (P + "plain.sasl.jaas.config", "x", None, "at default cluster level"),
        (P + "nonsense", "x", None, "at default cluster level"),
        (P + "node.id", "5", None, "at default cluster level"),
        (P + "max.connections.per.ip", "5", None, "at default cluster level"),
        ("ssl.keystore.location", "/x", "only per-listener", "only per-listener"),
        ("ssl.truststore.type", "JKS", "only per-listener", "only per-listener"),
        ("ssl.client.auth", "none", None, "at default cluster level"),
        ("node.id", "5", "Cannot update these configs dynamically", "dynamically"),
        ("nonsense", "x", None, None),
    ],
)
def test_what_may_be_set_for_one_broker_and_for_all(
    name: str, text: str, for_one: str | None, for_all: str | None
) -> None:
    for per_broker, expected in ((True, for_one), (False, for_all)):
        found = refusal(name, text, per_broker=per_broker)
        assert (found is None) == (expected is None), found
        assert found is None or expected is None or expected in found


def described(
    own: dict[str, str], everybodys: dict[str, str], static: dict[str, str]
) -> tuple[dict[str, DescribeConfigsResourceResult], dict[str, DescribeConfigsResourceResult]]:
    """What a broker and the default resource show."""
    config = BrokerConfig.load(None, {"node.id": "1", **static}, {})
    warnings: list[str] = []
    dynamic = DynamicConfig(config, warnings.append)
    delta = MetadataDelta(MetadataImage())
    for resource, configs in (("1", own), ("", everybodys)):
        for name, text in configs.items():
            delta.replay(ConfigRecord(BROKER, resource, name, text))
    assert dynamic.on_image(delta.apply(1, 1)) == bool(own or everybodys)
    assert all("has no effect" in text for text in warnings), warnings
    return (
        {entry.name: entry for entry in describe_broker(dynamic)},
        {entry.name: entry for entry in describe_default_broker(dynamic)},
    )


def test_known_settings_are_shown_and_others_hidden() -> None:
    """With the type of the setting itself, where each value comes from, and its default."""
    name, secret, unknown = P + "max.connections", P + "plain.sasl.jaas.config", P + "nonsense"
    own, everybodys = described(
        {name: "3", secret: "password", unknown: "x"}, {name: "9"}, {name: "7"}
    )
    entry = own[name]
    assert (entry.value, entry.config_type, entry.is_sensitive) == ("3", ConfigType.INT, False)
    assert entry.read_only and entry.config_source == DYNAMIC_BROKER_SOURCE
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        (name, "3", DYNAMIC_BROKER_SOURCE),
        (name, "9", DYNAMIC_DEFAULT_SOURCE),
        (name, "7", STATIC_BROKER_SOURCE),
        ("max.connections", "2147483647", DEFAULT_SOURCE),
    ]
    for hidden, kind in ((secret, ConfigType.PASSWORD), (unknown, ConfigType.UNKNOWN)):
        assert (own[hidden].value, own[hidden].config_type) == (None, kind)
        assert own[hidden].is_sensitive
        assert {one.value for one in own[hidden].synonyms} == {None}
    assert (everybodys[name].value, everybodys[name].config_source) == ("9", DYNAMIC_DEFAULT_SOURCE)


def test_what_the_file_sets_is_shown_as_well() -> None:
    name = "listener.name.plaintext.max.connections"
    own, _ = described({}, {}, {name: "7", P + "plain.sasl.jaas.config": "password"})
    assert (own[name].value, own[name].config_source) == ("7", STATIC_BROKER_SOURCE)
    assert own[P + "plain.sasl.jaas.config"].value is None


def test_a_listener_has_its_own_settings_before_those_of_all() -> None:
    config = BrokerConfig(
        {
            "ssl.client.auth": "none",
            "ssl.keystore.type": "PEM",
            "listener.name.outside.ssl.client.auth": "required",
            "listener.name.outside.scram-sha-256.sasl.jaas.config": "x",
            "listener.name.inside.ssl.client.auth": "requested",
        }
    )
    outside = settings_of(config, "OUTSIDE")
    assert (outside["ssl.client.auth"], outside["ssl.keystore.type"]) == ("required", "PEM")
    assert outside["scram-sha-256.sasl.jaas.config"] == "x"
    assert settings_of(config, "inside")["ssl.client.auth"] == "requested"
    assert settings_of(config, "OTHER")["ssl.client.auth"] == "none"


@pytest.mark.parametrize(("protocol", "is_for_it"), [("SSL", True), ("SASL_SSL", False)])
def test_certificates_of_clients_that_log_in(protocol: str, is_for_it: bool) -> None:
    """They are asked for by the listener's own setting, not by that of all listeners."""
    settings = {
        "listeners": "OUTSIDE://:0",
        "listener.security.protocol.map": f"OUTSIDE:{protocol}",
        "inter.broker.listener.name": "OUTSIDE",
        "ssl.client.auth": "required",
    }
    config = BrokerConfig(settings)
    assert ("ssl.client.auth" in settings_of(config, "outside")) is is_for_it
    own = BrokerConfig(settings | {"listener.name.outside.ssl.client.auth": "requested"})
    assert settings_of(own, "OUTSIDE")["ssl.client.auth"] == "requested"
