"""Every setting that is accepted changes something, or a start with it says that it does not.

The code is read for what it reads of the settings: attributes of a configuration, names given as
texts, and the broker's defaults of topics' settings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraftrio.broker
import kraftrio.commands
import kraftrio.net.sasl
import kraftrio.net.tls
from kraftrio.broker.config.config import BROKER_KEYS, BrokerConfig, PropertyError
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.config.group_config import GROUP_KEYS, bounds_of
from kraftrio.broker.config.topic_config import INTERNAL_SEGMENT_BYTES, TOPIC_KEYS
from kraftrio.broker.config.types import ConfigKey, ConfigType, format_value
from kraftrio.broker.config.without_effect import reason_without_effect
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.kraft_meta.metadata.image import BROKER, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import ConfigRecord

SOURCES = [
    path
    for package in (kraftrio.broker, kraftrio.commands, kraftrio.net.sasl, kraftrio.net.tls)
    for path in sorted(Path(str(package.__file__)).parent.rglob("*.py"))
]
# They declare or list settings, but use none.
DECLARING = {
    f"config/{name}.py"
    for name in (
        *("attributes", "describe", "without_effect", "listener_settings"),
        *("group_checks", "group_config"),
    )
}
# What configurations are called where they are read.
CONFIGURATIONS = {"config", "_config", "settings", "_settings", "properties", "_properties"} | {
    "static", "current", "broker_config", "self",
}  # fmt: skip
# Topics' settings without effect; their defaults on the broker are on its list.
TOPICS_WITHOUT_EFFECT = {"local.retention.ms", "local.retention.bytes"}


def is_configuration(node: ast.expr, module: str) -> bool:
    """Whether an expression is named as configurations are."""
    if isinstance(node, ast.Call):
        node = node.func
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in CONFIGURATIONS and (name != "self" or module == "config.py")


def names_read(path: Path) -> Iterator[str]:
    """The names of the settings that a module reads."""
    attributes = {key.attribute: key.name for key in BROKER_KEYS.values()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            if node.attr in attributes and is_configuration(node.value, path.name):
                yield attributes[node.attr]
        elif isinstance(node, ast.Constant) and node.value in BROKER_KEYS:
            yield str(node.value)
        elif isinstance(node, ast.Constant) and node.value in GROUP_KEYS:
            yield from names_of_group_setting(str(node.value))


def names_of_group_setting(name: str) -> Iterator[str]:
    """A setting of groups, and those of the broker that come into force with it."""
    yield name
    if GROUP_KEYS[name].synonym:
        yield GROUP_KEYS[name].synonym
    yield from filter(None, bounds_of(name))


def in_force() -> set[str]:
    """The settings that something reads."""
    found = {
        name
        for path in SOURCES
        if "/".join(path.parts[-2:]) not in DECLARING and not path.name.endswith("_table.py")
        for name in names_read(path)
    }
    of_logs = {name.replace("_", ".") for name in LogConfig.__dataclass_fields__}
    found |= {key.synonym for key in TOPIC_KEYS.values() if key.name in of_logs}
    return found


def test_every_setting_is_read_or_listed() -> None:
    """None is accepted in silence without being read."""
    unread = set(BROKER_KEYS) - in_force()
    silent = sorted(name for name in unread if reason_without_effect(name) is None)
    assert not silent, f"read by nothing: use them, or list them with a reason: {silent}"


def test_what_is_listed_is_not_read() -> None:
    """A setting that came into force leaves the list."""
    read = sorted(name for name in in_force() if reason_without_effect(name) is not None)
    assert not read, f"read, so not without effect any more: {read}"


def test_settings_of_groups_are_read_or_listed() -> None:
    """With the broker's setting that is the default, where there is one."""
    read = in_force()
    silent = [
        name
        for name, key in GROUP_KEYS.items()
        if name not in read and reason_without_effect(key.synonym or name) is None
    ]
    assert not silent, f"read by nothing: {silent}"


def test_topics_settings_reach_their_logs() -> None:
    """The same for the settings of topics, of which tiered storage's alone change nothing."""
    of_logs = {name.replace("_", ".") for name in LogConfig.__dataclass_fields__}
    elsewhere = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
    elsewhere.add(INTERNAL_SEGMENT_BYTES)  # it takes the place of segment.bytes
    rest = set(TOPIC_KEYS) - of_logs - elsewhere - TOPICS_WITHOUT_EFFECT
    assert {name for name in rest if not name.startswith("remote.")} == set()


