"""The program's calls for records: one at a time, and what wakes or stops them.

Owns `Calls`, which background tasks use to reach the program, and the `Turnstile` at which a
rebalance waits until the program is in such a call. Rules:
1. Code that changes what may be handed over, or has an error for the program, calls `interrupt` or
   `fail`: the next call looks after that before it takes anything.
2. An error is raised once, by one call; the same error again before that is dropped.

Called by: the consumer and the share consumer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from kraftrio.clients.errors import ClosedError


class Turnstile:
    """Lets a rebalance act while the application waits in its poll.

    Args:
        notify: wakes the application if it is in its poll, or has it come here with the next one.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self.is_wanted = False
        self.notify = notify
        self._opened = trio.Event()
        self._done = trio.Event()

    def announce(self) -> None:
        """Let nothing be handed over before the turn that is to come."""
        if not self.is_wanted:
            self._opened, self._done = trio.Event(), trio.Event()
            self.is_wanted = True

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the application's poll, and keep it there meanwhile."""
        self.announce()
        self.notify()
        try:
            await self._opened.wait()
            yield
        finally:
            self.is_wanted = False
            self._done.set()

    async def give_way(self) -> None:
        """Called in the poll: wait until no rebalance wants to act."""
        while self.is_wanted:
            self._opened.set()
            await self._done.wait()


class Calls:
    """See the module.

    Attributes:
        is_open: the program may call.
        is_closing: no call may, but for a listener of the partitions given up (as in Java).
        is_interrupted: the next call has something to look after before it takes anything.
        is_waiting: the program is in a call, waiting for records or for a rebalance.
        failures: what the next calls raise.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.is_closing = False
        self.is_interrupted = True
        self.is_waiting = False
        self.failures: list[Exception] = []
        self.turnstile = Turnstile(self.interrupt)
        self._arrived = trio.Event()
        self._is_busy = False

    # -- the program's side ---------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ClosedError unless the consumer is open."""
        if not (self.is_open or self.is_closing):
            raise ClosedError("the consumer is not open")

    def begin(self) -> None:
        """A call for records begins; `end` must follow.

        Raises:
            ClosedError: the consumer is not open.
            trio.BusyResourceError: another call has not ended.
        """
        if not self.is_open:
            raise ClosedError("the consumer is not open")
        if self._is_busy:
            raise trio.BusyResourceError("another task is taking records from this consumer")
        self._is_busy = True

    def end(self) -> None:
        """The call has ended."""
        self._is_busy = False

    async def wait_arrival(self) -> None:
        """Wait for records, or for something to look after.

        Raises:
            ClosedError: the consumer was closed meanwhile, by another task.
        """
        self._arrived = trio.Event()
        if not self.is_interrupted:
            self.is_waiting = True
            try:
                await self._arrived.wait()
            finally:
                self.is_waiting = False
        if not self.is_open:
            raise ClosedError("the consumer was closed while this call waited")

    async def give_way(self, deadline: float = math.inf) -> None:
        """Let a rebalance act that wants to, until the deadline."""
        if not self.turnstile.is_wanted:
            return
        self.is_waiting = True
        try:
            with trio.move_on_at(deadline):
                await self.turnstile.give_way()
        finally:
            self.is_waiting = False
            self.is_interrupted |= self.turnstile.is_wanted

    def raise_failure(self) -> None:
        """Raise what the program must know, if there is such a thing."""
        if self.failures:
            self.is_interrupted = True
            raise self.failures.pop(0)

    # -- everybody else's side ------------------------------------------------------------------

    def close(self) -> None:
        """Let no call begin any more, and end the one that waits for records."""
        self.is_open = False
        self.interrupt()

    def interrupt(self) -> None:
        """Have the next call look after what there is to look after."""
        self.is_interrupted = True
        self._arrived.set()

    def arrive(self) -> None:
        """There may be something to take."""
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """Have the next call raise this."""
        if not any(str(known) == str(error) for known in self.failures):
            self.failures.append(error)
        self.interrupt()
