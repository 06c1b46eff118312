"""The session time-out and the heartbeat interval of groups, kept for the next heartbeat.

A setting of a group is looked up in the metadata, and held within what the broker allows: too much
for each heartbeat. All configurations are in the metadata, so that what was found is valid as long
as those are the same.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.broker.coordinator.groups.properties import GroupSettingsPort
from kraftrio.broker.metadata.cache import MetadataCache

_MAX_KEPT = 100_000  # groups


class Times(NamedTuple):
    """Of one group."""

    session_timeout_ms: int
    interval_ms: int


class HeartbeatTimes:
    """See the module.

    Args:
        session_timeout: the name of the setting, for groups of one kind.
        interval: the same, of heartbeats.
    """

    __slots__ = ("_configs", "_interval", "_kept", "_metadata", "_session_timeout", "_settings")

    def __init__(
        self,
        settings: GroupSettingsPort,
        metadata: MetadataCache,
        *,
        session_timeout: str,
        interval: str,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._session_timeout = session_timeout
        self._interval = interval
        self._configs: object = None
        self._kept: dict[str, Times] = {}

    def of(self, group_id: str) -> Times:
        """Return the times of a group."""
        configs = self._metadata.image.configs
        if configs is not self._configs or len(self._kept) > _MAX_KEPT:
            self._configs = configs
            self._kept.clear()
        times = self._kept.get(group_id)
        if times is None:
            times = self._kept[group_id] = Times(
                self._settings.number(group_id, self._session_timeout),
                self._settings.number(group_id, self._interval),
            )
        return times