def other_text(key: ConfigKey) -> str | None:
    """A value that is allowed and not the default, if one is easily found."""
    if key.type is ConfigType.BOOLEAN:
        return "false" if key.default else "true"
    if key.type in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT):
        default = key.default if isinstance(key.default, int) else 1
        candidates = [str(default - 1), str(default + 1)]
    elif key.type is ConfigType.DOUBLE:
        candidates = ["0.25", "0.5"]
    else:
        candidates = ["x"]
    for text in candidates:
        try:
            key.parse(text)
        except PropertyError:
            continue
        return text
    return None


LISTED = sorted(name for name in BROKER_KEYS if reason_without_effect(name) is not None)


@pytest.mark.parametrize("name", LISTED)
def test_a_start_warns_about_it(name: str) -> None:
    """With the reason; not about the default, which files of Apache Kafka's repeat."""
    key = BROKER_KEYS[name]
    text = other_text(key)
    if text is not None:
        try:
            warnings = BrokerConfig({name: text}).warnings
        except PropertyError:
            return  # refused, because others contradict it
        assert warnings == [f"{name} has no effect: {reason_without_effect(name)}"]
    default = format_value(key.default)
    if default is not None:
        assert BrokerConfig({name: default}).warnings == []


@pytest.mark.parametrize(
    "name", ["listener.name.plaintext.num.network.threads", "rsm.config.x", "rlmm.config.y"]
)
def test_a_start_warns_about_names_with_a_prefix(name: str) -> None:
    """They are known by their prefix, so that Kafka's files load, and change nothing."""
    (warning,) = BrokerConfig({name: "5"}).warnings
    assert warning == f"{name} has no effect: {reason_without_effect(name)}"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"offsets.topic.segment.bytes": "1000"},
            "offsets.topic.segment.bytes is 1000: a topic's segments have at least 1048576 bytes",
        ),
        (
            {"transaction.state.log.segment.bytes": "1048575"},
            "transaction.state.log.segment.bytes is 1048575: a topic's segments have at least",
        ),
        (
            {"share.coordinator.state.topic.segment.bytes": "1000"},
            "share.coordinator.state.topic.segment.bytes is 1000: a topic's segments have at least",
        ),
        (
            {"group.share.persister.class.name": "com.acme.Persister"},
            "group.share.persister.class.name is com.acme.Persister: Java classes cannot be run",
        ),
        (
            {"group.coordinator.rebalance.protocols": "consumer"},
            "group.coordinator.rebalance.protocols is consumer: it must name classic",
        ),
        (
            {"controller.quorum.bootstrap.servers": "node1:9093"},
            "controller.quorum.bootstrap.servers names node1:9093, which is not this node",
        ),
        (
            {
                "controller.quorum.bootstrap.servers": "localhost:9093,[::2]:9093",
                "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
                "controller.listener.names": "CONTROLLER",
            },
            r"names \[::2\]:9093, which is not this node",
        ),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, str], sentence: str) -> None:
    """At the start, not by requests that fail for ever."""
    with pytest.raises(PropertyError, match=sentence):
        BrokerConfig(settings)


def test_more_threads_of_the_compaction() -> None:
    """There is one; 0 is none."""
    (warning,) = BrokerConfig({"log.cleaner.threads": "4"}).warnings
    assert warning == "log.cleaner.threads is 4: one thread does the compaction"
    assert BrokerConfig({"log.cleaner.threads": "0"}).warnings == []


def test_limits_of_names_are_warned_of() -> None:
    """A limit is of an address: who connects has no name."""
    settings = {"max.connections.per.ip.overrides": "localhost:3,127.0.0.1:4"}
    (warning,) = BrokerConfig(settings).warnings
    assert warning.startswith("max.connections.per.ip.overrides has no effect for localhost: ")


def test_dynamic_settings_without_effect() -> None:
    """Are warned of when they come, once; not again if the start has warned of them."""
    warnings: list[str] = []
    static = BrokerConfig({"num.io.threads": "9"})
    dynamic = DynamicConfig(static, warnings.append)
    image = MetadataImage()
    for name, value in (("num.network.threads", "5"), ("log.cleaner.threads", "2")):
        delta = MetadataDelta(image)
        delta.replay(ConfigRecord(BROKER, "", name, value))
        image = delta.apply(image.offset + 1, 1)
        assert dynamic.on_image(image)
    assert warnings == [
        "num.network.threads has no effect: one event loop serves all sockets and requests",
        "log.cleaner.threads is 2: one thread does the compaction",
    ]


def test_bootstrap_servers_beside_voters() -> None:
    """The voters count, and a start says so."""
    config = BrokerConfig(
        {
            "controller.quorum.bootstrap.servers": "a:9093,b:9093",
            "controller.quorum.voters": "1@a:9093,2@b:9093",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    (warning,) = config.warnings
    assert warning.startswith("controller.quorum.bootstrap.servers has no effect: ")
