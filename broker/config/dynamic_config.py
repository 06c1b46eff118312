"""The broker's settings while it runs: the static ones, overridden by those of the image.

Owns `DynamicConfig`. Kafka's order, the first that has a property wins: the broker's own dynamic
configs (resource broker "<id>"), the cluster's dynamic defaults (resource broker ""), the static
configuration, the default. Rules:
1. Only properties whose update mode allows it are taken from the image; others wait for a restart.
2. A dynamic set that is not valid as a whole is left out with a warning: a broker must not stop
   because of a setting that someone committed while it was away.
3. A setting that changes nothing is warned about once, as at the start.
Called by the metadata publisher (`on_image`); listeners are called with the new `BrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from immutables import Map

from kraftrio.broker.config import listener_settings
from kraftrio.broker.config.config import BROKER_KEYS, BrokerConfig
from kraftrio.broker.config.dynamic_checks import check_change
from kraftrio.broker.config.topic_config import log_config
from kraftrio.broker.config.types import (
    ConfigKey,
    ConfigValue,
    PropertyError,
    UpdateMode,
    format_value,
    read_sheet,
)
from kraftrio.broker.config.without_effect import reason_without_effect
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.kraft_meta.metadata.image import BROKER, TOPIC, MetadataImage

# Properties that exist only as dynamic configs.
_DYNAMIC_ONLY_SHEET = """\
leader.replication.throttled.rate | long | 9223372036854775807 | 0.. | medium | cluster
    Bytes a second that throttled replicas may be served.
follower.replication.throttled.rate | long | 9223372036854775807 | 0.. | medium | cluster
    Bytes a second that throttled replicas may fetch.
replica.alter.log.dirs.io.max.bytes.per.second | long | 9223372036854775807 | 0.. | medium | cluster
    Bytes a second for moving replicas between folders.
"""
DYNAMIC_ONLY_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key for key in read_sheet(_DYNAMIC_ONLY_SHEET)
}


def broker_key(name: str) -> ConfigKey | None:
    """Return a broker property, static or dynamic; what a name with a listener prefix is about."""
    return (
        BROKER_KEYS.get(name)
        or DYNAMIC_ONLY_KEYS.get(name)
        or BROKER_KEYS.get(listener_settings.setting_of(name) or "")
    )


def update_mode(name: str) -> UpdateMode | None:
    """Return when a property may change; None for names that are not Kafka's, which do nothing."""
    setting = listener_settings.setting_of(name)
    if setting is not None:
        is_cluster_wide = setting in listener_settings.CLUSTER_WIDE
        return UpdateMode.CLUSTER_WIDE if is_cluster_wide else UpdateMode.PER_BROKER
    key = broker_key(name)
    return None if key is None else key.update_mode


