"""Works off requests that take long in slices, between which everybody else gets a turn.

Owns `SlicedWork`, whose one task gives each client in turn a slice of time, and the rule of a
client's requests: while one of them is worked on, those behind it wait (Kafka, too, handles one
request of a connection at a time). Work is a generator that pauses often; its value is the result.
When it yields a `Deferred`, it goes on once that is completed.

The bound: one turn of the event loop works for at most SLICE_MS on all such requests together, and
for another SLICE_MS on those that are done at once. A step of some work (from pause to pause)
should take less than a millisecond, or the bound is missed by that much.

Rules
1. Work begins at once if nothing of the client waits and the turn has time left; most is done then.
2. What is left over is queued by client. Clients take turns, whatever they have queued; what one
   client has queued is done in its order.
3. Work of a client that is gone is dropped at its next turn.
4. An error, of whatever kind, belongs to the client that sent the request: it is raised where its
   answer is asked for, in the task of its connection.

Called by the dispatchers (`start`); `run` is a task of the node's role.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.context import ClientInfo

T = TypeVar("T")
Work: TypeAlias = Generator[Deferred[Any] | None, None, T]
"""Work with pauses, and waits; its value is a T."""

SLICE_MS = 4.0
_STEPS_PER_LOOK = 8  # at the clock
_MAX_LOOKS = 512  # in a slice, for clocks that stand still while we work
_STEPS_AT_ONCE = 1024


class _Job(Generic[T]):
    """Some work, and how it ends."""

    __slots__ = ("result", "work")

    def __init__(self, work: Work[T]) -> None:
        self.work = work
        self.result: Deferred[T] = Deferred()

    def advance(self, steps: int) -> Deferred[Any] | None:
        """Do some steps, or what is left of them; return what the work waits for, if it does."""
        try:
            for _ in range(steps):
                awaited = next(self.work)
                if awaited is not None and not awaited.done:
                    return awaited
        except StopIteration as end:
            self.result.complete(end.value)
        except Exception as error:  # not ours: the caller that asks for the value gets it (rule 4)
            self.result.fail(error)
        return None


class SlicedWork:
    """See the module.

    Args:
        now_ms: a monotonic clock.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._clients: deque[ClientInfo] = deque()  # those with queued jobs, in the order of turns
        self._wanted = trio.Event()
        self._spent_ms = 0.0  # by work begun at once, since the task's last turn

    def start(self, client: ClientInfo, work: Work[T], *, is_urgent: bool = False) -> Deferred[T]:
        """Begin some work; its value, or its error, is there now or later.

        Args:
            is_urgent: a slice is done at once, however long this turn has taken.
        """
        job: _Job[T] = _Job(work)
        awaited: Deferred[Any] | None = None
        if client.queued_work:
            client.queued_work.append(job)
            return job.result
        if is_urgent:
            awaited = self._advance(job, self._now_ms() + SLICE_MS)
        elif self._spent_ms < SLICE_MS:
            began_ms = self._now_ms()
            awaited = self._advance(job, began_ms + SLICE_MS - self._spent_ms)
            self._spent_ms += self._now_ms() - began_ms
        if not job.result.done:
            client.queued_work = deque([job])
            self._take_turns(client, awaited)
        return job.result

    def _take_turns(self, client: ClientInfo, after: Deferred[Any] | None) -> None:
        """Let a client with queued work take turns, after something that it waits for."""
        if after is not None:
            after.when_done(lambda _: self._take_turns(client, None))
        else:
            self._clients.append(client)
            self._wanted.set()

    async def run(self) -> None:
        """Work off what is queued, a slice in each turn of the event loop, until cancelled."""
        while True:
            if not self._clients:
                self._wanted = trio.Event()
                await self._wanted.wait()
            else:
                await trio.lowlevel.checkpoint()
            self._spent_ms = 0.0
            self._work_for_a_slice()

    def _work_for_a_slice(self) -> None:
        """Work on the jobs of as many clients as there is time for."""
        until_ms = self._now_ms() + SLICE_MS
        while self._clients:
            client = self._clients.popleft()
            jobs = client.queued_work
            assert jobs, "a client that takes turns has queued work"
            if client.is_closed:
                client.queued_work = None
                continue
            job = jobs[0]
            awaited = self._advance(job, until_ms)
            if job.result.done:
                jobs.popleft()
            if jobs:
                self._take_turns(client, awaited)
            if self._now_ms() >= until_ms:
                return

    def _advance(self, job: _Job[Any], until_ms: float) -> Deferred[Any] | None:
        """Work until the time is up, the job is done, or it waits for what is returned."""
        for _ in range(_MAX_LOOKS):
            awaited = job.advance(_STEPS_PER_LOOK)
            if awaited is not None or job.result.done or self._now_ms() >= until_ms:
                return awaited
        return None


def do_at_once(work: Work[T]) -> Deferred[T]:
    """Work until the end, whatever time it takes; there may be nothing to wait for."""
    job: _Job[T] = _Job(work)
    while not job.result.done:
        awaited = job.advance(_STEPS_AT_ONCE)
        assert awaited is None, "nothing is waited for"
    return job.result
