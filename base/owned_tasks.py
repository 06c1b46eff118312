"""The tasks of an owner that is asked for more of them at any time: `OwnedTasks`.

An owner with a `run` of its own is called from outside: by the quorum, by new metadata, by a
connection that closes. That may happen before it runs, and still while its node stops. Rule: tasks
start from the moment the owner runs until its body is left, by whatever; outside that time a
request for one starts nothing, and is answered so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple

import trio

Arguments = TypeVarTuple("Arguments")


class OwnedTasks:
    """See the module."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[trio.Nursery]:
        """Let tasks start while the body runs, and wait for them as a nursery does."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                yield nursery
            finally:
                self._nursery = None

    def start(self, run: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments) -> bool:
        """Start a task if the owner runs, and return whether it does."""
        if self._nursery is None:
            return False
        self._nursery.start_soon(run, *arguments)
        return True
