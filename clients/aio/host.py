"""One client in the clients' thread, and how asyncio calls it.

Rules:
1. One task of Trio's enters a client, keeps it open and leaves it; each call is a task beside. The
   body of `async with` ends there as it ends here: an exception goes to the client, and anything
   else (a cancelled task, Ctrl-C) is a cancellation in Trio.
2. A task of asyncio that is cancelled cancels its call, and waits until the call has ended. What
   the call has returned all the same is given back (`give_back`), so that nothing is lost.
3. A client whose event loop was closed, or whose thread ended, without it is closed as by a
   cancellation: a program that ends does not hang.

Called by: `bridge` and the clients of asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Self, TypeVar

import outcome
import trio

from kraftrio.base.owned_tasks import OwnedTasks
from kraftrio.clients.aio.thread import ClientThread
from kraftrio.clients.errors import ClosedError

T = TypeVar("T")

_WATCH_EVERY_S = 0.5


class CallOutcome(Generic[T]):
    """What one task of asyncio waits for; set in the clients' thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: outcome.Outcome[T] | None = None
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None

    def set(self, result: outcome.Outcome[T]) -> None:
        """Say how it ended; in the clients' thread."""
        self.outcome = result
        notify(self._loop, self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, cancel: Callable[[], None]) -> bool:
        """Wait for the outcome, also if the task is cancelled.

        Args:
            cancel: has what is waited for end early.

        Returns:
            whether the task was cancelled meanwhile.
        """
        is_cancelled = False
        while self.outcome is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                is_cancelled = True
                cancel()
        return is_cancelled


