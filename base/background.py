"""Tasks that run beside the body of an `async with`, without the body knowing of them.

Owns `open_background`, which runs them, and `run_aside`, as which they are started. Rules:
1. What the body raises comes out as itself, never in a group: an error, a cancellation, an
   interrupt, also one that has met a task. What else a task raises is a fault of ours, and comes
   out in a group.
2. Ctrl-C reaches the program, wherever its main task is, and none of these tasks: Trio raises
   KeyboardInterrupt in whatever task runs at the moment, unless that is protected.
3. The traceback of an interrupt ends where the program was, without what it was waiting in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVarTuple

import trio

_OURS: Final = frozenset({"kraftrio", "trio", "outcome", "contextlib"})

Arguments = TypeVarTuple("Arguments")


@asynccontextmanager
async def open_background() -> AsyncIterator[trio.Nursery]:
    """Run the body with a nursery, whose tasks are cancelled when the body is left."""
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:  # raised below: here the nursery would put it in a group
                failure = error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        _, others = group.split((KeyboardInterrupt, trio.Cancelled))
        if others is not None or group.split(KeyboardInterrupt)[0] is None:
            raise
        raise KeyboardInterrupt from None  # it came to a task of Trio's own: one that connects
    if failure is not None:
        if isinstance(failure, KeyboardInterrupt):
            _end_at_the_program(failure)
        raise failure


@trio.lowlevel.enable_ki_protection
async def run_aside(run: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments) -> None:
    """Run a task to which no interrupt comes."""
    await run(*arguments)


def _end_at_the_program(interrupt: KeyboardInterrupt) -> None:
    """Cut the traceback after the last line that is the program's own."""
    last = None
    step = interrupt.__traceback__
    while step is not None:
        name = step.tb_frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in _OURS:
            last = step
        step = step.tb_next
    if last is not None:
        last.tb_next = None
