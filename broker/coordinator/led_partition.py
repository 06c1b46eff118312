"""One partition of a coordinator's topic that this broker leads, with its shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, TypeVar

from kraftrio.base.clock import Clock
from kraftrio.broker.coordinator.shard import CoordinatorShard
from kraftrio.broker.ports import SchedulerPort, TimerPort
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

ShardT = TypeVar("ShardT", bound=CoordinatorShard)


class LoadState(Enum):
    """How far a partition is served.

    LOADING: its records are being replayed; requests are to come again.
    ACTIVE: requests are served.
    FAILED: its records could not be read; it waits for the next election, or a reload.
    RESIGNED: it is led by another broker, or by a later `LedPartition` of this one.
    """

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    RESIGNED = "resigned"


LEGAL_MOVES: Mapping[LoadState, frozenset[LoadState]] = {
    LoadState.LOADING: frozenset({LoadState.ACTIVE, LoadState.FAILED, LoadState.RESIGNED}),
    LoadState.ACTIVE: frozenset({LoadState.RESIGNED}),
    LoadState.FAILED: frozenset({LoadState.RESIGNED}),
    LoadState.RESIGNED: frozenset(),
}


class ShardTimer:
    """Calls `on_due` once, at a deadline.

    Attributes:
        deadline_ms: when, on the monotonic clock; infinite: never.
    """

    __slots__ = ("_clock", "_on_due", "_timer", "_timers", "deadline_ms")

    def __init__(self, timers: SchedulerPort, clock: Clock, on_due: Callable[[], None]) -> None:
        self._timers = timers
        self._clock = clock
        self._on_due = on_due
        self._timer: TimerPort | None = None
        self.deadline_ms = float("inf")

    def arm(self, deadline_ms: float) -> None:
        """Have the call come at a deadline of the monotonic clock, not later."""
        self.cancel()
        self.deadline_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._timer = self._timers.schedule(delay_ms, self._fire)

    def cancel(self) -> None:
        """Drop the call, if one is to come."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.deadline_ms = None, float("inf")

    def _fire(self) -> None:
        self._timer, self.deadline_ms = None, float("inf")
        self._on_due()


class LedPartition(Generic[ShardT]):
    """See the module.

    Attributes:
        written_end_offset: the end of what this leadership appended.
        is_flushed: unless the disk failed to flush the last of it.
        deleted_topics: topics that were deleted while the shard was loading.
    """

    __slots__ = (
        "deleted_topics",
        "is_flushed",
        "leader_epoch",
        "shard",
        "state",
        "timer",
        "topic_partition",
        "written_end_offset",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        shard: ShardT,
        timer: ShardTimer,
    ) -> None:
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.timer = timer
        self.state = LoadState.LOADING
        self.written_end_offset = 0
        self.is_flushed = True
        self.deleted_topics: dict[str, bytes] = {}

    def move_to(self, state: LoadState) -> None:
        """Move to another state; an illegal move is our bug."""
        assert state in LEGAL_MOVES[self.state], f"{self.topic_partition}: {self.state} to {state}"
        self.state = state

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads by this election."""
        return self.state is not LoadState.RESIGNED

    def check_active(self) -> None:
        """Raise KafkaError unless requests are served."""
        if self.state is LoadState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is not LoadState.ACTIVE:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def arm_timer(self) -> None:
        """See that the shard is called at its next deadline."""
        deadline_ms = self.shard.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self.timer.deadline_ms and self.is_led:
            self.timer.arm(deadline_ms)
