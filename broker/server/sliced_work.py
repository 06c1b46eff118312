"""Works off requests that take long in slices, between which everybody else gets a turn.

Owns `SlicedWork`, whose one task gives each client in turn a slice of time, and the rule of a
client's requests: while one of them is worked on, those behind it wait (Kafka, too, handles one
request of a connection at a time). Work is a generator that pauses often; its value is the result.
When it yields a `Deferred`, it goes on once that is completed.

The bound: one turn of the event loop works for at most SLICE_MS on all such requests together, and
for another SLICE_MS on those that are done at once. A step of some work (from pause to pause) shall
take less than a millisecond, or the bound is missed by that much.

Rules
1. Work begins at once if nothing of the client waits and the turn has time left; most is done then.
2. What is left over is queued by client. Clients take turns, whatever they have queued; what one
   client has queued is worked off in its order.
3. Work of a client that is gone is dropped at its next turn.
4. An error, of whatever kind, belongs to the client that sent the request: it is raised where its
   answer is asked for, in the task of its connection.

Called by the dispatchers (`start`); `run` is a task of the node's role.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, TypeAlias, TypeVar

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


class Done(Generic[T]):
    """How some work ended: with a value, or an error."""

    __slots__ = ("_value", "error")

    def __init__(self, value: T | None, error: Exception | None) -> None:
        self._value = value
        self.error: Final = error

    def value(self) -> T:
        """Give the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]  # a T when there is no error


class _Job(Generic[T]):
    """Work that is not done, and who waits for it."""

    __slots__ = ("done", "work")

    def __init__(self, work: Work[T]) -> None:
        self.work = work
        self.done: Deferred[Done[T]] = Deferred()


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

    def start(
        self, client: ClientInfo, work: Work[T], *, is_urgent: bool = False
    ) -> Done[T] | Deferred[Done[T]]:
        """Begin some work; it is done now or later.

        Args:
            is_urgent: a slice is done at once, however long this turn has taken.
        """
        step: Done[T] | Deferred[Any] | None = None
        if not client.queued_work:
            if is_urgent:
                step = self._advance_until(work, self._now_ms() + SLICE_MS)
            elif self._spent_ms < SLICE_MS:
                began_ms = self._now_ms()
                step = self._advance_until(work, began_ms + SLICE_MS - self._spent_ms)
                self._spent_ms += self._now_ms() - began_ms
            if isinstance(step, Done):
                return step
        job: _Job[T] = _Job(work)
        if client.queued_work:
            client.queued_work.append(job)
        else:
            assert not isinstance(step, Done)
            client.queued_work = deque([job])
            self._take_turns(client, step)
        return job.done

    def _take_turns(self, client: ClientInfo, after: Deferred[Any] | None) -> None:
        """Let a client with queued work take turns, after something that it waits for."""
        if after is not None:
            after.then(lambda _value: self._take_turns(client, None))
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
            step = self._advance_until(jobs[0].work, until_ms)
            if not isinstance(step, Done):
                self._take_turns(client, step)
            else:
                job = jobs.popleft()
                if jobs:
                    self._take_turns(client, None)
                job.done.complete(step)
            if self._now_ms() >= until_ms:
                return

    def _advance_until(self, work: Work[T], until_ms: float) -> Done[T] | Deferred[Any] | None:
        for _ in range(_MAX_LOOKS):
            step = _advance(work, _STEPS_PER_LOOK)
            if step is not None:
                return step
            if self._now_ms() >= until_ms:
                return None
        return None


def do_at_once(work: Work[T]) -> Done[T]:
    """Work until the end, whatever time it takes; there may be nothing to wait for."""
    while True:
        step = _advance(work, _STEPS_AT_ONCE)
        if isinstance(step, Done):
            return step
        assert step is None, "nothing is waited for"


def _advance(work: Work[T], steps: int) -> Done[T] | Deferred[Any] | None:
    """Do some steps of work; return how it ended, what it waits for, or None."""
    try:
        for _ in range(steps):
            awaited = next(work)
            if awaited is not None and not awaited.done:
                return awaited
    except StopIteration as end:
        return Done(end.value, None)
    except Exception as error:  # not ours: whoever asks for the value gets it (rule 4)
        return Done(None, error)
    return None
