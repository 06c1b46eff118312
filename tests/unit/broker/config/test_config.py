"""Loading the broker's configuration: sources, synonyms, listeners, refusals."""

from __future__ import annotations

import types
import typing
from pathlib import Path

import pytest

from kraftrio.broker.config.attributes import BrokerProperties
from kraftrio.broker.config.config import BROKER_KEYS, BrokerConfig, ListenerAddress, VoterAddress
from kraftrio.broker.config.types import (
    ConfigType,
    PropertyError,
    format_value,
    parse_value,
    read_sheet,
)


def load(**settings: str) -> BrokerConfig:
    """Load settings given by attribute names."""
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.load(None, overrides, {}, host_name=lambda: "this-machine")


def refusal(**settings: str) -> str:
    """The sentence with which settings are refused."""
    with pytest.raises(PropertyError) as error:
        load(**settings)
    return str(error.value)


def test_no_settings_give_a_single_local_node() -> None:
    """Without any setting one node is broker and controller on localhost:9092."""
    config = BrokerConfig.load(None, {}, {})
    assert config.process_roles == ["broker", "controller"]
    assert config.node_id == config.broker_id == 1
    assert config.listeners == [ListenerAddress("PLAINTEXT", "localhost", 9092, "PLAINTEXT")]
    assert config.advertised_broker_listeners == config.listeners
    assert config.log_dirs == ["./kraftrio-data"]
    assert config.metadata_log_dir == "./kraftrio-data"
    assert config.controller_quorum_voters == [VoterAddress(1, "", 0)]
    assert config.warnings == []
    assert not config.is_set("offsets.topic.replication.factor")


COMBINED = """
# a combined node, as Apache ships it
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
log.retention.hours=168
"""


def test_file_of_a_combined_node_loads(tmp_path: Path) -> None:
    """The server.properties of a combined node loads without warnings."""
    path = tmp_path / "server.properties"
    path.write_text(COMBINED)
    config = BrokerConfig.load(str(path), {}, {})
    assert config.warnings == []
    assert [str(one) for one in config.broker_listeners] == ["PLAINTEXT://:9092"]
    assert [one.port for one in config.controller_listeners] == [9093]
    assert config.controller_quorum_voters == [VoterAddress(1, "localhost", 9093)]
    assert config.log_dirs == ["/tmp/kraft-combined-logs"]
    assert config.is_set("offsets.topic.replication.factor")


def test_later_sources_win(tmp_path: Path) -> None:
    """The command line beats the environment, which beats the file."""
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nlog.retention.ms=5\nnode.id=7\n")
    config = BrokerConfig.load(
        str(path),
        {"num.partitions": "4"},
        {"KRAFTRIO_NUM_PARTITIONS": "3", "KRAFTRIO_LOG_RETENTION_MS": "6", "HOME": "/"},
    )
    assert (config.num_partitions, config.log_retention_ms, config.node_id) == (4, 6, 7)


def test_what_the_environment_says_to_commands_is_no_setting() -> None:
    """A shell with KRAFTRIO_BOOTSTRAP_SERVER set can start a node without a warning."""
    config = BrokerConfig.load(None, {}, {"KRAFTRIO_BOOTSTRAP_SERVER": "elsewhere:9092"})
    assert not config.warnings
    assert not config.originals


def test_missing_file_is_one_sentence() -> None:
    """A file that cannot be read is named."""
    with pytest.raises(PropertyError, match=r"cannot read /nowhere: No such file"):
        BrokerConfig.load("/nowhere", {}, {})


def test_unknown_names_warn() -> None:
    """Unknown names are kept as warnings; names with a listener's prefix are not unknown."""
    config = load(num_partitons="3", listener_name_x_ssl_protocol="TLS", zookeeper_connect="a:1")
    assert "num.partitons is not a setting of kraftrio: ignored" in config.warnings
    assert "listener.name.x.ssl.protocol is not a setting of kraftrio: ignored" not in (
        config.warnings
    )


@pytest.mark.parametrize(
    ("settings", "attribute", "expected"),
    [
        ({"log.retention.hours": "1"}, "log_retention_ms", 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, "log_retention_ms", 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "9"}, "log_retention_ms", 9),
        ({"log.retention.ms": "-5"}, "log_retention_ms", -1),
        ({"log.roll.hours": "2"}, "log_roll_ms", 7_200_000),
        ({"log.roll.hours": "2", "log.roll.ms": "8"}, "log_roll_ms", 8),
        ({"log.flush.scheduler.interval.ms": "50"}, "log_flush_interval_ms", 50),
        ({"log.dir": "/a,/b"}, "log_dirs", ["/a", "/b"]),
        ({"log.dir": "/a", "log.dirs": "/c, /d"}, "log_dirs", ["/c", "/d"]),
        ({"broker.id": "4"}, "node_id", 4),
        (
            {"max.connections.per.ip.overrides": "::1:2,a:3"},
            "max_connections_per_ip_overrides",
            {"::1": 2, "a": 3},
        ),
    ],
)
def test_synonyms_are_resolved(settings: dict[str, str], attribute: str, expected: object) -> None:
    """The finest unit set counts; older names fill in for newer ones."""
    assert getattr(BrokerConfig.load(None, settings, {}), attribute) == expected