def _applicable(configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """Rule 1: what of a dynamic resource may change a running broker, one listener's included."""
    modes = {UpdateMode.CLUSTER_WIDE}
    if per_broker:
        modes.add(UpdateMode.PER_BROKER)
    return {
        name: text
        for name, text in configs.items()
        if update_mode(name) in modes and _is_in_force(name)
    }


def _is_in_force(name: str) -> bool:
    """Whether a setting is one, and, with the prefix of a listener, changes something there."""
    setting = listener_settings.setting_of(name)
    if setting is None:
        return name in BROKER_KEYS
    return setting in BROKER_KEYS and reason_without_effect(name) is None


class DynamicConfig:
    """The settings in force on one node.

    Attributes: `static` as at the start; `current` as they are now; `broker_configs` and
    `default_configs` as the image has them.
    """

    def __init__(self, static: BrokerConfig, warn: Callable[[str], None]) -> None:
        self.static = static
        self.current = static
        self.broker_configs: Mapping[str, str] = Map()
        self.default_configs: Mapping[str, str] = Map()
        self._warn = warn
        # At the start, those of settings that change nothing are logged.
        self._logged_warnings = set(static.warnings)
        self._listeners: list[Callable[[BrokerConfig], None]] = []
        self._checks: list[Callable[[BrokerConfig], None]] = []

    def add_check(self, check: Callable[[BrokerConfig], None]) -> None:
        """Let a check refuse changes of this broker's own settings, by a PropertyError."""
        self._checks.append(check)

    def validate(self, configs: Mapping[str, str], *, per_broker: bool) -> None:
        """Check what dynamic configs of this broker, or of all, will be (see
        `validate_broker_configs`), also by those who use them.

        Raises:
            PropertyError: the sentence for the client.
        """
        validate_broker_configs(configs, self.static, per_broker=per_broker)
        if per_broker:
            changed = self._with(self.default_configs, configs)
        else:
            changed = self._with(configs, self.broker_configs)
        check_change(configs, self.current, changed)
        if per_broker:
            for check in self._checks:
                check(changed)

    def text_of(self, name: str) -> str | None:
        """What a broker property is now, as a text; None where it has no value, or is unknown."""
        key = broker_key(name)
        return None if key is None else format_value(self.current.values.get(name, key.default))

    def _with(
        self, default_configs: Mapping[str, str], broker_configs: Mapping[str, str]
    ) -> BrokerConfig:
        """The settings with these dynamic ones."""
        overrides = _applicable(default_configs, per_broker=False)
        overrides.update(_applicable(broker_configs, per_broker=True))
        return self.static.with_overrides(overrides) if overrides else self.static

    def subscribe(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Call the listener with the new settings whenever they change."""
        self._listeners.append(listener)

    def on_image(self, image: MetadataImage) -> bool:
        """Apply a new image; return whether the current settings changed."""
        default_configs = image.config(BROKER, "")
        broker_configs = image.config(BROKER, str(self.static.node_id))
        if default_configs == self.default_configs and broker_configs == self.broker_configs:
            return False
        self.default_configs, self.broker_configs = default_configs, broker_configs
        try:
            self.current = self._with(default_configs, broker_configs)
        except PropertyError as error:
            self._warn(f"dynamic broker configs are not applied: {error}")
            return False
        for warning in self.current.warnings:
            if warning not in self._logged_warnings:
                self._logged_warnings.add(warning)
                self._warn(warning)
        for listener in self._listeners:
            listener(self.current)
        return True

    def log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """Return the settings of a topic's logs."""
        return log_config(image.config(TOPIC, topic), self.current)

    def dynamic_value(self, name: str) -> ConfigValue:
        """Return a property that exists only dynamically, as the replication throttles."""
        key = DYNAMIC_ONLY_KEYS[name]
        text = self.broker_configs.get(name, self.default_configs.get(name))
        if text is None:
            return key.default
        try:
            return key.parse(text)
        except PropertyError:
            return key.default


def _refuse(reason: str, names: list[str]) -> None:
    if names:
        raise PropertyError(f"{reason}: [{', '.join(sorted(names))}]")


def validate_broker_configs(
    configs: Mapping[str, str], static: BrokerConfig, *, per_broker: bool
) -> None:
    """Check the dynamic configs of a broker, or of all (per_broker False), as a whole.

    Names that are not Kafka's are allowed, as in Kafka; each check names all that fail it.

    Raises:
        PropertyError: the sentence for the client.
    """
    modes = {name: update_mode(name) for name in configs}
    _refuse(
        "Cannot update these configs dynamically",
        [name for name, mode in modes.items() if mode is UpdateMode.READ_ONLY],
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
        [name for name in configs if name in listener_settings.WITH_PREFIX_ONLY],
    )
    for name, text in configs.items():
        key = broker_key(name)
        if key is not None:
            key.parse(text)
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [name for name, mode in modes.items() if mode is UpdateMode.PER_BROKER],
        )
    changed = static.with_overrides(
        {name: text for name, text in configs.items() if _is_in_force(name)}
    )
    if changed.value("listeners") != static.value("listeners"):
        raise PropertyError("The listeners of this broker cannot be changed while it runs")
