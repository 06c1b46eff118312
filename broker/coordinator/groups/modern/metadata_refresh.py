"""When a group looks at its topics again."""

from __future__ import annotations

_INTERVAL_MS = 2**31 - 1  # Kafka's: groups are notified of changed topics, so it hardly matters


class MetadataRefresh:
    """The time after which a heartbeat compares the topics with the group's metadata hash.

    It is not in the records: a group that was loaded looks at once. A look that bumped the group
    epoch counts only if the group has come to that epoch, since the record may have been lost.
    """

    __slots__ = ("_deadline_ms", "_group_epoch")

    def __init__(self) -> None:
        self._deadline_ms = float("-inf")
        self._group_epoch = 0

    def request(self) -> None:
        """Topics have changed: have the next heartbeat look at them."""
        self._deadline_ms = float("-inf")

    def is_due(self, group_epoch: int, now_ms: float) -> bool:
        """Whether it is time to look."""
        return now_ms >= self._deadline_ms or group_epoch < self._group_epoch

    def note(self, group_epoch: int, now_ms: float) -> None:
        """Topics were looked at, which makes the group come to an epoch."""
        self._deadline_ms = now_ms + _INTERVAL_MS
        self._group_epoch = group_epoch
