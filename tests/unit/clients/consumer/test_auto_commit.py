"""Automatic commits: when one is due, what it covers, and what happens when it fails."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.clients.config import make_config
from kraftrio.clients.consumer.auto_commit import AutoCommit
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.errors import CommitFailedError
from kraftrio.clients.group_offsets import OffsetAndMetadata
from tests.unit.clients.consumer.test_assigned_partitions import EARLIEST, T0, T1, Context

Offsets = dict[Any, OffsetAndMetadata]


class Recorder:
    """Takes commits as `Commits` does."""

    def __init__(self) -> None:
        self.submitted: list[Offsets] = []
        self.committed: list[tuple[Offsets, bool]] = []
        self.failure: CommitFailedError | None = None
        self.is_slow = False
        self.unanswered: list[tuple[Offsets, Any]] = []

    def submit(self, offsets: Offsets, callback: Any) -> None:
        self.submitted.append(offsets)
        self.unanswered.append((offsets, callback))
        if not self.is_slow:
            self.answer()

    def answer(self) -> None:
        offsets, callback = self.unanswered.pop(0)
        callback(offsets, self.failure)

    async def commit(self, offsets: Offsets, *, is_automatic: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.committed.append((offsets, is_automatic))
        if self.failure is not None:
            raise self.failure


class Program(Context):
    """Two partitions, of which the first has records, and a program that takes them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.answer((0, 4))
        self.handover = Handover(self.state, EARLIEST)
        self.recorder = Recorder()
        self.calls = 0
        any_recorder: Any = self.recorder
        any_settings: Any = {"group_id": "g", **settings}
        config = make_config(ConsumerConfig, "localhost:1", any_settings)
        self.auto_commit = AutoCommit(any_recorder, self.handover, config, self._interrupt_call)

    def _interrupt_call(self) -> None:
        self.calls += 1


async def test_a_commit_is_due_each_interval(autojump_clock: trio.testing.MockClock) -> None:
    program = Program(auto_commit_interval_ms=1_000)
    program.auto_commit.submit_due()
    assert program.recorder.submitted == [], "the time is not up"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.auto_commit.run)
        await trio.sleep(1.5)
        assert program.calls == 1, "the program's next call comes by"
        program.handover.next_record()
        program.handover.next_record()
        program.auto_commit.submit_due()
        program.auto_commit.submit_due()
        nursery.cancel_scope.cancel()
    assert program.recorder.submitted == [
        {T0: OffsetAndMetadata(2, 3), T1: OffsetAndMetadata(0, -1)}
    ]


async def test_a_slow_coordinator_has_one_commit_to_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What is due meanwhile is committed after that, so that no rebalance waits for a queue."""
    program = Program(auto_commit_interval_ms=1_000)
    program.recorder.is_slow = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.auto_commit.run)
        for _ in range(4):
            await trio.sleep(1.1)
            program.handover.next_record()
            program.auto_commit.submit_due()
        nursery.cancel_scope.cancel()
    assert len(program.recorder.submitted) == 1
    program.recorder.answer()
    program.auto_commit.submit_due()
    assert [offsets[T0].offset for offsets in program.recorder.submitted] == [1, 4]


async def test_a_commit_before_a_rebalance_covers_what_is_given_up() -> None:
    program = Program()
    program.handover.next_record()
    await program.auto_commit.commit([T0])
    await program.auto_commit.commit()
    assert [set(offsets) for offsets, _ in program.recorder.committed] == [{T0}, {T0, T1}]
    assert all(is_automatic for _, is_automatic in program.recorder.committed)


async def test_who_commits_by_hand_has_nothing_committed() -> None:
    program = Program(enable_auto_commit=False)
    await program.auto_commit.commit([T0])
    assert program.recorder.committed == []


async def test_a_failure_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    program = Program()
    program.recorder.failure = CommitFailedError("too late")
    with caplog.at_level(logging.WARNING):
        await program.auto_commit.commit([T0])
    assert "offsets were not committed" in caplog.text
    assert "too late" in caplog.text
