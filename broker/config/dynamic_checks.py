"""What a running broker's settings may become, besides what its file may say: rules that look at
the change.

They are Kafka's, and so are the sentences, also where the setting changes nothing here: whoever
tries out a change is told what Kafka would tell. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftrio.broker.config import listener_settings
from kraftrio.broker.config.config import BROKER_KEYS, BrokerConfig
from kraftrio.broker.config.types import PropertyError, UpdateMode

_CLEANER_THREADS: Final = "log.cleaner.threads"
# The sizes of pools of threads, which may double or halve at a time.
_POOLS: Final = [
    key.name
    for key in BROKER_KEYS.values()
    if key.update_mode is UpdateMode.CLUSTER_WIDE
    and ("thread" in key.name or key.name.endswith(".fetchers"))
    and key.name != _CLEANER_THREADS
]
# Limits that may be zero in the file alone.
_POSITIVE: Final = ("max.connections", "max.connection.creation.rate")


def check_change(configs: Mapping[str, str], current: BrokerConfig, changed: BrokerConfig) -> None:
    """Check the settings that a broker would have.

    Args:
        configs: the dynamic ones among them, as texts.

    Raises:
        PropertyError: the sentence for the client.
    """
    for name in _POOLS:
        _check_pool(name, _count(current, name), _count(changed, name))
    now, wanted = _count(current, _CLEANER_THREADS), _count(changed, _CLEANER_THREADS)
    if wanted < now // 2:
        raise PropertyError(
            f"Log cleaner threads cannot be reduced to less than half the current value {now}"
        )
    if wanted > now * 2:
        raise PropertyError(
            f"Log cleaner threads cannot be increased to more than double the current value {now}"
        )
    for name, text in configs.items():
        setting = listener_settings.setting_of(name) or name
        if setting in _POSITIVE and int(text) <= 0:
            raise PropertyError(f"Invalid {setting} {int(text)}")


def _count(config: BrokerConfig, name: str) -> int:
    value = config.value(name)
    assert isinstance(value, int)
    return value


def _check_pool(name: str, current: int, wanted: int) -> None:
    failure = f"Dynamic thread count update validation failed for {name}={wanted}"
    if wanted < current // 2:
        raise PropertyError(f"{failure}, value should be at least half the current value {current}")
    if wanted > current * 2:
        raise PropertyError(
            f"{failure}, value should not be greater than double the current value {current}"
        )
