"""The producer cancelled at each of its checkpoints in turn: no record lost, none written twice.

A program is run once to count how often its task is resumed; then it is run again and again, and
cancelled the first, second, third... time, as a whole or only what it is just doing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from kraftrio.clients.errors import ClosedError
from kraftrio.clients.producer.batch import Delivery
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT_AFTER, FakeCluster, fake_cluster

RECORDS = 60
NEVER = 1 << 30


@dataclass(eq=False)
class Canceller(trio.abc.Instrument):
    """Cancels a scope when the task under test is resumed for the n-th time."""

    cancel_at: int
    task: trio.lowlevel.Task | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    steps: int = 0
    fired: bool = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.steps += 1
            if self.steps == self.cancel_at:
                self.fired = True
                self.scope.cancel()


@dataclass
class Run:
    """What the program did."""

    fake: FakeCluster
    canceller: Canceller
    one_by_one: bool  # cancel what is being done, not the program
    attempted: list[bytes] = field(default_factory=list)
    accepted: list[tuple[bytes, Delivery]] = field(default_factory=list)

    @asynccontextmanager
    async def operation(self) -> AsyncIterator[None]:
        """What is done in here may be cancelled by itself."""
        if not self.one_by_one:
            yield
            return
        with trio.CancelScope() as self.canceller.scope:
            yield

    async def program(self) -> None:
        """Send through a small buffer, flush, and await, while the connection is cut once."""
        self.canceller.task = trio.lowlevel.current_task()
        async with Producer(
            self.fake.bootstrap,
            batch_size=400,
            buffer_memory=900,
            linger_ms=1,
            retry_backoff_ms=1,
            reconnect_backoff_ms=1,
        ) as producer:
            for index in range(RECORDS):
                value = b"%02d" % index * 100
                self.attempted.append(value)
                async with self.operation():
                    delivery = await producer.send("t", value, partition=index % 2)
                    self.accepted.append((value, delivery))
            async with self.operation():
                await producer.flush()
            for _, delivery in self.accepted[:2]:
                async with self.operation():
                    await delivery
            if self.one_by_one:
                self.canceller.task = None  # leaving is not an operation of its own

    def check(self) -> None:
        """Compare the results with the logs."""
        logs = [self.fake.values("t", partition) for partition in (0, 1)]
        written = [value for log in logs for value in log]
        accepted = [value for value, _ in self.accepted]
        assert len(written) == len(set(written)), "a record was written twice"
        assert set(written) <= set(accepted), "a record was written that was not accepted"
        assert len(accepted) >= len(self.attempted) - 1
        for value, delivery in self.accepted:
            assert delivery.done
            try:
                metadata = delivery.result()
            except ClosedError:
                assert not self.one_by_one, "the program went on: everything is written"
            else:
                assert logs[metadata.partition][metadata.offset] == value


async def run_once(cancel_at: int, *, one_by_one: bool) -> Canceller:
    """Run the program, cancelled at one of its steps."""
    canceller = Canceller(cancel_at)
    async with fake_cluster() as fake:
        fake.add_topic("t", [1, 1])
        answers: list[Any] = [None, CUT_AFTER]
        fake.on(ApiKey.PRODUCE, lambda node, _: answers.pop(0) if answers else None)
        run = Run(fake, canceller, one_by_one)
        trio.lowlevel.add_instrument(canceller)
        try:
            async with trio.open_nursery() as nursery:
                if one_by_one:
                    nursery.start_soon(run.program)
                else:
                    canceller.scope = nursery.cancel_scope
                    nursery.start_soon(run.program)
        finally:
            trio.lowlevel.remove_instrument(canceller)
        run.check()
    return canceller


@pytest.mark.parametrize("one_by_one", [False, True], ids=["the program", "what it does"])
async def test_cancelled_at_each_checkpoint(one_by_one: bool) -> None:
    """Whatever is cancelled when: a `send` that was cancelled wrote nothing, one that returned
    wrote its record once or says that it did not."""
    steps = (await run_once(NEVER, one_by_one=one_by_one)).steps
    assert steps > 25
    cancelled = 0
    for cancel_at in range(1, steps + 20):
        canceller = await run_once(cancel_at, one_by_one=one_by_one)
        cancelled += canceller.fired
    assert cancelled >= steps - 5
