"""A led partition: its states, and the timer of its shard."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from kraftrio.broker.coordinator.led_partition import (
    LEGAL_MOVES,
    LedPartition,
    LoadState,
    ShardTimer,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.coordinator.broker_stand_in import ManualTimers


def led_partition(state: LoadState) -> LedPartition[Any]:
    led: LedPartition[Any] = LedPartition(TopicPartition("t", 0), 0, None, timer([]))
    led.state = state
    return led


def timer(calls: list[float], timers: ManualTimers | None = None) -> ShardTimer:
    timers = timers or ManualTimers()
    return ShardTimer(timers, timers, lambda: calls.append(timers.now_ms))


@pytest.mark.parametrize("state", LoadState)
@pytest.mark.parametrize("target", LoadState)
def test_only_legal_moves(state: LoadState, target: LoadState) -> None:
    """An illegal move is an error, and changes nothing."""
    led = led_partition(state)
    if target in LEGAL_MOVES[state]:
        led.move_to(target)
        assert led.state is target
    else:
        with pytest.raises(AssertionError):
            led.move_to(target)
        assert led.state is state


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (LoadState.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (LoadState.FAILED, ErrorCode.NOT_COORDINATOR),
        (LoadState.RESIGNED, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_requests_are_served_when_active_alone(state: LoadState, code: ErrorCode) -> None:
    """Each other state has its error."""
    with pytest.raises(KafkaError) as caught:
        led_partition(state).check_active()
    assert caught.value.code is code
    led_partition(LoadState.ACTIVE).check_active()


def test_the_earliest_deadline_counts() -> None:
    """A later one changes nothing; an earlier one replaces the call."""
    calls: list[float] = []
    timers = ManualTimers()
    shard = Mock()
    led: LedPartition[Any] = LedPartition(TopicPartition("t", 0), 0, shard, timer(calls, timers))
    for deadline_ms in (200.0, 300.0, 100.0, None):
        shard.next_deadline_ms.return_value = deadline_ms
        led.arm_timer()
    timers.advance(1_000)
    assert calls == [100]
    shard.next_deadline_ms.return_value = 500.0  # is past: at once
    led.arm_timer()
    timers.advance(0)
    assert calls == [100, 1_000]


def test_a_partition_that_is_not_led_any_more_has_no_timer() -> None:
    """Its shard is not called again."""
    calls: list[float] = []
    timers = ManualTimers()
    shard = Mock()
    shard.next_deadline_ms.return_value = 100.0
    led: LedPartition[Any] = LedPartition(TopicPartition("t", 0), 0, shard, timer(calls, timers))
    led.move_to(LoadState.RESIGNED)
    led.arm_timer()
    timers.advance(1_000)
    assert calls == []


def test_a_cancelled_timer_does_not_call() -> None:
    """It may be armed again."""
    calls: list[float] = []
    timers = ManualTimers()
    shard_timer = timer(calls, timers)
    shard_timer.arm(100)
    shard_timer.cancel()
    shard_timer.cancel()
    timers.advance(200)
    assert calls == []
    shard_timer.arm(300)
    timers.advance(100)
    assert calls == [300]
