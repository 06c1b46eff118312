"""One Trio loop in a thread of its own, for all brokers that a process of tests runs.

Owns: `LoopThread` and `shared_loop`, which starts it with its first user and ends it with the last,
so that no thread is left behind. Rules:
1. Calls come from any thread, also from one that runs an event loop of its own.
2. Who stops waiting for a call (an interrupt, a cancelled task) cancels it.

Called by: `cluster`, `waiting`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Generic, TypeVar

import trio

T = TypeVar("T")
_NAME = "kraftrio-testing"


class Call(Generic[T]):
    """A call under way in the loop's thread."""

    def __init__(self, token: trio.lowlevel.TrioToken, scope: trio.CancelScope) -> None:
        self.future: Future[T] = Future()
        self._token = token
        self._scope = scope

    def cancel(self) -> None:
        """Cancel it, from any thread; `future` is done once it has ended."""
        try:
            self._token.run_sync_soon(self._scope.cancel)
        except trio.RunFinishedError:
            self.future.cancel()

    def wait(self) -> None:
        """Wait for its end in this thread, however it ends."""
        wait([self.future])

    def result(self) -> T:
        """Wait for its result in this thread."""
        try:
            return self.future.result()
        except BaseException:
            if not self.future.done():
                self.cancel()
            raise


class LoopThread:
    """See the module; `end` is to be called once."""

    def __init__(self) -> None:
        self._started: Future[trio.lowlevel.TrioToken] = Future()
        self._ending = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name=_NAME, daemon=True)
        self._thread.start()
        self._token = self._started.result()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._started.set_result(trio.lowlevel.current_trio_token())
            await self._ending.wait()
            nursery.cancel_scope.cancel()

    def do(self, work: Callable[[], T]) -> T:
        """Do something in the loop's thread, and return its result."""

        async def call() -> T:
            await trio.lowlevel.checkpoint()
            return work()

        return self.call(call).result()

    def call(self, work: Callable[[], Awaitable[T]]) -> Call[T]:
        """Begin a call of an async function in the loop's thread."""
        call: Call[T] = Call(self._token, scope := trio.CancelScope())
        self._token.run_sync_soon(self._nursery.start_soon, self._answer, call, scope, work)
        return call

    @staticmethod
    async def _answer(
        call: Call[T], scope: trio.CancelScope, work: Callable[[], Awaitable[T]]
    ) -> None:
        future = call.future
        try:
            with scope:
                try:
                    result = await work()
                except trio.Cancelled:
                    raise
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
        finally:
            if not future.done():
                future.cancel()

    def end(self) -> None:
        """Cancel what still runs, and wait for the thread's end."""
        self._token.run_sync_soon(self._ending.set)
        self._thread.join()


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: LoopThread | None = None
        self.user_count = 0


_shared = _Shared()


@contextmanager
def shared_loop() -> Iterator[LoopThread]:
    """Use the loop that all brokers of this process share."""
    with _shared.lock:
        if _shared.loop is None:
            _shared.loop = LoopThread()
        _shared.user_count += 1
        loop = _shared.loop
    try:
        yield loop
    finally:
        with _shared.lock:
            _shared.user_count -= 1
            if not _shared.user_count:
                loop.end()
                _shared.loop = None
