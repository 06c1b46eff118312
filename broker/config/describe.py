"""What DescribeConfigs shows of a resource: each setting's value, its source and its synonyms.

Pure functions from the settings in force to response entries. Kafka's rules:
- The source of a value is that of its first synonym: the topic or group itself, the broker's
  dynamic config, the dynamic default, the static configuration, the default.
- Only a setting's own name decides: log.retention.ms stays "default" when log.retention.hours was
  set, though its value follows; synonyms before the own name are dropped.
- A value is shown as it was understood (007 as 7), its synonyms as they were written.
- Internal settings are hidden unless the broker or the topic sets them; values that must not be
  shown are null, and so are those of settings that are not the broker's own: unknown ones, and the
  authorizer's.
Called by `api/configs` and `config/validator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraftrio.broker.config.config import BROKER_KEYS, BROKER_SYNONYMS
from kraftrio.broker.config.dynamic_config import DynamicConfig, broker_key
from kraftrio.broker.config.group_config import CLIENT_METRICS_KEYS, GROUP_KEYS
from kraftrio.broker.config.listener_settings import setting_of
from kraftrio.broker.config.topic_config import TOPIC_KEYS, broker_default
from kraftrio.broker.config.types import (
    ConfigKey,
    ConfigType,
    UpdateMode,
    format_value,
    parse_value,
)
from kraftrio.wire.messages.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

# Where a value comes from, by Kafka's numbers.
TOPIC_SOURCE: Final = 1
DYNAMIC_BROKER_SOURCE: Final = 2
DYNAMIC_DEFAULT_SOURCE: Final = 3
STATIC_BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
LOGGER_SOURCE: Final = 6
CLIENT_METRICS_SOURCE: Final = 7
GROUP_SOURCE: Final = 8

# Kafka gives these no default of their own, so they show none among their synonyms.
_WITHOUT_DEFAULT = frozenset({"node.id", "process.roles", "controller.listener.names"})
# Setting one of these sets both.
_NODE_IDS = ("node.id", "broker.id")
# Not settings of Kafka's broker, but of the authorizer that it loads.
_OF_THE_AUTHORIZER = frozenset({"super.users", "allow.everyone.if.no.acl.found"})


def _own_first(
    synonyms: Iterable[DescribeConfigsSynonym], name: str
) -> list[DescribeConfigsSynonym]:
    found = list(synonyms)
    while found and found[0].name != name:
        del found[0]
    return found


def _shown_key(name: str) -> ConfigKey | None:
    """Return what is known of a broker property; None: it is shown without its value."""
    return None if name in _OF_THE_AUTHORIZER else broker_key(name)


def broker_synonyms(name: str, dynamic: DynamicConfig) -> list[DescribeConfigsSynonym]:
    """Return every place that sets a broker property, the one that counts first."""
    key = _shown_key(name)
    secret = key is None or key.sensitive
    setting = setting_of(name)
    names = BROKER_SYNONYMS.get(name, (name,)) if setting is None else (name, setting)
    static = dynamic.static.originals
    found = []
    for source, texts in (
        (DYNAMIC_BROKER_SOURCE, dynamic.broker_configs),
        (DYNAMIC_DEFAULT_SOURCE, dynamic.default_configs),
        (STATIC_BROKER_SOURCE, static),
    ):
        found += [
            DescribeConfigsSynonym(
                name=synonym, value=None if secret else texts[synonym], source=source
            )
            for synonym in names
            if synonym in texts
        ]
    if name in _NODE_IDS and name not in static and any(one in static for one in _NODE_IDS):
        text = format_value(dynamic.static.node_id)
        found.append(DescribeConfigsSynonym(name=name, value=text, source=STATIC_BROKER_SOURCE))
    for synonym in names:
        known = None if key is None else BROKER_KEYS.get(synonym)
        if known is not None and known.default is not None and synonym not in _WITHOUT_DEFAULT:
            found.append(
                DescribeConfigsSynonym(
                    name=synonym,
                    value=None if secret else format_value(known.default),
                    source=DEFAULT_SOURCE,
                )
            )
    return _own_first(found, name)


def _entry(
    key: ConfigKey,
    value: str | None,
    synonyms: list[DescribeConfigsSynonym],
    *,
    name: str | None = None,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name or key.name,
        value=None if key.sensitive else value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else DEFAULT_SOURCE,
        is_sensitive=key.sensitive,
        synonyms=synonyms,
        config_type=key.type,
        documentation=key.doc,
    )


def _inheriting(
    keys: Mapping[str, ConfigKey],
    overrides: Mapping[str, str],
    own_source: int,
    dynamic: DynamicConfig,
) -> list[DescribeConfigsResourceResult]:
    """Entries of a resource whose defaults are the broker's properties."""
    entries = []
    for name, key in keys.items():
        if key.internal and name not in overrides:
            continue
        value = broker_default(key, dynamic.current)
        if key.synonym:
            synonyms = broker_synonyms(key.synonym, dynamic)
        elif own_source == GROUP_SOURCE:
            synonyms = [DescribeConfigsSynonym(name=name, value=value, source=DEFAULT_SOURCE)]
        else:
            synonyms = []
        if name in overrides:
            value = format_value(parse_value(key.type, name, overrides[name]))
            own = DescribeConfigsSynonym(name=name, value=overrides[name], source=own_source)
            synonyms = [own, *synonyms]
        entries.append(_entry(key, value, synonyms))
    return entries