class ClientHost:
    """See the module.

    Args:
        name: what the client is called in complaints.

    Attributes:
        thread: where it runs; to touch the client's state, hold its lock.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                f"kraftrio.asyncio.{name} needs a running event loop of asyncio: under Trio use"
                f" kraftrio.{name}"
            ) from None
        self.thread = ClientThread.enter()
        self._owner = threading.current_thread()
        self._scope = trio.CancelScope()
        self._closing = trio.Event()
        self._body_error: Exception | None = None
        self._tasks = OwnedTasks()
        self._opened: CallOutcome[None] = CallOutcome(self._loop)
        self._ended: CallOutcome[None] = CallOutcome(self._loop)

    # -- opening and closing --------------------------------------------------------------------

    async def open(self, client: AbstractAsyncContextManager[Any]) -> None:
        """Enter a client of Trio's.

        Raises:
            KafkaClientError: as the client.
        """
        self.thread.token.run_sync_soon(self.thread.nursery.start_soon, self._run, client)
        is_cancelled = await self._opened.wait(self._cancel)
        if is_cancelled or isinstance(self._opened.outcome, outcome.Error):
            await self._ended.wait(self._cancel)
            self.thread.leave()
        if is_cancelled:
            raise asyncio.CancelledError
        assert self._opened.outcome is not None
        self._opened.outcome.unwrap()

    async def close(self, error: BaseException | None) -> None:
        """Leave the client, whose body has ended with an error or without.

        Raises:
            KafkaClientError: as the client.
        """
        self.thread.check_process()
        if error is None or isinstance(error, Exception):
            self._body_error = error
            self.soon(self._closing.set)
        else:
            self._cancel()
        is_cancelled = await self._ended.wait(self._cancel)
        self.thread.leave()
        if is_cancelled:
            raise asyncio.CancelledError
        if (
            isinstance(self._ended.outcome, outcome.Error)
            and self._ended.outcome.error is not error
        ):
            self._ended.outcome.unwrap()

    def _cancel(self) -> None:
        self.soon(self._scope.cancel)

    def soon(self, function: Callable[[], object]) -> None:
        """Have something run in the clients' thread, without waiting for it."""
        with contextlib.suppress(trio.RunFinishedError):  # then there is nothing left to reach
            self.thread.token.run_sync_soon(function)

    async def _run(self, client: AbstractAsyncContextManager[Any]) -> None:
        result = await outcome.acapture(self._live, client)
        if self._opened.outcome is None:
            self._opened.set(result)
        self._ended.set(result)
        if self._is_orphaned:
            self.thread.leave()

    async def _live(self, client: AbstractAsyncContextManager[Any]) -> None:
        with self._scope:
            async with client:
                try:
                    await self._take_calls()
                except* trio.Cancelled:
                    pass  # a group of them from the nursery; clients are to see a single one
                await trio.lowlevel.checkpoint_if_cancelled()
                if self._body_error is not None:
                    raise self._body_error

    async def _take_calls(self) -> None:
        async with self._tasks.open() as nursery:
            self._tasks.start(self._watch_owner)
            self._opened.set(outcome.Value(None))
            await self._closing.wait()
            nursery.cancel_scope.cancel()

    async def _watch_owner(self) -> None:
        while not self._is_orphaned:  # noqa: ASYNC110 - neither event loop nor thread would say so
            await trio.sleep(_WATCH_EVERY_S)
        self._scope.cancel()

    @property
    def _is_orphaned(self) -> bool:
        """Whether no one is left who could close the client."""
        return self._loop.is_closed() or not self._owner.is_alive()

    # -- calling --------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """Whether the caller is in the clients' thread already."""
        return self.thread.is_current

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the program."""
        return self._loop

    async def call(
        self,
        function: Callable[[], Awaitable[T]],
        give_back: Callable[[T], object] | None = None,
    ) -> T:
        """Run a call in the clients' thread and return what it returns.

        Args:
            give_back: called there with a result that was not returned: the task was cancelled.

        Raises:
            ClosedError: the client is not open, or was closed meanwhile.
            RuntimeError: this is not the event loop in which the client was opened.
        """
        self.thread.check_process()
        if self.is_here:
            return await function()
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"the {self._name} was opened in another event loop")
        reply: CallOutcome[T] = CallOutcome(self._loop)
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                result = await outcome.acapture(function)
            reply.set(result)

        def start() -> None:
            if not self._tasks.start(run):
                reply.set(outcome.Error(self._closed()))

        try:
            self.thread.token.run_sync_soon(start)
        except trio.RunFinishedError:
            raise self._closed() from None
        is_cancelled = await reply.wait(lambda: self.soon(scope.cancel))
        result = reply.outcome
        assert result is not None
        if is_cancelled:
            if give_back is not None and isinstance(result, outcome.Value):
                value = result.value
                self.call_sync(lambda: give_back(value))
            raise asyncio.CancelledError
        if isinstance(result, outcome.Error) and isinstance(result.error, trio.Cancelled):
            raise self._closed()
        return result.unwrap()

    def call_sync(self, function: Callable[[], T]) -> T:
        """Run what does not wait in the clients' thread, and return what it returns."""
        self.thread.check_process()
        if self.is_here:
            return function()
        try:
            return trio.from_thread.run_sync(function, trio_token=self.thread.token)
        except trio.RunFinishedError:  # nobody else touches what is closed
            return function()

    def _closed(self) -> ClosedError:
        return ClosedError(f"the {self._name} is not open")

    # -- calling back ---------------------------------------------------------------------------

    async def call_back(self, function: Callable[[], object]) -> Any:
        """Call what belongs to the program, sync or async, in its event loop; from the thread."""
        done = trio.Event()
        token = self.thread.token
        results: list[outcome.Outcome[Any]] = []
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            async def called() -> Any:
                value = function()
                return await value if isinstance(value, Awaitable) else value

            try:
                results.append(await outcome.acapture(called))
            finally:
                with contextlib.suppress(trio.RunFinishedError):
                    token.run_sync_soon(done.set)

        def start() -> None:
            tasks.append(self._loop.create_task(run()))

        notify(self._loop, start)
        try:
            await done.wait()
        except trio.Cancelled:
            notify(self._loop, lambda: [task.cancel() for task in tasks])
            raise
        return results[0].unwrap()


class CalledIterator(Generic[T]):
    """Something of Trio's to iterate over: each step is a call of the host.

    Args:
        give_back: as of `ClientHost.call`.
    """

    def __init__(
        self, host: ClientHost, iterator: AsyncIterator[T], give_back: Callable[[T], object]
    ) -> None:
        self._host = host
        self._iterator = iterator
        self._give_back = give_back

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await self._host.call(self._iterator.__anext__, self._give_back)


def notify(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Have an event loop call something soon, unless it is closed: then nobody waits any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
