"""Share states under any course of requests, failed appends, time and restarts, against a model.

The model keeps of each state what is said about its offsets one by one, and the epochs that fence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.broker.share_state import SharePartitionState
from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.coordinator.share_state.share_stand_in import KEY, ShareStandIn

KEYS = (KEY, KEY._replace(partition=1))
NOT_INITIALIZED = ErrorCode.INVALID_REQUEST
LEADER_FENCED = ErrorCode.FENCED_LEADER_EPOCH
STATE_FENCED = ErrorCode.FENCED_STATE_EPOCH

Row = tuple[int, int, int, int]


@dataclass
class ModelState:
    """One state, and the epochs that older ones are fenced by."""

    state_epoch: int
    start_offset: int
    complete_count: int
    leader_epoch: int = 0
    highest_leader_epoch: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, rows: list[Row], start_offset: int, complete_count: int) -> None:
        """Keep the highest of what is said about each offset."""
        if start_offset != -1:
            self.start_offset = start_offset
        self.complete_count = complete_count
        for first, last, state, count in rows:
            for offset in range(first, last + 1):
                said = (count, state)
                self.offsets[offset] = max(self.offsets.get(offset, said), said)
        self.offsets = {at: said for at, said in self.offsets.items() if at >= self.start_offset}


class Model:
    """All states, by key."""

    def __init__(self) -> None:
        self.states: dict[int, ModelState] = {}

    def initialize(self, key: int, state_epoch: int, start_offset: int) -> ErrorCode | None:
        old = self.states.get(key)
        if old is not None and state_epoch < old.state_epoch:
            return STATE_FENCED
        new = ModelState(state_epoch, start_offset, -1 if start_offset == -1 else 0)
        new.highest_leader_epoch = 0 if old is None else old.highest_leader_epoch
        self.states[key] = new
        return None

    def read(self, key: int, leader_epoch: int) -> ErrorCode | None:
        state = self.states.get(key)
        if state is None:
            return NOT_INITIALIZED
        if leader_epoch < state.highest_leader_epoch:
            return LEADER_FENCED
        if leader_epoch > state.highest_leader_epoch:
            state.leader_epoch = state.highest_leader_epoch = leader_epoch
        return None

    def write(
        self, key: int, state_epoch: int, leader_epoch: int, rows: list[Row], start_offset: int
    ) -> ErrorCode | None:
        state = self.states.get(key)
        if state is None:
            return NOT_INITIALIZED
        if leader_epoch < state.highest_leader_epoch:
            return LEADER_FENCED
        if state_epoch < state.state_epoch:
            return STATE_FENCED
        state.write(rows, start_offset, complete_count=len(rows))
        return None

    def delete(self, key: int) -> None:
        self.states.pop(key, None)


ROW = st.builds(
    lambda first, length, state, count: (first, first + length, state, count),
    st.integers(0, 30),
    st.integers(0, 8),
    st.sampled_from([0, 2, 4]),
    st.integers(1, 3),
)
ROWS = st.lists(ROW, max_size=3)
KEY_INDEX = st.integers(0, 1)
EPOCH = st.integers(0, 3)
START_OFFSET = st.integers(-1, 40)

REQUESTS = st.one_of(
    st.tuples(st.just("initialize"), KEY_INDEX, EPOCH, START_OFFSET),
    st.tuples(st.just("read"), KEY_INDEX, EPOCH),
    st.tuples(st.just("write"), KEY_INDEX, EPOCH, EPOCH, ROWS, START_OFFSET),
    st.tuples(st.just("write"), KEY_INDEX, st.just(3), st.just(3), ROWS, START_OFFSET),
    st.tuples(st.just("delete"), KEY_INDEX),
)
STEPS = st.one_of(
    REQUESTS,
    st.tuples(
        st.just("fails"), st.sampled_from(["initialize", "read", "write", "delete"]), KEY_INDEX
    ),
    st.tuples(st.just("time"), st.sampled_from([60_000, 300_000])),
    st.tuples(st.just("restart")),
)


class Course:
    """Does the same to a coordinator and to the model."""

    def __init__(self) -> None:
        self.share = ShareStandIn()
        self.model = Model()
        self.leader_epoch = 0

    def do(self, name: str, *arguments: object) -> None:
        """Take one step."""
        getattr(self, name)(*arguments)

    def initialize(self, key: int, state_epoch: int, start_offset: int) -> None:
        answer = self.share.initialize(state_epoch, start_offset, KEYS[key])
        assert answer is self.model.initialize(key, state_epoch, start_offset)

    def read(self, key: int, leader_epoch: int) -> None:
        before = self.share.summary(KEYS[key])
        answer = self.share.read(leader_epoch, KEYS[key])
        code = self.model.read(key, leader_epoch)
        if code is None:
            assert replace(answer, leader_epoch=0) == replace(before, leader_epoch=0)
        else:
            assert answer is code

    def write(
        self, key: int, state_epoch: int, leader_epoch: int, rows: list[Row], start_offset: int
    ) -> None:
        answer = self.share.write(
            *rows,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=len(rows),
            key=KEYS[key],
        )
        assert answer is self.model.write(key, state_epoch, leader_epoch, rows, start_offset)

    def delete(self, key: int) -> None:
        assert self.share.delete(KEYS[key]) is None
        self.model.delete(key)

    def fails(self, name: str, key: int) -> None:
        """Ask while nothing can be appended: nothing comes of it."""
        ask: dict[str, Callable[[], object]] = {
            "initialize": lambda: self.share.initialize(3, 9, KEYS[key]),
            "read": lambda: self.share.read(3, KEYS[key]),
            "write": lambda: self.share.write(
                (0, 40, 4, 3), state_epoch=3, leader_epoch=3, start_offset=9, key=KEYS[key]
            ),
            "delete": lambda: self.share.delete(KEYS[key]),
        }
        self.share.replicas.append_error = ErrorCode.KAFKA_STORAGE_ERROR
        ask[name]()
        self.share.replicas.append_error = None

    def time(self, duration_ms: int) -> None:
        self.share.timers.advance(duration_ms)

    def restart(self) -> None:
        """Another coordinator makes its states of the log."""
        self.leader_epoch += 1
        trio.run(self.share.restart, self.leader_epoch)

    def check(self) -> None:
        """The coordinator has what the model has."""
        for index, key in enumerate(KEYS):
            summary, wanted = self.share.summary(key), self.model.states.get(index)
            if wanted is None:
                assert summary == SharePartitionState(0, 0, -1, -1)
                continue
            assert replace(summary, batches=()) == SharePartitionState(
                wanted.state_epoch,
                wanted.leader_epoch,
                wanted.start_offset,
                wanted.complete_count,
            )
            offsets = {
                offset: (batch.delivery_count, batch.delivery_state)
                for batch in summary.batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            assert offsets == wanted.offsets


@settings(deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_a_state_is_what_was_written_whatever_happens(steps: list[tuple[str]]) -> None:
    """And is so again after a restart, from a log that is pruned below what is redundant."""
    course = Course()
    for step in steps:
        course.do(*step)
        course.check()
    course.share.log.log_start_offset = max(course.share.pruned, default=0)
    course.restart()
    course.check()
