"""Share fetches that wait for records, and whose turn it is: `ShareFetchWaiter`, `Turns`.

What becomes available in a share partition is for one member.  So the fetches that wait for it are
woken one after the other, in the order in which they came, as long as there is something left: many
members cost as much as one.  A fetch that has looked goes to the back.

Rules
1. A fetch that is woken has the turn, until it has looked at this share partition, or has gone.
2. Each change gives each waiting fetch one turn at most; none is woken twice for nothing.
3. Waking runs nothing: a fetch goes on in a turn of the event loop of its own.

A core but for `Deferred`. Owned by `LedSharePartition`; the handler of ShareFetch makes waiters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftrio.base.deferred import Deferred


class ShareFetchWaiter:
    """One share fetch that waits.

    Attributes:
        due: the turns that it was given and has not used.
        woken: completed with the first of them, or by `wake`.
    """

    __slots__ = ("_joined", "due", "woken")

    def __init__(self) -> None:
        self.due: dict[Turns, None] = {}
        self.woken: Deferred[None] = Deferred()
        self._joined: list[Turns] = []

    def join(self, all_turns: Iterable[Turns]) -> None:
        """Wait for these, and whatever else."""
        for turns in all_turns:
            turns.join(self)
            self._joined.append(turns)

    def wake(self) -> None:
        """Wake up for another reason: the time is up, or the client is gone."""
        if not self.woken.done:
            self.woken.complete(None)

    def give(self, turns: Turns) -> None:
        self.due[turns] = None
        self.wake()

    def take_due(self) -> list[Turns]:
        """The turns that it was given; from now on it waits for others."""
        due, self.due = list(self.due), {}
        self.woken = Deferred()
        return due

    def leave(self) -> None:
        """Stop waiting; others may have the turns."""
        self.due = {}
        for turns in self._joined:
            turns.leave(self)
        self._joined.clear()
        self.wake()


class Turns:
    """The share fetches that wait for one share partition; see the module.

    Args:
        has_something: whether there is anything to acquire.
    """

    __slots__ = ("_has_something", "_holder", "_left", "_waiting")

    def __init__(self, has_something: Callable[[], bool]) -> None:
        self._has_something = has_something
        self._waiting: dict[ShareFetchWaiter, None] = {}
        self._holder: ShareFetchWaiter | None = None
        self._left = 0  # turns that the last change may still give

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiter: ShareFetchWaiter) -> None:
        self._waiting[waiter] = None

    def leave(self, waiter: ShareFetchWaiter) -> None:
        self._waiting.pop(waiter, None)
        self.end_turn(waiter)

    def on_change(self) -> None:
        """Something may be there to acquire, or no longer is."""
        self._left = len(self._waiting)
        self._give_turn()

    def end_turn(self, waiter: ShareFetchWaiter) -> None:
        """This one has looked; others may."""
        if self._holder is not waiter:
            return
        self._holder = None
        if waiter in self._waiting:  # to the back
            del self._waiting[waiter]
            self._waiting[waiter] = None
        self._give_turn()

    def wake_all(self) -> None:
        """Everybody is to look: there will be nothing here any more."""
        for waiter in list(self._waiting):
            waiter.give(self)

    def _give_turn(self) -> None:
        if self._holder is None and self._left and self._waiting and self._has_something():
            self._left -= 1
            self._holder = next(iter(self._waiting))
            self._holder.give(self)
