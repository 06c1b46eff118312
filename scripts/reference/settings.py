"""The page of settings of nodes, topics, groups and client metrics, from their sheets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraftrio.broker.config.checks import SUPPORTED_CLASSES
from kraftrio.broker.config.config import BROKER_KEYS
from kraftrio.broker.config.dynamic_config import DYNAMIC_ONLY_KEYS
from kraftrio.broker.config.group_config import CLIENT_METRICS_KEYS, GROUP_KEYS
from kraftrio.broker.config.topic_config import TOPIC_KEYS
from kraftrio.broker.config.types import ConfigKey, UpdateMode, format_value
from kraftrio.broker.config.without_effect import reason_without_effect
from reference.tables import code, section, table

_CHANGES = {
    UpdateMode.READ_ONLY: "restart",
    UpdateMode.PER_BROKER: "one broker",
    UpdateMode.CLUSTER_WIDE: "running",
}
_HEADS = ("name", "type", "default", "changes", "meaning")
_INHERITING = ("name", "type", "default", "default comes from", "meaning")


def page() -> Iterator[str]:
    """Every setting: its type, its default, when it changes, and whether it has an effect."""
    yield "# Settings of nodes, topics and groups"
    yield ""
    yield "Names, types and defaults are those of Apache Kafka 4.3; names that begin with"
    yield "`kraftrio.` are ours. Made from the tables in `broker/config/`."
    yield ""
    yield "*changes* says when a new value counts. **restart**: from the node's next start on."
    yield "**one broker**: at once, set for one broker (`kraftrio config set broker/1 NAME=VALUE`)."
    yield "**running**: at once, for one broker or for all of them"
    yield "(`kraftrio config set broker/ NAME=VALUE`)."
    keys = sorted({**BROKER_KEYS, **DYNAMIC_ONLY_KEYS}.values(), key=lambda key: key.name)
    shown = [key for key in keys if not key.internal]
    acting = [key for key in shown if not (reason(key) or key.name in SUPPORTED_CLASSES)]
    yield from section("Nodes")
    yield from table(_HEADS, ((*row(key), _CHANGES[key.update_mode], key.doc) for key in acting))
    yield from section(
        "Nodes: Java classes",
        "No Java class can be run. A name that stands for what a node does anyhow is taken; the\n"
        "start is refused with any other.",
    )
    yield from table(
        ("name", "what is taken"),
        ((code(name), ", ".join(map(code, taken))) for name, taken in SUPPORTED_CLASSES.items()),
    )
    yield from section(
        "Nodes: without effect",
        "These are known, so that files written for Apache Kafka load. They change nothing here;\n"
        "a start with another value than the default warns, with this reason.",
    )
    yield from table(
        ("name", "type", "default", "why it changes nothing"),
        ((*row(key), reason(key)) for key in shown if reason(key)),
    )
    yield from inheriting("Topics", "`kraftrio config set topic/NAME NAME=VALUE`.", TOPIC_KEYS)
    yield from inheriting("Groups", "`kraftrio config set group/NAME NAME=VALUE`.", GROUP_KEYS)
    yield from section(
        "Client metrics",
        "Subscriptions of KIP-714: `kraftrio config set client-metrics/NAME NAME=VALUE`.",
    )
    yield from table(
        ("name", "type", "default", "meaning"),
        ((*row(key), key.doc) for key in CLIENT_METRICS_KEYS.values()),
    )


def inheriting(heading: str, how: str, keys: Mapping[str, ConfigKey]) -> Iterator[str]:
    """Settings whose defaults are settings of the broker."""
    yield from section(
        heading, f"They change at once: {how} Those without effect say why in their meaning."
    )
    rows = []
    for key in keys.values():
        if not key.internal:
            why = reason(key)
            doc = f"{key.doc} No effect: {why}." if why else key.doc
            rows.append((*row(key), code(key.synonym), doc))
    yield from table(_INHERITING, rows)


def reason(key: ConfigKey) -> str:
    """Why a setting changes nothing; empty: it changes something."""
    return reason_without_effect(key.synonym or key.name) or ""


def row(key: ConfigKey) -> tuple[str, str, str]:
    """Name, type and default."""
    return code(key.name), key.type.name.lower(), code(format_value(key.default) or "")
