"""Which replicas are throttled, and when the measured rate is above the quota."""

from __future__ import annotations

import pytest

from kraftrio.broker.replica.quota import NO_LIMIT, Direction, ReplicationQuota, SlidingRate
from kraftrio.wire.primitives import TopicPartition


class Context:
    def __init__(self, direction: Direction = Direction.FOLLOWER) -> None:
        self.now_ms = 5000.0
        self.quota = ReplicationQuota(direction, 2, lambda: self.now_ms)

    def throttle(self, replicas: str, topic: str = "t") -> None:
        name = f"{self.quota.direction.value}.replication.throttled.replicas"
        self.quota.set_topic(topic, {name: replicas, "retention.ms": "1"})

    def throttled(self, topic: str = "t") -> list[int]:
        return [p for p in range(5) if self.quota.is_throttled(TopicPartition(topic, p))]


@pytest.mark.parametrize(
    ("replicas", "partitions"),
    [
        ("", []),
        ("*", [0, 1, 2, 3, 4]),
        ("0:1,1:2,3:2,4:12", [1, 3]),
        (" 1:2 , 2:1", [1]),
        ("0:1", []),
    ],
)
def test_topics_name_replicas(replicas: str, partitions: list[int]) -> None:
    """A star is every partition; else the pairs with this broker."""
    context = Context()
    context.throttle(replicas)
    assert context.throttled() == partitions
    assert context.throttled("other") == []


def test_each_direction_has_its_own_config() -> None:
    """The leader's list says nothing about followers."""
    context = Context(Direction.LEADER)
    context.quota.set_topic("t", {"follower.replication.throttled.replicas": "*"})
    assert context.throttled() == []


def test_a_config_that_goes_away_frees_the_topic() -> None:
    context = Context()
    context.throttle("*")
    context.quota.set_topic("t", {})
    assert context.throttled() == []
    assert not context.quota.is_active


def test_without_a_rate_nothing_is_exceeded() -> None:
    """Naming replicas alone holds nobody back."""
    context = Context()
    context.throttle("*")
    context.quota.record(1 << 40)
    assert not context.quota.exceeded()
    assert not context.quota.is_active
    context.quota.set_rate(1000)
    assert context.quota.is_active
    assert context.quota.exceeded()
    context.quota.set_rate(NO_LIMIT)
    assert not context.quota.exceeded()


def test_the_quota_is_free_again_when_time_has_passed() -> None:
    """10,000 bytes at 1,000 a second take ten seconds; and then all is forgotten."""
    context = Context()
    context.throttle("*")
    context.quota.set_rate(1000)
    context.quota.record(10_000)
    assert context.quota.exceeded()
    context.now_ms += 9_900
    assert context.quota.exceeded()
    context.now_ms += 100
    assert not context.quota.exceeded()


def test_rate_over_windows() -> None:
    """Bytes of the last windows over the time since the oldest began, at least one window."""
    rate = SlidingRate(window_count=3, window_size_seconds=1)
    assert rate.bytes_per_second(0) == 0
    rate.record(500, 0)
    assert rate.bytes_per_second(0) == 500
    rate.record(500, 900)
    assert rate.bytes_per_second(900) == 1000
    rate.record(1000, 1900)
    assert rate.bytes_per_second(2000) == 1000
    assert rate.bytes_per_second(3000) == pytest.approx(1000 * 1000 / 1100)  # the first is gone
    assert rate.bytes_per_second(4900) == 0


def test_steady_traffic_at_the_rate_does_not_exceed_it() -> None:
    """A follower that keeps to its rate is never held back for long."""
    context = Context()
    context.throttle("*")
    context.quota.set_rate(10_000)
    moved = 0
    for _ in range(1000):
        if not context.quota.exceeded():
            context.quota.record(500)
            moved += 500
        context.now_ms += 20
    assert moved == pytest.approx(20 * 10_000, rel=0.06)