def describe_topic(
    overrides: Mapping[str, str], dynamic: DynamicConfig
) -> list[DescribeConfigsResourceResult]:
    """Describe a topic that sets these itself."""
    return _inheriting(TOPIC_KEYS, overrides, TOPIC_SOURCE, dynamic)


def describe_group(
    overrides: Mapping[str, str], dynamic: DynamicConfig
) -> list[DescribeConfigsResourceResult]:
    """Describe a group that sets these itself."""
    return _inheriting(GROUP_KEYS, overrides, GROUP_SOURCE, dynamic)


def describe_client_metrics(
    overrides: Mapping[str, str], dynamic: DynamicConfig
) -> list[DescribeConfigsResourceResult]:
    """Describe a client metrics subscription."""
    return _inheriting(CLIENT_METRICS_KEYS, overrides, CLIENT_METRICS_SOURCE, dynamic)


def _unknown_key(name: str) -> ConfigKey:
    """A name that is not Kafka's may hold a secret: shown without its value."""
    return ConfigKey(name, ConfigType.UNKNOWN, None, lambda *_: None, "")


def _broker_entry(
    name: str, value: str | None, synonyms: list[DescribeConfigsSynonym]
) -> DescribeConfigsResourceResult:
    key = _shown_key(name)
    if key is None:
        entry = _entry(_unknown_key(name), None, synonyms, read_only=True)
        entry.is_sensitive = True
        return entry
    # As in Kafka, though what has a listener prefix is there to be changed.
    is_fixed = key.update_mode is UpdateMode.READ_ONLY or setting_of(name) is not None
    return _entry(key, value, synonyms, name=name, read_only=is_fixed)


def describe_broker(dynamic: DynamicConfig) -> list[DescribeConfigsResourceResult]:
    """Describe this broker: every property, and whatever else is set, known or not."""
    names = [key.name for key in BROKER_KEYS.values() if not key.internal]
    static = dynamic.static.originals
    others = {*dynamic.broker_configs, *dynamic.default_configs, *static}
    names += sorted(others - set(names))
    entries = []
    for name in names:
        if name in BROKER_KEYS:
            value = format_value(dynamic.current.value(name))
        else:
            value = next(
                texts[name]
                for texts in (dynamic.broker_configs, dynamic.default_configs, static)
                if name in texts
            )
        entries.append(_broker_entry(name, value, broker_synonyms(name, dynamic)))
    return entries


def describe_default_broker(dynamic: DynamicConfig) -> list[DescribeConfigsResourceResult]:
    """Describe the resource that stands for all brokers: what is set on it."""
    entries = []
    for name in sorted(dynamic.default_configs):
        synonyms = [
            one
            for one in broker_synonyms(name, dynamic)
            if one.source == DYNAMIC_DEFAULT_SOURCE and one.name == name
        ]
        entries.append(_broker_entry(name, dynamic.default_configs[name], synonyms))
    return entries


def describe_loggers(levels: Mapping[str, str]) -> list[DescribeConfigsResourceResult]:
    """Describe the loggers of this process."""
    return [
        DescribeConfigsResourceResult(
            name=name, value=level, config_source=LOGGER_SOURCE, documentation=""
        )
        for name, level in levels.items()
    ]
