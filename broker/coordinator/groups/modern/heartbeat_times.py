"""What a heartbeat needs of the settings of its group, kept for the next one.

A setting of a group is looked up in the metadata, and held within what the broker allows: too much
for each heartbeat. All configurations are in the metadata, so that what was found is valid as long
as those are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from kraftrio.broker.coordinator.groups.properties import GroupSettingsPort
from kraftrio.broker.metadata.cache import MetadataCache

T = TypeVar("T")

_MAX_KEPT = 100_000  # groups


class KeptSettings(Generic[T]):
    """See the module.

    Args:
        look_up: what is kept of a group, by its id.
    """

    __slots__ = ("_configs", "_kept", "_look_up", "_metadata")

    def __init__(self, metadata: MetadataCache, look_up: Callable[[str], T]) -> None:
        self._metadata = metadata
        self._look_up = look_up
        self._configs: object = None
        self._kept: dict[str, T] = {}

    def of(self, group_id: str) -> T:
        """Return what is kept of a group."""
        configs = self._metadata.image.configs
        if configs is not self._configs or len(self._kept) > _MAX_KEPT:
            self._configs = configs
            self._kept.clear()
        found = self._kept.get(group_id)
        if found is None:
            found = self._kept[group_id] = self._look_up(group_id)
        return found


class Times(NamedTuple):
    """The session time-out and the heartbeat interval of one group."""

    session_timeout_ms: int
    interval_ms: int


HeartbeatTimes: TypeAlias = KeptSettings[Times]


def heartbeat_times(
    settings: GroupSettingsPort, metadata: MetadataCache, *, session_timeout: str, interval: str
) -> HeartbeatTimes:
    """Keep the times of groups of one kind.

    Args:
        session_timeout: the name of the setting.
        interval: the same, of heartbeats.
    """
    return KeptSettings(
        metadata,
        lambda group_id: Times(
            settings.number(group_id, session_timeout), settings.number(group_id, interval)
        ),
    )