def test_advertised_host_defaults_to_the_machine() -> None:
    """An empty host listens everywhere and advertises the machine's name."""
    config = load(listeners="PLAINTEXT://:9092")
    assert config.listeners[0].host == ""
    assert config.advertised_listeners[0].host == "this-machine"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_partitions": "0"}, "Value must be at least 1"),
        ({"num_partitions": "many"}, "Not a number of type INT"),
        ({"log_retention_ms": "0"}, "log.retention.ms is 0"),
        ({"listeners": "localhost:9092"}, "expected NAME://host:port"),
        ({"listeners": "A://x:1"}, "whose protocol is missing"),
        ({"listeners": "PLAINTEXT://x:70000"}, "allowed are 0 to 65535"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "which no client can reach"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT twice"),
        ({"authorizer_class_name": "a.B"}, "Java classes cannot be run"),
        ({"replica_selector_class": "a.B"}, "RackAwareReplicaSelector are known"),
        ({"remote_log_storage_system_enable": "true"}, "tiered storage is not supported"),
        ({"config_providers": "file"}, "providers are not supported"),
        ({"broker_id": "1", "node_id": "2"}, "they must agree"),
        ({"process_roles": "broker"}, "controller.quorum.voters is empty"),
        ({"process_roles": "zookeeper"}, "String must be one of: broker, controller"),
        ({"controller_quorum_voters": "2@h:1"}, "does not name node 1"),
        ({"controller_quorum_voters": "1@h:1,2@h:2"}, "names none of the listeners"),
        ({"controller_quorum_bootstrap_servers": "a:1,b:1"}, "a:1, which is not this node"),
        ({"inter_broker_listener_name": "X"}, "it must be one of PLAINTEXT"),
        (
            {"inter_broker_listener_name": "X", "security_inter_broker_protocol": "SSL"},
            "are both set: choose one",
        ),
        ({"group_consumer_session_timeout_ms": "10"}, "must not be above"),
        ({"log_dirs": ""}, "log.dirs is empty"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: dict[str, str], sentence: str) -> None:
    """Each refusal says what is wrong and what is allowed, in one sentence."""
    assert sentence in refusal(**settings)


def test_broker_of_a_larger_cluster() -> None:
    """A broker-only node takes its controllers from the voters."""
    config = load(
        process_roles="broker",
        node_id="5",
        controller_quorum_voters="1@a:9093,2@[::1]:9093",
        controller_listener_names="CONTROLLER",
    )
    assert config.controller_quorum_voters == [
        VoterAddress(1, "a", 9093),
        VoterAddress(2, "::1", 9093),
    ]
    assert config.is_broker and not config.is_controller
    assert config.listener_security_protocol_map["CONTROLLER"] == "PLAINTEXT"


def test_with_overrides_checks_again() -> None:
    """Other texts give another configuration and leave the first one alone."""
    config = load(num_partitions="2")
    assert config.with_overrides({"num.partitions": "3"}).num_partitions == 3
    assert config.num_partitions == 2
    with pytest.raises(PropertyError):
        config.with_overrides({"num.partitions": "-1"})


def test_declared_attributes_agree_with_the_table() -> None:
    """Every declared attribute is a property of its type, and every plain one is declared."""
    config = load()
    hints = typing.get_type_hints(BrokerProperties)
    known = {key.attribute: key for key in BROKER_KEYS.values()}
    assert set(hints) <= set(known)
    for attribute, hint in hints.items():
        union = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        allowed = tuple(typing.get_origin(one) or one for one in union)
        value = getattr(config, attribute)
        assert isinstance(value, allowed), f"{attribute} is {value!r}, not a {hint}"
        if known[attribute].type is ConfigType.BOOLEAN:
            assert bool in allowed


def test_every_default_is_allowed() -> None:
    """No default of the table breaks its own rule."""
    for key in BROKER_KEYS.values():
        key.check(key.name, key.default)
        text = format_value(key.default)
        assert text is None or parse_value(key.type, key.name, text) == key.default
        assert key.doc.endswith(".")


def test_sheet_line_is_read() -> None:
    """One entry of a sheet gives all parts of a setting."""
    (key,) = read_sheet("a.level | int | 3 | -1,1..9 | low | cluster\n    Level.\n")
    assert (key.default, key.importance.value, key.update_mode.value) == (3, "low", "cluster-wide")
    assert key.parse("-1") == -1
    with pytest.raises(PropertyError, match="between 1 and 9 or equal to -1"):
        key.parse("10")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (ConfigType.LIST, "a , b", ["a", "b"]),
        (ConfigType.LIST, "", []),
        (ConfigType.STRING, " x ", "x"),
    ],
)
def test_texts_become_values(kind: ConfigType, text: str, value: object) -> None:
    """Texts are trimmed and typed as Kafka does."""
    assert parse_value(kind, "n", text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "１"),
        (ConfigType.SHORT, "40000"),
        (ConfigType.DOUBLE, "nan"),
    ],
)
def test_wrong_texts_are_refused(kind: ConfigType, text: str) -> None:
    """What Java would not parse is refused, though Python would."""
    with pytest.raises(PropertyError):
        parse_value(kind, "n", text)


def test_doubles_are_written_as_java_writes_them() -> None:
    """Doubles keep Java's exponent."""
    assert format_value(1.7976931348623157e308) == "1.7976931348623157E308"
    assert format_value(0.5) == "0.5"
