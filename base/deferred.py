"""A reply that comes later: `Deferred`, a one-shot result, and the queue of callbacks that wait.

Owns: the result, and for each Trio run a queue of completed deferreds whose callbacks are to run.

Rules
1. A deferred is completed, or fails, once and on the event loop's thread; twice is our bug.
2. Completing runs nothing of others: callbacks wait in the queue, first in, first out. A task of
   the run works through it in the next turn of the event loop, for `TURN_S` at most; the rest has
   the turns after that. What these callbacks complete is run in the same turn if there is time.
3. A callback added after completion runs at once, in the call that adds it, unless earlier ones
   still wait in the queue; then after them.
4. `map` and `resolve` are for what may fail, such as a read on behalf of a client: an error fails
   the deferred that they complete, and is raised where its value is asked for, in the task of that
   client's connection.
5. `then` and `when_done` are for bookkeeping, which must not fail: an error in their callbacks is a
   fault of ours and ends the run (Trio reports it as the cause of an internal error).
6. Outside of a Trio run there are no turns: the queue is worked through at once, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import trio

T = TypeVar("T")
U = TypeVar("U")

TURN_S: Final = 0.004
_MAX_PER_TURN: Final = 1000  # deferreds, for clocks that stand still


class _Unset:
    """The type of the mark for "no value yet" (None is a legal value)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<unset>"


class _Failure:
    """Stands in the place of a value that will not come."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"<failed: {self.error!r}>"


_UNSET: Final = _Unset()


class Deferred(Generic[T]):
    """A value that will be known later."""

    __slots__ = ("_callbacks", "_value")

    def __init__(self) -> None:
        self._value: T | _Unset | _Failure = _UNSET
        self._callbacks: list[Callable[[Deferred[T]], object]] | None = None

    @classmethod
    def completed(cls, value: T) -> Deferred[T]:
        """Return a deferred that already holds `value`."""
        deferred = cls()
        deferred._value = value
        return deferred

    @property
    def done(self) -> bool:
        """Whether there is a value, or an error in its place."""
        return self._value is not _UNSET

    @property
    def value(self) -> T:
        """The result; reading it before completion is our bug.

        Raises:
            Exception: what the deferred failed with.
        """
        value = self._value
        if isinstance(value, _Failure):
            raise value.error
        assert not isinstance(value, _Unset), "the deferred is not completed yet"
        return value

    @property
    def error(self) -> Exception | None:
        """What the deferred failed with, if it did."""
        value = self._value
        return value.error if isinstance(value, _Failure) else None

    def complete(self, value: T) -> None:
        """Set the value; callbacks run soon."""
        self._finish(value)

    def fail(self, error: Exception) -> None:
        """There will be no value: asking for it raises the error."""
        self._finish(_Failure(error))

    def resolve(self, make: Callable[[], T]) -> None:
        """Complete with what `make` returns, or fail with what it raises (rule 4)."""
        try:
            value = make()
        except Exception as error:  # kept: asking for the value raises it
            self.fail(error)
        else:
            self.complete(value)

    def follow(self, other: Deferred[T]) -> None:
        """End as another one does: with its value, or with its error."""
        other.when_done(lambda done: self.resolve(lambda: done.value))

    def _finish(self, value: T | _Failure) -> None:
        assert self._value is _UNSET, "a deferred is completed once"
        self._value = value
        if self._callbacks is not None:
            _queue_of_run().append(self)

    def when_done(self, callback: Callable[[Deferred[T]], object]) -> None:
        """Run `callback(self)` once there is a value or an error (rules 3 and 5)."""
        if self._callbacks is not None:
            self._callbacks.append(callback)
        elif self._value is not _UNSET:
            callback(self)
        else:
            self._callbacks = [callback]

    def then(self, callback: Callable[[T], object]) -> None:
        """Run `callback(value)` once there is a value, where failing is our bug (rule 5)."""
        self.when_done(lambda done: callback(done.value))

    def map(self, change: Callable[[T], U]) -> Deferred[U]:
        """Return a deferred that will hold `change(value)`, or the error that it raises."""
        changed: Deferred[U] = Deferred()
        self.when_done(lambda done: changed.resolve(lambda: change(done.value)))
        return changed

    async def wait(self) -> T:
        """Wait for the value (raises like `value`).  A cancelled wait leaves it as it was."""
        if not self.done:
            event = trio.Event()
            self.when_done(lambda _done: event.set())
            await event.wait()
        else:
            await trio.lowlevel.checkpoint()
        return self.value

    def _run_callbacks(self) -> None:
        callbacks = self._callbacks
        assert callbacks is not None, "only a deferred with callbacks is queued"
        for callback in callbacks:  # one that is added meanwhile comes last
            callback(self)
        self._callbacks = None

    def __repr__(self) -> str:
        return f"<Deferred {self._value!r}>"


def gather(deferreds: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """Wait for all; their values in the order given, or the error of the first that failed."""
    gathered: Deferred[list[T]] = Deferred()
    missing = len(deferreds)

    def note(_done: Deferred[T]) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            gathered.resolve(lambda: [deferred.value for deferred in deferreds])

    if not deferreds:
        gathered.complete([])
    for deferred in deferreds:
        deferred.when_done(note)
    return gathered


class _Queue:
    """Completed deferreds of one Trio run whose callbacks are to run."""

    __slots__ = ("_deferreds", "_wanted")

    def __init__(self) -> None:
        self._deferreds: deque[Deferred[Any]] = deque()
        self._wanted = trio.Event()

    def append(self, deferred: Deferred[Any]) -> None:
        self._deferreds.append(deferred)
        self._wanted.set()

    async def run(self) -> None:
        """Work through the queue, some of it in each turn of the event loop, until the run ends."""
        while True:
            self.run_for_a_turn()
            if self._deferreds:
                await trio.lowlevel.checkpoint()
            else:
                self._wanted = trio.Event()
                await self._wanted.wait()

    def run_for_a_turn(self) -> None:
        until = trio.current_time() + TURN_S
        deferreds = self._deferreds
        for _ in range(_MAX_PER_TURN):
            if not deferreds:
                return
            deferreds.popleft()._run_callbacks()
            if trio.current_time() >= until:
                return

    def run_all(self) -> None:
        while self._deferreds:
            self._deferreds.popleft()._run_callbacks()


class _QueueWithoutTurns:
    """Takes the place of a run's queue where there is no run (rule 6)."""

    __slots__ = ("_deferreds", "_is_running")

    def __init__(self) -> None:
        self._deferreds: deque[Deferred[Any]] = deque()
        self._is_running = False

    def append(self, deferred: Deferred[Any]) -> None:
        self._deferreds.append(deferred)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._deferreds:
                self._deferreds.popleft()._run_callbacks()
        finally:
            self._deferreds.clear()
            self._is_running = False


_queues: Final[trio.lowlevel.RunVar[_Queue]] = trio.lowlevel.RunVar("deferreds with callbacks")
_queue_without_turns: Final = _QueueWithoutTurns()


def _queue_of_run() -> _Queue | _QueueWithoutTurns:
    try:
        return _queues.get()
    except LookupError:  # the first of this run
        queue = _Queue()
        _queues.set(queue)
        trio.lowlevel.spawn_system_task(queue.run, name="callbacks of deferreds")
        return queue
    except RuntimeError:
        return _queue_without_turns


def run_waiting() -> None:
    """Run all callbacks that wait in this run's queue, for tests that let a turn pass."""
    queue = _queue_of_run()
    if isinstance(queue, _Queue):
        queue.run_all()
