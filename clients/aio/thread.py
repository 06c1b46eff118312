"""The thread in which the clients of asyncio programs run: one Trio loop for all of a process.

Rules:
1. The first client that is opened starts the thread, the last one that is closed ends it, and waits
   for its end: no thread is left behind, and none is a daemon.
2. While a task of Trio's runs, it holds `lock`. So a thread that holds the lock may touch what
   tasks own, as a task of its own would between two waits, but wake none: that is what is read, and
   appended to, once per record without a change of threads.
3. A forked process has no such thread: what was open is closed there, and it may open its own.

Called by: `host`.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

import trio

from kraftrio.clients.errors import ClosedError

_NAME = "kraftrio-clients"


class _HoldLock(trio.abc.Instrument):
    """Holds the lock during each step of a task."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.lock.acquire()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.lock.release()


class _NoThread(AbstractContextManager[None]):
    """Stands for the lock in a forked process: taking it raises ClosedError."""

    def __enter__(self) -> NoReturn:
        raise ClosedError("the client was opened before this process was forked: open another one")

    def __exit__(self, *_: object) -> None:
        """Never called."""


class ClientThread:
    """Made by `enter`; `leave` must follow.

    Attributes:
        lock: held by Trio while one of its tasks runs.
        token: to have something run in the thread.
        nursery: of the clients' tasks.
    """

    _shared: ClassVar[ClientThread | None] = None
    _changing: ClassVar[threading.Lock] = threading.Lock()

    token: trio.lowlevel.TrioToken
    nursery: trio.Nursery

    def __init__(self) -> None:
        self._holder = _HoldLock()
        self.lock: AbstractContextManager[Any] = self._holder.lock
        self._users = 0
        self._is_ready = threading.Event()
        self._stop: trio.Event
        self._thread = threading.Thread(target=self._run, name=_NAME)

    @classmethod
    def enter(cls) -> ClientThread:
        """Return the thread, started if need be."""
        with cls._changing:
            thread = cls._shared
            if thread is None:
                thread = cls._shared = ClientThread()
                thread._thread.start()
                thread._is_ready.wait()
            thread._users += 1
            return thread

    def leave(self) -> None:
        """End the thread if no other client uses it, and wait for that unless it is this one."""
        with self._changing:
            self._users -= 1
            if self._users:
                return
            ClientThread._shared = None
        self.token.run_sync_soon(self._stop.set)
        if not self.is_current:
            self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether this is the thread that asks."""
        return threading.get_ident() == self._thread.ident

    def check_process(self) -> None:
        """Raise ClosedError in a process that was forked from the one with the thread."""
        if isinstance(self.lock, _NoThread):
            with self.lock:
                pass

    def _run(self) -> None:
        trio.run(self._serve, instruments=[self._holder])

    async def _serve(self) -> None:
        self._stop = trio.Event()
        self.token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self.nursery:
            self._is_ready.set()
            await self._stop.wait()

    @classmethod
    def _after_fork(cls) -> None:
        cls._changing = threading.Lock()
        if cls._shared is not None:
            cls._shared.lock = _NoThread()
            cls._shared = None


os.register_at_fork(after_in_child=ClientThread._after_fork)
