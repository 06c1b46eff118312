"""One heap of deadlines and one task for everything in the broker that waits for a time.

Parked requests, group sessions and periodic work schedule a callback here instead of holding a
task or a cancel scope each. Callbacks run on the event loop, synchronously, in the order of their
deadlines. However many are due, one turn of the loop runs them for `TURN_S` and no longer than the
callback that was then running takes; the rest has the turns after that. An exception in a callback
is a fault of ours: it ends the task and with it the node.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final

import trio

TURN_S: Final = 0.004


class Timer:
    """A scheduled callback; `cancel` makes it never run."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    @property
    def pending(self) -> bool:
        """True until the callback has run or was cancelled."""
        return self.callback is not None

    def cancel(self) -> None:
        """Forget the callback.  Cancelling twice, or after it ran, does nothing."""
        self.callback = None


class Timers:
    """The shared heap of deadlines; `run` is its one task."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._sleep_scope: trio.CancelScope | None = None
        self._sleeping_until = -1.0

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` once, `delay_ms` from now (at the next turn of the loop when not
        positive).
        """
        timer = Timer(callback)
        deadline = trio.current_time() + delay_ms / 1000.0
        heapq.heappush(self._heap, (deadline, next(self._order), timer))
        if deadline < self._sleeping_until and self._sleep_scope is not None:
            self._sleep_scope.cancel()
        return timer

    async def run(self) -> None:
        """Run callbacks as they fall due, until cancelled."""
        while True:
            while not self._run_due():
                await trio.lowlevel.checkpoint()
            with trio.CancelScope() as self._sleep_scope:
                if self._heap:
                    self._sleeping_until = self._heap[0][0]
                    await trio.sleep_until(self._sleeping_until)
                else:
                    self._sleeping_until = float("inf")
                    await trio.sleep_forever()
            self._sleeping_until = -1.0

    def _run_due(self) -> bool:
        """Run callbacks that are due, for a turn; return whether that was all of them."""
        heap = self._heap
        now = began = trio.current_time()
        while heap and heap[0][0] <= began:
            if now - began >= TURN_S:
                return False
            _, _, timer = heapq.heappop(heap)
            callback = timer.callback
            if callback is not None:
                timer.callback = None
                callback()
            now = trio.current_time()
        return True
