"""A reply that comes later: `Deferred`, a one-shot result with callbacks.

Owns: nothing but its one value. Rules:
1. It is completed once, from the event loop's thread; completing it twice is our bug.
2. Callbacks run synchronously in the completer, in the order they were added; a callback added
   after completion runs at once. So a callback must be short and must not raise.
3. It has no failure: errors that a client sees are values (responses with error codes); anything
   else ends the process through the task that failed.

Called by: handlers (return one instead of a response), the quorum service, coordinators and the
replica manager (complete it). Only `wait` needs Trio; everything else is plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")
U = TypeVar("U")


class _Unset:
    """The type of the mark for "no value yet" (None is a legal value)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<unset>"


_UNSET: Final = _Unset()


class Deferred(Generic[T]):
    """A value that will be known later."""

    __slots__ = ("_callbacks", "_value")

    def __init__(self) -> None:
        self._value: T | _Unset = _UNSET
        self._callbacks: list[Callable[[T], object]] | None = None

    @classmethod
    def completed(cls, value: T) -> Deferred[T]:
        """Return a deferred that already holds `value`."""
        deferred = cls()
        deferred._value = value
        return deferred

    @property
    def done(self) -> bool:
        return self._value is not _UNSET

    @property
    def value(self) -> T:
        """The result; reading it before completion is our bug."""
        value = self._value
        assert not isinstance(value, _Unset), "the deferred is not completed yet"
        return value

    def complete(self, value: T) -> None:
        """Set the value and run the callbacks."""
        assert self._value is _UNSET, "a deferred is completed once"
        self._value = value
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                callback(value)

    def then(self, callback: Callable[[T], object]) -> None:
        """Run `callback(value)` when the value is known; at once if it already is."""
        value = self._value
        if not isinstance(value, _Unset):
            callback(value)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def map(self, change: Callable[[T], U]) -> Deferred[U]:
        """Return a deferred that will hold `change(value)`."""
        changed: Deferred[U] = Deferred()
        self.then(lambda value: changed.complete(change(value)))
        return changed

    async def wait(self) -> T:
        """Wait for the value. A cancelled wait leaves the deferred as it was."""
        if not self.done:
            event = trio.Event()
            self.then(lambda _value: event.set())
            await event.wait()
        else:
            await trio.lowlevel.checkpoint()
        return self.value

    def __repr__(self) -> str:
        return f"<Deferred {self._value!r}>"
