"""The session time-out and the heartbeat interval of groups, kept for the next heartbeat.

A setting of a group is looked up in the metadata, and held within what the broker allows: too much
for each heartbeat. All configurations are in the metadata, so that what was found is valid as long
as those are the same.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.broker.coordinator.groups.properties import GroupSettings
from kraftrio.broker.metadata.cache import MetadataCache

_MAX_KEPT = 100_000  # groups


class Times(NamedTuple):
    """Of one group."""

    session_timeout_ms: int
    interval_ms: int


class HeartbeatTimes:
    """See the module.

    Args:
        kind: the first part of the settings' names: `consumer`, `share`, `streams`.
    """

    __slots__ = ("_configs", "_kept", "_kind", "_metadata", "_settings")

    def __init__(self, kind: str, settings: GroupSettings, metadata: MetadataCache) -> None:
        self._kind = kind
        self._settings = settings
        self._metadata = metadata
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
            number, kind = self._settings.number, self._kind
            times = self._kept[group_id] = Times(
                number(group_id, f"{kind}.session.timeout.ms"),
                number(group_id, f"{kind}.heartbeat.interval.ms"),
            )
        return times
