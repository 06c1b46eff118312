"""Replication throttles: which replicas are moved slowly, and how fast (KIP-73), sans-IO.

Owns, for one direction (what this broker serves as leader, or fetches as follower), the replicas
that topics name in `leader.` or `follower.replication.throttled.replicas`, the rate of the
brokers' `leader.` or `follower.replication.throttled.rate`, and a sliding measure of the bytes.

Rules
1. A topic names "*" (all its partitions here) or pairs of partition and broker, of which those with
   this broker count.
2. The measure is Kafka's: `window_count` windows of `window_size_seconds`; bytes in them divided by
   the time since the oldest began, at least one window. The quota is exceeded while the measure is
   above the rate.
3. Only replicas that lag are held back, so that a throttle cannot push a replica out of the ISR:
   the callers see to that. What all throttled replicas move is counted.

Called by: the fetch handlers (leader), `follower/fetch` (follower); the metadata publisher passes
configs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

from kraftrio.wire.primitives import TopicPartition

NO_LIMIT: Final = 2**63 - 1


class Direction(Enum):
    """Which side of replication a quota is for; the value begins the names of its configs."""

    LEADER = "leader"
    FOLLOWER = "follower"

    @property
    def replicas_config(self) -> str:
        """The topic config that names the throttled replicas."""
        return f"{self.value}.replication.throttled.replicas"

    @property
    def rate_config(self) -> str:
        """The broker config with the bytes a second."""
        return f"{self.value}.replication.throttled.rate"


class SlidingRate:
    """Bytes a second over the last windows (rule 2)."""

    __slots__ = ("_total", "_window_count", "_window_ms", "_windows")

    def __init__(self, window_count: int, window_size_seconds: int) -> None:
        self._window_count = window_count
        self._window_ms = window_size_seconds * 1000
        self._windows: deque[tuple[float, int]] = deque()  # (start, bytes), oldest first
        self._total = 0

    def record(self, size_bytes: int, now_ms: float) -> None:
        windows = self._windows
        if windows and now_ms < windows[-1][0] + self._window_ms:
            start_ms, before = windows[-1]
            windows[-1] = (start_ms, before + size_bytes)
        else:
            self._forget_old(now_ms)
            windows.append((now_ms, size_bytes))
            if len(windows) > self._window_count:
                self._total -= windows.popleft()[1]
        self._total += size_bytes

    def bytes_per_second(self, now_ms: float) -> float:
        self._forget_old(now_ms)
        if not self._windows:
            return 0.0
        elapsed_ms = max(now_ms - self._windows[0][0], self._window_ms)
        return self._total * 1000 / elapsed_ms

    def _forget_old(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._window_count * self._window_ms
        while self._windows and self._windows[0][0] <= oldest_ms:
            self._total -= self._windows.popleft()[1]


class ReplicationQuota:
    """See the module.

    Args:
        now_ms: the monotonic clock.
    """

    def __init__(
        self,
        direction: Direction,
        broker_id: int,
        now_ms: Callable[[], float],
        *,
        window_count: int = 11,
        window_size_seconds: int = 1,
    ) -> None:
        self.direction = direction
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._rate = SlidingRate(window_count, window_size_seconds)
        self._throttled: dict[str, frozenset[int] | None] = {}  # None: all partitions
        self.bytes_per_second: int = NO_LIMIT

    @property
    def is_active(self) -> bool:
        """Is any replica throttled, and to a rate?"""
        return bool(self._throttled) and self.bytes_per_second != NO_LIMIT

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Is this broker's replica throttled (rule 1)?"""
        partitions = self._throttled.get(topic_partition.topic, frozenset())
        return partitions is None or topic_partition.partition in partitions

    def record(self, size_bytes: int) -> None:
        """Throttled replicas have moved that much."""
        self._rate.record(size_bytes, self._now_ms())

    def exceeded(self) -> bool:
        """Have throttled replicas moved more than they may?"""
        limit = self.bytes_per_second
        return limit != NO_LIMIT and self._rate.bytes_per_second(self._now_ms()) > limit

    # -- settings -------------------------------------------------------------------------------

    def set_rate(self, bytes_per_second: int) -> None:
        """Take the broker's rate; NO_LIMIT takes it away."""
        self.bytes_per_second = bytes_per_second

    def set_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """Take a topic's own configs as the image has them (none when it is deleted)."""
        text = configs.get(self.direction.replicas_config, "")
        replicas = [item.strip() for item in text.split(",") if item.strip()]
        if "*" in replicas:
            self._throttled[topic] = None
            return
        here = frozenset(_partitions_on(self._broker_id, replicas))
        if here:
            self._throttled[topic] = here
        else:
            self._throttled.pop(topic, None)


def _partitions_on(broker_id: int, replicas: Iterable[str]) -> Iterable[int]:
    """Find the partitions in `partition:broker` pairs of one broker; the config was validated."""
    for replica in replicas:
        partition, _, broker = replica.partition(":")
        if broker.isdigit() and int(broker) == broker_id:
            yield int(partition)
