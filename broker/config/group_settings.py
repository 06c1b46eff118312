"""The settings of groups in force: what a group sets itself, else what the broker has.

Owns `GroupSettings`. Rules, Kafka's: a group's own value is held between the least and the most
that the broker allows now, which may be others than when it was set; one that cannot be read, as
a newer version may have written it, is left aside. A group's settings are read once as long as
neither they nor the broker's change, so that a heartbeat may ask.

Called by what serves groups, by coordinators through `coordinator/groups/properties`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.group_config import GROUP_KEYS, bounds_of
from kraftrio.broker.config.topic_config import broker_value
from kraftrio.broker.config.types import ConfigValue, PropertyError


class _ReadSettings(NamedTuple):
    """What a group sets, as it was read; valid for these very texts and settings."""

    texts: Mapping[str, str]
    broker_config: BrokerConfig
    values: dict[str, ConfigValue]


class GroupSettings:
    """See the module."""

    def __init__(
        self,
        broker_config: Callable[[], BrokerConfig],
        group_configs: Callable[[str], Mapping[str, str]],
    ) -> None:
        """Look settings up.

        Args:
            broker_config: gives the broker's settings in force.
            group_configs: gives what a group sets itself, the same object until that changes.
        """
        self._broker_config = broker_config
        self._group_configs = group_configs
        self._read: dict[str, _ReadSettings] = {}  # of groups that set something

    def number(self, group_id: str, name: str) -> int:
        """Return a setting by its name as a group's, such as `consumer.session.timeout.ms`."""
        value = self._value(group_id, name)
        assert isinstance(value, int)
        return value

    def flag(self, group_id: str, name: str) -> bool:
        """Return a setting that is true or false."""
        value = self._value(group_id, name)
        assert isinstance(value, bool)
        return value

    def text(self, group_id: str, name: str) -> str:
        """Return a setting that is a text."""
        value = self._value(group_id, name)
        assert isinstance(value, str)
        return value

    def _value(self, group_id: str, name: str) -> ConfigValue:
        broker_config = self._broker_config()
        texts = self._group_configs(group_id)
        if texts:
            read = self._read.get(group_id)
            if read is None or read.texts is not texts or read.broker_config is not broker_config:
                values = _values(texts, broker_config)
                read = self._read[group_id] = _ReadSettings(texts, broker_config, values)
            if name in read.values:
                return read.values[name]
        elif group_id in self._read:
            del self._read[group_id]
        return broker_value(GROUP_KEYS[name], broker_config)


def _values(texts: Mapping[str, str], broker_config: BrokerConfig) -> dict[str, ConfigValue]:
    values: dict[str, ConfigValue] = {}
    for name, text in texts.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            continue
        try:
            value = key.parse(text)
        except PropertyError:
            continue
        least, most = (_bound(bound, broker_config) for bound in bounds_of(name))
        if isinstance(value, int) and least is not None:
            value = max(value, least)
        if isinstance(value, int) and most is not None:
            value = min(value, most)
        values[name] = value
    return values


def _bound(name: str | None, broker_config: BrokerConfig) -> int | None:
    bound = None if name is None else broker_config.value(name)
    assert bound is None or isinstance(bound, int)
    return bound
